"""The protocols through which middleware, policies, environments and buffers see each other.

Axes: N environments, M agents of each where there are several, T time, B batch, K gradient steps of one learn call.
Everything is batch-first. An observation (`Obs`) is one array ``(N, ...)`` or, for Dict and Tuple spaces and several
agents (see `engine.data.agents`), a `treevalue.FastTreeValue` of such arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.data.batch import Field, IndexedBatch
    from minding.engine.data.rollout import Rollout

Array = npt.NDArray[Any]


class ObsTree(Protocol):
    """The observations of a Dict or Tuple space, or of several agents: a `treevalue.FastTreeValue` of arrays, whose
    parts are attributes and keys."""

    def __getattr__(self, name: str) -> Obs: ...

    def __getitem__(self, name: str) -> Obs: ...

    def __contains__(self, name: object) -> bool: ...


Obs: TypeAlias = Array | ObsTree
"""``(N, ...)`` array or a tree of them."""
ObsLike: TypeAlias = Obs | Mapping[str, Array]
"""What actors take: also the leaves of a tree by path, such as ``{"joint.position": (N, 3)}``."""
StateDict = dict[str, Any]
"""Nested dicts with string keys whose leaves are arrays or JSON values (numbers, strings, bools, None, lists)."""


@runtime_checkable
class Stateful(Protocol):
    """Anything that takes part in a checkpoint."""

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """One finished episode. `episode_return` is the sum of the environment's own rewards (before normalization), over
    the steps and the agents.

    `info` holds what its last step said of the declared keys of `info` (``env.info_keys``) that are one number each;
    with several agents also the return of each, as ``return.<name>``.
    """

    env_id: int
    episode_return: float
    episode_length: int
    info: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(slots=True)
class EnvStep:
    """What N environments returned for one batch of actions, in one form whatever the source's autoreset mode.

    Attributes:
      obs: observation to act on next, ``(N, ...)``; after an end it is the first one of the new episode.
      next_obs: true successor of the observation acted on, ``(N, ...)``; the final observation where an episode
        ended. The same object as `obs` when no episode ended in this step.
      reward: float32 ``(N,)``, with several agents ``(N, M)``, after reward normalization if that is on.
      terminated: bool ``(N,)``, a true end (no bootstrap).
      truncated: bool ``(N,)``, cut by a time limit (bootstrap from `next_obs`); never true together with `terminated`.
      valid: bool ``(N,)``, False where the source used this step to reset (the row is not a transition); None when all
        rows are valid.
      episodes: the episodes that ended in this step.
      info: what the step said of the declared keys of `info` (``env.info_keys``), ``(N, ...)`` by name, zeros in rows
        that are not valid; None when no keys are declared. A declared action mask is a part of `obs` and `next_obs`.
    """

    obs: Obs
    next_obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array | None
    episodes: Sequence[EpisodeEnd]
    info: Mapping[str, Array] | None = None

    @property
    def team_reward(self) -> Array:
        """Sum of the agents' rewards, float32 ``(N,)``; the reward itself where there is one."""
        return self.reward if self.reward.ndim == 1 else self.reward.sum(axis=1)

    def begun(self) -> Array | None:
        """Numbers of the environments in which what was remembered ends with this step; None if there are none.

        Those whose episode ended, and those that used the step to reset: what was seen in it is of the old episode.
        """
        if not self.episodes and self.valid is None:
            return None
        over = self.terminated | self.truncated
        return np.flatnonzero(over if self.valid is None else over | ~self.valid)


class EnvManager(Protocol):
    """N environments that step together."""

    num_envs: int

    @property
    def resume_guarantee(self) -> str:
        """``'exact'`` or ``'episode-boundary'``: what `load_state_dict` promises about running episodes."""
        ...

    def reset(self, seed: int | None = None) -> Obs:
        """Starts a new episode in every environment; with `seed`, from that seed's stream again."""
        ...

    @property
    def obs(self) -> Obs:
        """The observation to act on now, ``(N, ...)``; resets on first use."""
        ...

    @property
    def episode_steps(self) -> Array:
        """Steps of each running episode so far, int64 ``(N,)``; 0 where one begins with `obs`."""
        ...

    def step(self, action: Array) -> EnvStep:
        """Steps with actions of `CollectMode`, in the policy's own units: Box actions in [-1, 1] when rescaled."""
        ...

    def play(self, action: Array) -> EnvStep:
        """Steps with actions of `EvalMode`, in the environment's units."""
        ...

    def abandon(self) -> None:
        """Abandons the running episodes: they are not part of `state_dict`, and a reset comes next."""
        ...

    def close(self) -> None: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


class CollectMode(Protocol):
    """Acts with exploration and records what the algorithm needs later."""

    @property
    def record_fields(self) -> Sequence[str]:
        """Names of the arrays that `forward` returns besides 'action' (such as log_prob, value)."""
        ...

    def forward(self, obs: Obs, **collect_kwargs: Any) -> dict[str, Array]:
        """Returns ``{'action': (N, ...), ...record}``; the action in the policy's own units, as it is learned from.

        With several agents everything is ``(N, M, ...)``.

        A policy with memory takes the observations in, and records as 'memory' what it remembered before them.
        """
        ...

    @property
    def memory(self) -> Array | None:
        """What is remembered now, float32 ``(N, S)``; None for a policy without memory."""
        ...

    def value(self, obs: Obs, memory: Array | None = None) -> Array:
        """State value float32 ``(B,)`` of a batch of any size (actor-critic policies only).

        The observations are not taken into the memory; `memory` is what is remembered before them, by default `memory`
        of the mode.
        """
        ...

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Forgets these environments, because their next observation begins an episode; None: all of them."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class LearnOutput:
    """What a learn call returns.

    Attributes:
      metrics: the mean of each over the gradient steps.
      steps: number of gradient steps made.
      priorities: float32, shaped like the index of the batch, where the algorithm has them: how much each row is worth
        drawing again, from the step that used it; None elsewhere.
    """

    metrics: Mapping[str, float]
    steps: int
    priorities: Array | None = None


class LearnMode(Protocol):
    """Performs all gradient steps of one iteration in one compiled call."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The rows that `forward` reads, by name."""
        ...

    def forward(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        """Learns from a batch.

        Args:
          batch: rows and, for each step, their numbers.
          progress: share of the run that is over, in [0, 1]; drives schedules. An array ``(K,)`` has it for each
            gradient step of the batch: so it is where the clock counts these and there are several.
        """
        ...


class RewardEstimate(NamedTuple):
    """What a `RewardModel` gives for a rollout: a reward for each step, float32 like the rollout's own, and metrics."""

    reward: Array
    metrics: Mapping[str, float]


class RewardModel(Protocol):
    """Gives the steps of a rollout rewards of its own."""

    def estimate(self, rollout: Rollout) -> RewardEstimate:
        """Returns the rewards of a rollout, and learns from it if it learns."""
        ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


class EvalMode(Protocol):
    """Acts without exploration."""

    def forward(self, obs: Obs, action_mask: Array | None = None) -> Array:
        """Returns actions ``(N, ...)`` in the environment's units: what its own `step` takes, a row each.

        Args:
          obs: as `EnvStep.obs`.
          action_mask: bool ``(N, A)``, the legal actions, where `obs` does not hold them.
        """
        ...

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """As that of `CollectMode`."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """An acting mode with which search judges positions; those of AlphaZero do."""

    def predict(self, obs: ObsLike) -> Mapping[str, Array]:
        """Returns ``logits`` ``(N, A)``, very low for illegal actions, and ``value`` ``(N,)`` in [-1, 1] for the player
        to move; draws nothing and remembers nothing."""
        ...


class Policy(Protocol):
    """One root cell with three views. Only the requested modes exist."""

    @property
    def config(self) -> Config:
        """The whole compiled configuration it was built from."""
        ...

    @property
    def collect_mode(self) -> CollectMode: ...

    @property
    def learn_mode(self) -> LearnMode: ...

    @property
    def eval_mode(self) -> EvalMode: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


State: TypeAlias = tuple[Array, ...]
"""Positions of n board games: arrays ``(n, ...)``, whose rows belong together."""


class BoardGame(Protocol):
    """The rules of a game of two players who move in turn and see everything, for n games at once.

    All methods are pure: a state is never written to. They are only asked about positions in which the game still
    runs, and `play` only with legal actions; what they return for others is not defined.
    """

    @property
    def actions(self) -> int:
        """A, the number of actions, legal or not."""
        ...

    @property
    def longest(self) -> int:
        """The most plies that a game can have."""
        ...

    def initial(self, n: int) -> State:
        """Returns n initial positions."""
        ...

    def legal(self, state: State) -> Array:
        """Returns the legal actions, bool ``(n, A)``; at least one in each row."""
        ...

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        """Plays one ply in each game.

        Args:
          state: n positions.
          action: integers ``(n,)``.
        Returns:
          The next positions; whether each game is over, bool ``(n,)``; its outcome for the player who would move next,
          ``(n,)``: 1 for a win, -1 for a loss (the ply won), 0 for a draw and while the game runs.
        """
        ...

    def planes(self, state: State) -> Array:
        """Returns what a network sees, float32 ``(n, C, H, W)`` in [0, 1], from the side of the player to move."""
        ...

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """Returns all equivalent forms of n positions, each with the policy that belongs to it.

        Args:
          planes: ``(n, C, H, W)``.
          policy: one number per action, ``(n, A)``.
        Returns:
          Pairs of the same shapes, first the given one. A game without symmetries returns only that.
        """
        ...


@dataclasses.dataclass
class LaneContext:
    """What a worker of an asynchronous run knows when it rebuilds what was shipped to it.

    Attributes:
      index: number of the worker among those of its lane, from 0.
      weights: the arrays that policies act with, by parameter name; written in place between two iterations.
      own_process: whether the worker has a process to itself, so that it may load MindSpore.
      shards: how many workers share an iteration.
      guest: what acts beside the lane's own policy, and draws from a random stream of this name; empty for the policy
        itself.
      on_refresh: called each time after `weights` was written.
    """

    index: int
    weights: dict[str, Array]
    own_process: bool = True
    shards: int = 1
    guest: str = ""
    on_refresh: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    def share(self, num_envs: int) -> int:
        """How many of `num_envs` environments are this worker's; all shards have as many."""
        return num_envs // self.shards


Factory = Callable[[LaneContext], Any]
"""Rebuilds an object in a worker process; sent by cloudpickle."""

Network = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Leaves ``(B, ...)`` to outputs, of which most are ``(B, ...)``; each row depends on its own leaves only."""


class Served(Protocol):
    """A `Factory` of something that acts, and whose network may be computed by another worker (an inference server)."""

    def __call__(self, lane: LaneContext) -> Any: ...

    def network(self, lane: LaneContext) -> tuple[Network, frozenset[int]]:
        """In the server: the network on the weights of the lane, and which of its outputs have no batch axis."""
        ...

    def on_network(self, lane: LaneContext, network: Network) -> Any:
        """In a collector: makes what a call makes, but with this network. The lane has no weights."""
        ...


@runtime_checkable
class Shippable(Protocol):
    """Something that a middleware holds and that is sent to a worker process as a factory, not as itself.

    If it has an attribute `num_envs`, environments are divided among shards (``lanes.shards``): the factory makes
    ``lane.share(num_envs)`` of them.
    """

    def factory(self) -> Factory:
        """Returns the factory that rebuilds it in a worker."""
        ...

    def weights(self) -> Mapping[str, Array]:
        """Returns the live arrays, by parameter name, that the factory needs in ``LaneContext.weights``."""
        ...


class SampledBuffer(Protocol):
    """What learning from replay needs of a buffer: rows on the device, sampled by index."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The rows it holds, by name."""
        ...

    def __len__(self) -> int: ...

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Draws `updates` batches; returns what `LearnMode.forward` takes."""
        ...


class Buffer(SampledBuffer, Protocol):
    """A store of transitions on the device that are sampled by index."""

    capacity: int

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends a batch of rows, oldest overwritten first."""
        ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...
