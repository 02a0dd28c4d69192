"""The interface of backends, the shared parts of loop and worker backends, and the loop.

The actions of running episodes are kept: environments are restored from them exactly.
"""

import abc
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from minding.engine.console import Throttle
from minding.engine.data.actions import ActionAdapter
from minding.engine.errors import CheckpointError, EnvError
from minding.engine.types import Array, Obs, StateDict
from minding.envs.backends.group import EnvGroup, StepArrays
from minding.envs.guards.watchdog import Watch
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.layout import ObsLayout

_INITIAL_STEPS = 512


class ActionLog:
    """Batches of actions since the oldest running episode began; one array write per step.

    Args:
      shape: shape of one batch, ``(N, ...)``.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, max_steps: int = 100_000) -> None:
        self._rows: Array = np.empty((min(_INITIAL_STEPS, max_steps), *shape), dtype)
        self._end = 0
        self._max_steps = max_steps
        # Index in the log at which each environment's episode began; negative once its start was dropped.
        self._start = np.zeros(shape[0], np.int64)

    def append(self, actions: Array) -> None:
        """Records one batch ``(N, ...)``."""
        if self._end == len(self._rows):
            self._make_room()
        self._rows[self._end] = actions
        self._end += 1

    def begin(self, envs: Any) -> None:
        """Records that a new episode begins in `envs` (an index, an index array, a mask or a slice)."""
        self._start[envs] = self._end

    def actions(self, env: int) -> Array | None:
        """Actions ``(steps, ...)`` of the running episode; None if it is too long to be kept whole."""
        start = int(self._start[env])
        return None if start < 0 else self._rows[start : self._end, env].copy()

    def restore(self, episodes: Sequence[Sequence[Any]]) -> None:
        """Replaces the log by the actions of each environment's running episode so far."""
        self._end = max(len(actions) for actions in episodes)
        rows = np.zeros((max(self._end, _INITIAL_STEPS), *self._rows.shape[1:]), self._rows.dtype)
        for env, actions in enumerate(episodes):
            self._start[env] = self._end - len(actions)
            if len(actions):
                rows[self._start[env] : self._end, env] = actions
        self._rows = rows

    def _make_room(self) -> None:
        """Drops actions that no running episode needs; if too few, grows, or at the limit drops the oldest half."""
        size = len(self._rows)
        dropped = max(int(self._start.min()), 0)
        if dropped < size // 2 and size >= self._max_steps:
            dropped = size // 2
        if dropped < size // 2:
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])[: self._max_steps]
            return
        self._rows[: size - dropped] = self._rows[dropped:].copy()
        self._end -= dropped
        self._start -= dropped


_log = logging.getLogger("minding.envs")


class SourceStep(NamedTuple):
    """The answer of a source, in the form of `EnvStep` before rewards are scaled and episodes counted."""

    obs: Obs
    next_obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array | None
    info: dict[str, Array] | None = None


class Source(abc.ABC):
    """N environments that step together.

    Attributes:
      lengths: int64 ``(N,)``, steps of the running episodes so far; the manager counts them, and messages use them.
    """

    num_envs: int
    layout: ObsLayout
    lengths: Array
    name: str
    first: int = 0
    fault_count: int = 0
    resume_guarantee: str = "exact"
    worker_pids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._warnings = Throttle()
        # Leaves of the observation to act on; empty before the first reset.
        self._obs_leaves: list[Array] = []

    @abc.abstractmethod
    def reset(self, seed: int | None) -> Obs:
        """Begins a new episode everywhere; with `seed`, from the start of that seed's stream."""

    @abc.abstractmethod
    def step(self, actions: Array) -> SourceStep:
        """Steps with environment actions (see `ActionAdapter`)."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases everything; a second call does nothing."""

    @abc.abstractmethod
    def state_dict(self) -> StateDict:
        """The state that `load_state_dict` restores."""

    @abc.abstractmethod
    def load_state_dict(self, state: StateDict) -> tuple[Obs | None, list[int]]:
        """Restores the state; returns the observation to act on, and the environments that have to begin new episodes.
        The observation is None if no episode was running, or none can be restored: a reset must follow."""

    def abandon(self) -> None:
        """Abandons the running episodes: `state_dict` leaves them out, and a reset must follow."""
        self._obs_leaves = []

    def report(self, faults: Sequence[str]) -> None:
        """Counts faults that were survived, and warns about the last fault at most every 30 s."""
        self.fault_count += len(faults)
        if faults and self._warnings.due():
            _log.warning("restarted after a fault (%d so far): %s", self.fault_count, faults[-1])


class EpisodeSource(Source):
    """A source of single environments: an episode is identified by its seed, and replayed from seed and actions.

    Subclasses move the data between `arrays` and the environments.
    """

    def __init__(
        self, name: str, layout: ObsLayout, arrays: StepArrays, adapter: ActionAdapter, seed: int, replays: bool = True
    ) -> None:
        super().__init__()
        self._is_replayed = replays
        if not replays:
            self.resume_guarantee = "episode-boundary"
        self.name = name
        self.num_envs = len(arrays.reward)
        self.seed = seed
        self.layout = layout
        self.arrays = arrays
        self._actions = ActionLog((self.num_envs, *adapter.row_shape), adapter.dtype)

    @abc.abstractmethod
    def _reset_envs(self) -> list[str]:
        """Begins a new episode everywhere, seeded from `self.seed`; returns the faults survived."""

    @abc.abstractmethod
    def _step_envs(self, actions: Array) -> tuple[list[Array], list[str]]:
        """Steps all environments; returns `next_obs` leaves that are never overwritten, and the faults survived."""

    @abc.abstractmethod
    def _replay_env(self, row: int, actions: Array) -> None:
        """Replays episode ``arrays.episode[row]`` and writes ``arrays.first_obs[row]``; EnvError if that fails."""

    @abc.abstractmethod
    def _begin_env(self, row: int) -> None:
        """Begins the next episode of one environment."""

    def reset(self, seed: int | None) -> Obs:
        if seed is not None:
            self.seed = seed
            self.arrays.episode.fill(-1)
        self.report(self._reset_envs())
        self._actions.begin(slice(None))
        return self._act_on([leaf.copy() for leaf in self.arrays.first_obs])

    def step(self, actions: Array) -> SourceStep:
        self._actions.append(actions)
        next_leaves, faults = self._step_envs(actions)
        if faults:
            self.report(faults)
        arrays = self.arrays
        terminated, truncated = arrays.terminated.copy(), arrays.truncated.copy()
        reward = arrays.reward.astype(np.float32)
        begun = terminated | truncated | ~arrays.valid
        if not np.count_nonzero(begun):
            obs = self._act_on(next_leaves)
            return SourceStep(obs, obs, reward, terminated, truncated, None, self.layout.info(next_leaves))
        self._actions.begin(begun)
        leaves = [leaf.copy() for leaf in next_leaves]
        for leaf, first in zip(leaves, arrays.first_obs):
            leaf[begun] = first[begun]
        valid = None if arrays.valid.all() else arrays.valid.copy()
        next_obs, info = self.layout.unflatten(next_leaves), self.layout.info(next_leaves)
        return SourceStep(self._act_on(leaves), next_obs, reward, terminated, truncated, valid, info)

    def state_dict(self) -> StateDict:
        running = range(self.num_envs if self._obs_leaves and self._is_replayed else 0)
        actions = {str(env): self._actions.actions(env) for env in running}
        return {
            "seed": self.seed,
            "episode": self.arrays.episode.copy(),
            "actions": {env: row for env, row in actions.items() if row is not None},
            "obs": {str(i): leaf.copy() for i, leaf in enumerate(self._obs_leaves)},
        }

    def load_state_dict(self, state: StateDict) -> tuple[Obs | None, list[int]]:
        if len(state["episode"]) != self.num_envs:
            raise CheckpointError(
                f"environment state: expected {self.num_envs} environments, got {len(state['episode'])}; "
                "resume with the number of environments of the checkpoint"
            )
        self.seed = int(state["seed"])
        self.arrays.episode[:] = state["episode"]
        saved = [np.asarray(state["obs"][str(i)]) for i in range(len(state["obs"]))]
        if not saved:
            self.abandon()
            return None, []
        restarted: list[int] = []
        replayed: list[Sequence[Any]] = []
        for env in range(self.num_envs):
            actions = state["actions"].get(str(env))
            if actions is not None and self._replays(env, np.asarray(actions), saved):
                replayed.append(actions)
                continue
            self._begin_env(env)
            restarted.append(env)
            replayed.append([])
        self._actions.restore(replayed)
        self._note_guarantee(restarted)
        return self._act_on([leaf.copy() for leaf in self.arrays.first_obs]), restarted

    def _replays(self, env: int, actions: Array, saved: Sequence[Array]) -> bool:
        """Whether replaying leads to the saved observation, bit by bit."""
        try:
            self._replay_env(env, actions)
        except EnvError as error:
            _log.warning("%s", error)
            return False
        return all(np.array_equal(leaf[env], old[env]) for leaf, old in zip(self.arrays.first_obs, saved))

    def _note_guarantee(self, restarted: Sequence[int]) -> None:
        self.resume_guarantee = "episode-boundary" if restarted else "exact"
        if restarted and not self._is_replayed:
            _log.warning("%s begins a new episode: with env.single_instance=true none is replayed", self.name)
        elif restarted:
            _log.warning(
                "%s: %d of %d environments cannot be replayed exactly from seed and actions; they begin new episodes",
                self.name,
                len(restarted),
                self.num_envs,
            )

    def _act_on(self, leaves: list[Array]) -> Obs:
        self._obs_leaves = leaves
        return self.layout.unflatten(leaves)


class LocalSource(EpisodeSource):
    """The sync backend: any Gymnasium environments, in a loop."""

    def __init__(
        self, factory: EnvFactory, layout: ObsLayout, adapter: ActionAdapter, num_envs: int, seed: int, restart: bool
    ) -> None:
        arrays = StepArrays.allocate(layout, num_envs)
        super().__init__(factory.name, layout, arrays, adapter, seed, replays=not factory.single_instance)
        self.first = factory.first
        self._group = EnvGroup(factory, factory.name, range(self.num_envs), layout, arrays, restart, factory.first)
        self._watch = Watch(self._group.activity, self._who, factory.step_timeout)
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._group.close()
            self._watch.close()

    def _reset_envs(self) -> list[str]:
        self._group.seed = self.seed
        self._group.reset()
        return self._faults()

    def _step_envs(self, actions: Array) -> tuple[list[Array], list[str]]:
        # With fresh memory in each step, arrays that were returned are never overwritten, and no copy is needed.
        self.arrays.next_obs = self.layout.allocate(self.num_envs)
        self._group.step(actions)
        return self.arrays.next_obs, self._faults() if self._group.faults else []

    def _replay_env(self, row: int, actions: Array) -> None:
        self._group.seed = self.seed
        self._group.replay(row, actions)

    def _begin_env(self, row: int) -> None:
        self._group.seed = self.seed
        self._group.begin(row)

    def _who(self) -> str:
        return self._group.who(int(self.arrays.running[0]))

    def _faults(self) -> list[str]:
        faults, self._group.faults = self._group.faults, []
        return faults
