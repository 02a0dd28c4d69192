"""The protocols that connect middleware, policies, environments and buffers.

Axes: N environments, M agents per environment if there are several, T time, B batch, K gradient steps per learn call.
Everything is batch-first. An observation (`Obs`) is one array ``(N, ...)`` or, for Dict and Tuple spaces and several
agents (see `engine.data.agent_axis`), a `treevalue.FastTreeValue` of such arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from minding.engine.buffers.limiters import Limiter
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
"""What actors take: an `Obs`, or the leaves of a tree by path, such as ``{"joint.position": (N, 3)}``."""
StateDict = dict[str, Any]
"""Nested dicts with string keys whose leaves are arrays or JSON values (numbers, strings, bools, None, lists)."""
SAVABLE = frozenset(
    {"bool", "float16", "float32", "float64", *(f"{u}int{8 << k}" for u in ("", "u") for k in range(4))}
)
"""Names of the dtypes of arrays that checkpoints hold."""


def is_savable(dtype: npt.DTypeLike) -> bool:
    """Whether a checkpoint can hold arrays of this dtype, see `SAVABLE`."""
    return np.dtype(dtype).name in SAVABLE


@runtime_checkable
class Stateful(Protocol):
    """An object whose state is part of a checkpoint."""

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """One finished episode. `episode_return` is the sum of the environment's own rewards (before normalization), over
    the steps and the agents.

    `info` holds the values of the declared info keys (``env.info_keys``) at its last step, as far as they are single
    numbers; with several agents also the return of each, as ``return.<name>``.
    """

    env_id: int
    episode_return: float
    episode_length: int
    info: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(slots=True)
class EnvStep:
    """The result of one batch of actions in N environments, in the same form for every autoreset mode of the source.

    Attributes:
      obs: observation to act on next, ``(N, ...)``; after an end it is the first observation of the new episode.
      next_obs: true successor of the observation acted on, ``(N, ...)``; the final observation where an episode
        ended. The same object as `obs` when no episode ended in this step.
      reward: float32 ``(N,)``, with several agents ``(N, M)``, after reward normalization if it is turned on.
      terminated: bool ``(N,)``, a true end (no bootstrap).
      truncated: bool ``(N,)``, cut by a time limit (bootstrap from `next_obs`); never true together with `terminated`.
      valid: bool ``(N,)``, False where the source used this step to reset (the row is not a transition); None if all
        rows are valid.
      info: values of the declared info keys (``env.info_keys``), ``(N, ...)`` by name, zeros in rows that are not
        valid; None if no keys are declared. A declared action mask is a part of `obs` and `next_obs`.
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
        """Sum of the agents' rewards, float32 ``(N,)``; the reward itself if there is one agent."""
        return self.reward if self.reward.ndim == 1 else self.reward.sum(axis=1)

    def begun(self) -> Array | None:
        """Indices of the environments whose memory must be cleared after this step; None if there are none.

        These are the environments whose episode ended, and those that used the step to reset, whose observation in it
        belongs to the old episode.
        """
        if not self.episodes and self.valid is None:
            return None
        over = self.terminated | self.truncated
        return (over if self.valid is None else over | ~self.valid).nonzero()[0]


class EnvManager(Protocol):
    """N environments that step together."""

    num_envs: int

    @property
    def resume_guarantee(self) -> str:
        """``'exact'`` or ``'episode-boundary'``: how `load_state_dict` restores running episodes."""
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
        """Steps of each running episode so far, int64 ``(N,)``; 0 where an episode starts with `obs`."""
        ...

    def step(self, action: Array) -> EnvStep:
        """Makes a step with actions from `CollectMode`, in the policy's units: Box actions in [-1, 1] if rescaled."""
        ...

    def play(self, action: Array) -> EnvStep:
        """Makes a step with actions from `EvalMode`, in the environment's units."""
        ...

    def abandon(self) -> None:
        """Abandons the running episodes: they are left out of `state_dict`, and the next call resets."""
        ...

    def close(self) -> None: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


class CollectMode(Protocol):
    """Acts with exploration, and records the values that the algorithm needs later."""

    @property
    def record_fields(self) -> Sequence[str]:
        """Names of the arrays that `forward` returns besides 'action' (such as log_prob, value)."""
        ...

    def forward(self, obs: Obs, **collect_kwargs: Any) -> dict[str, Array]:
        """Returns ``{'action': (N, ...), ...record}``, with the action in the policy's units, as the learner uses it.

        With several agents every array is ``(N, M, ...)``.

        A policy with memory updates it with the observations, and records as 'memory' its state before the update.
        """
        ...

    @property
    def memory(self) -> Array | None:
        """The current memory, float32 ``(N, S)``; None for a policy without memory."""
        ...

    def value(self, obs: Obs, memory: Array | None = None) -> Array:
        """State value, float32 ``(B,)``, of a batch of any size (actor-critic policies only).

        The observations do not change the mode's memory; `memory` is the state before them, by default the mode's.
        """
        ...

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Clears the memory of these environments, whose next observation starts an episode; None clears all."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class LearnOutput:
    """The result of a learn call.

    Attributes:
      priorities: float32, with the shape of the batch's index: the priority of each row, from the step that used it;
        None if the algorithm does not compute priorities.
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
          progress: elapsed share of the run, in [0, 1], for schedules. It is an array ``(K,)``, with one entry per
            gradient step of the batch, if the clock counts gradient steps and there are several.
        """
        ...


class RewardEstimate(NamedTuple):
    """The result of a `RewardModel` for a rollout: float32 rewards, shaped like the rollout's own, and metrics."""

    reward: Array
    metrics: Mapping[str, float]


class RewardModel(Protocol):
    """Computes rewards for the steps of a rollout."""

    def estimate(self, rollout: Rollout) -> RewardEstimate:
        """Returns the rewards of a rollout; a model that learns also learns from it."""
        ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


class EvalMode(Protocol):
    """Acts without exploration."""

    def forward(self, obs: Obs, action_mask: Array | None = None) -> Array:
        """Returns actions ``(N, ...)`` in the environment's units, one row for each environment's `step`.

        Args:
          action_mask: bool ``(N, A)``, the legal actions, if `obs` does not contain them.
        """
        ...

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """As in `CollectMode`."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """An acting mode that can judge positions for a search, such as AlphaZero's modes."""

    def predict(self, obs: ObsLike) -> Mapping[str, Array]:
        """Returns ``logits`` ``(N, A)``, very low for illegal actions, and ``value`` ``(N,)`` in [-1, 1] for the player
        to move. Uses no random numbers and changes no memory."""
        ...


@runtime_checkable
class TakesReward(Protocol):
    """An acting mode whose actions may depend on earlier rewards, such as a Decision Transformer's."""

    def take_reward(self, reward: Array) -> None:
        """Takes note of the rewards ``(N,)`` of the last actions, before `reset` for episodes that ended."""
        ...


class Policy(Protocol):
    """A policy: one root cell with three views. Only the requested modes exist."""

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
    """The rules of a two-player game with alternate moves and perfect information, for n games at once.

    All methods are pure: a state is never modified. Callers pass only positions of unfinished games, and `play` only
    legal actions; for anything else the result is undefined.

    Rules may also define ``stones(state)``, from which `minding play` and pictures draw the board; see
    `engine.search.rules.stones_of`.
    """

    @property
    def actions(self) -> int:
        """A, the number of actions, legal or not."""
        ...

    @property
    def longest(self) -> int:
        """The largest number of plies in a game."""
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
          The next positions; whether each game has ended, bool ``(n,)``; and its outcome for the player who would move
          next, ``(n,)``: 1 for a win, -1 for a loss (this ply won the game), 0 for a draw and for an unfinished game.
        """
        ...

    def planes(self, state: State) -> Array:
        """Returns the network's input, float32 ``(n, C, H, W)`` in [0, 1], from the view of the player to move."""
        ...

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """Returns all equivalent forms of n positions, each with its transformed policy.

        Args:
          planes: ``(n, C, H, W)``.
          policy: one number per action, ``(n, A)``.
        """
        ...


@dataclasses.dataclass
class LaneContext:
    """The information with which a worker of an asynchronous run rebuilds objects that were sent to it."""

    index: int
    weights: dict[str, Array]
    own_process: bool = True
    shards: int = 1
    rng_stream: str = ""
    on_refresh: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    def share(self, num_envs: int) -> int:
        """This worker's number of `num_envs` environments; all shards have the same number."""
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
    """An object of a middleware that is sent to a worker process in the form of a factory.

    If it has an attribute `num_envs`, its environments are divided among shards (``lanes.shards``): the factory creates
    ``lane.share(num_envs)`` of them.
    """

    def factory(self) -> Factory:
        """Returns the factory that rebuilds it in a worker."""
        ...

    def weights(self) -> Mapping[str, Array]:
        """Returns the live arrays, by parameter name, that the factory needs in ``LaneContext.weights``."""
        ...


class SampledBuffer(Protocol):
    """The part of a buffer that learning from replay uses: rows on the device, sampled by index."""

    capacity: int
    prioritized: bool
    sequences: bool

    @property
    def limiter(self) -> Limiter | None:
        """The limiter of inserts and samples; None if it has none."""
        ...

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of its rows, by name."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it holds what it samples, such as a whole episode."""
        ...

    def __len__(self) -> int: ...

    def can_sample(self, count: int) -> bool:
        """Whether the limiter allows that many samples now."""
        ...

    def watch(self, watcher: Callable[[Mapping[str, Array]], object]) -> None:
        """Calls `watcher` with the rows of every later `push`, each field ``(n, ...)``, after they are stored."""
        ...

    def status(self) -> str:
        """Number of rows and, with a limiter, what is counted, for messages."""
        ...

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples `updates` batches, in the form that `LearnMode.forward` takes."""
        ...

    def update(self, batch: IndexedBatch, priorities: Array) -> None:
        """Sets the priorities of the rows of a result of `sample`, float32 with the shape of its index."""
        ...


class FilledBuffer(Protocol):
    """The part of a buffer that pushing into it uses."""

    capacity: int
    takes_order: bool
    minibatches: int | None

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of its rows, by name."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether a limiter may forbid a push."""
        ...

    def __len__(self) -> int: ...

    def can_insert(self, count: int) -> bool:
        """Whether the limiter allows inserting that many rows now."""
        ...

    def status(self) -> str:
        """Number of rows and, with a limiter, what is counted, for messages."""
        ...

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Stores a batch of new rows, and passes them on to those who watch the buffer."""
        ...

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Appends a batch of rows, also of rows that a resumed run stores again; a full buffer makes room first."""
        ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...


class Buffer(SampledBuffer, FilledBuffer, Protocol):
    """A store of rows on the device, which are sampled by index; `engine.buffers.BaseBuffer` has the defaults."""
