"""A group of single environments that step one after the other, in this process or in a worker."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

import numpy as np

from minding.engine.errors import EnvError, MindingError
from minding.engine.types import Array
from minding.envs.guards.answers import FLAGS, InterfaceError, as_flag, reset_answer, step_answer
from minding.envs.guards.faults import FaultStreak, Hang, close_env, describe
from minding.envs.guards.values import PLAIN, ValueCheck, step_reward
from minding.envs.guards.watchdog import Activity
from minding.envs.single.shared_instance import Taken
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.layout import ObsLayout

_log = logging.getLogger("minding.envs")
# An environment whose reset fails this often in a row is broken for good.
_MAX_ATTEMPTS = 3


@dataclasses.dataclass
class StepArrays:
    """The arrays into which a group writes, one row per environment.

    Attributes:
      reward: float64 ``(N,)``, with several agents ``(N, M)``.
      terminated: bool ``(N,)``.
      truncated: bool ``(N,)``, never true together with `terminated`.
      valid: bool ``(N,)``, False where a fault restarted the environment.
      episode: int64 ``(N,)``, number of the running episode; -1 before the first.
      running: int64 ``(1,)``, row of the environment that is running, so that messages can name it if it hangs.
    """

    next_obs: list[Array]
    first_obs: list[Array]
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    episode: Array
    running: Array

    @classmethod
    def allocate(cls, layout: ObsLayout, num_envs: int) -> StepArrays:
        return cls(
            next_obs=layout.allocate(num_envs),
            first_obs=layout.allocate(num_envs),
            reward=np.zeros((num_envs, *layout.reward_shape)),
            terminated=np.zeros(num_envs, bool),
            truncated=np.zeros(num_envs, bool),
            valid=np.ones(num_envs, bool),
            episode=np.full(num_envs, -1, np.int64),
            running=np.zeros(1, np.int64),
        )

    def rows(self, part: slice, running: Array) -> StepArrays:
        """Views of the rows in `part`, with their own `running`."""
        return StepArrays(
            next_obs=[array[part] for array in self.next_obs],
            first_obs=[array[part] for array in self.first_obs],
            reward=self.reward[part],
            terminated=self.terminated[part],
            truncated=self.truncated[part],
            valid=self.valid[part],
            episode=self.episode[part],
            running=running,
        )


def episode_seed(seed: int, env_id: int, episode: int) -> int:
    """Reset seed of one episode: a pure function of run seed, environment and episode number. It has no state: it stays
    the same after restarts of environments and worker processes, and a checkpoint needs no generator for it."""
    return int(np.random.SeedSequence((seed, env_id, episode)).generate_state(1)[0] >> 1)


class EnvGroup:
    """Steps environments one by one into `StepArrays`, resets those whose episode ended, and handles their
    faults."""

    def __init__(
        self,
        make_env: Callable[[], AnyEnv],
        name: str,
        env_ids: Sequence[int],
        layout: ObsLayout,
        arrays: StepArrays,
        restart: bool,
        first: int = 0,
    ) -> None:
        self.arrays = arrays
        self.activity = Activity(arrays.running)
        self.seed = 0
        self.faults: list[str] = []
        self._make_env = make_env
        self._name = name
        self._env_ids, self._first = env_ids, first
        self._layout = layout
        self._values = ValueCheck(layout)
        self._restart = restart
        self._elapsed = np.zeros(len(env_ids), np.int64)
        self._streak = FaultStreak()
        self._envs: list[AnyEnv] = []
        try:
            for _ in env_ids:
                self._envs.append(make_env())
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        """Begins a new episode in every environment; first observations go to `arrays.first_obs`."""
        for row in range(len(self._envs)):
            self.begin(row)

    def step(self, actions: Array) -> None:
        """Steps every environment with its row of `actions` and begins new episodes where one ended."""
        self.activity.begin("step")
        try:
            for row in self._step_all(actions):
                if self.arrays.valid[row]:
                    self.begin(row)
        finally:
            self.activity.end()

    def _step_all(self, actions: Array) -> list[int]:
        """Steps every environment; returns the rows whose episode ended."""
        arrays = self.arrays
        next_obs, write = arrays.next_obs, self._layout.write
        arrays.valid.fill(True)
        self._streak.step += 1
        over: list[int] = []
        for row, env in enumerate(self._envs):
            arrays.running[0] = row
            try:
                answer = env.step(actions[row])
                if type(answer) is not tuple or len(answer) != 5:
                    answer = step_answer(answer)
                obs, reward, terminated, truncated, _ = answer
                write(next_obs, row, obs)
                arrays.reward[row] = reward if type(reward) in PLAIN else step_reward(reward, self._layout.reward_shape)
                if type(terminated) not in FLAGS or type(truncated) not in FLAGS:
                    terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
                arrays.terminated[row] = terminated
                arrays.truncated[row] = truncated and not terminated
                if terminated or truncated:
                    over.append(row)
            except Taken:
                self._restart_row(row)
            except InterfaceError as error:
                raise InterfaceError(self._message(row, str(error))) from error
            except (EnvError, Hang) as error:
                self._fault(row, str(error), error)
            except (Exception, SystemExit) as error:
                self._fault(row, f"raised {describe(error)}", error)
        if not self._values.fits(next_obs, arrays.reward, arrays.terminated):
            self._judge(next_obs)
        self._elapsed += 1
        return over

    def _judge(self, next_obs: list[Array]) -> None:
        """Handles values of a step that cannot be used, and warns about values that float32 rounds."""
        for row, what in self._values.bad_rows(next_obs, self.arrays.reward, self.arrays.terminated):
            if self.arrays.valid[row]:
                self._fault(row, what)
        for row, what in self._values.rounded(next_obs):
            _log.warning("%s", self._message(row, what))

    def replay(self, row: int, actions: Array) -> None:
        """Restores an environment to the state of its episode `arrays.episode[row]` after `actions`. The last
        observation is written to `arrays.first_obs`."""
        first_obs = self.arrays.first_obs
        try:
            self._reset(row)
            for action in actions:
                with self.activity.during("step"):
                    obs, _, terminated, truncated, _ = self._envs[row].step(action)
                if terminated or truncated:
                    raise EnvError(f"{self._numbered(row)}: its episode ended while it was replayed")
                self._layout.write(first_obs, row, obs)
        except (Exception, Hang) as error:
            raise EnvError(f"{self._numbered(row)}: replay failed: {describe(error)}") from error
        self._elapsed[row] = len(actions)

    def close(self) -> None:
        """Closes every environment, even if some of them fail to close."""
        for row in range(len(self._envs)):
            self._close_env(row)

    def begin(self, row: int) -> None:
        """Begins the next episode; with `restart`, in a new environment if the old one cannot."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            self.arrays.episode[row] += 1
            try:
                self._reset(row)
                return
            except (Exception, SystemExit, Hang) as error:
                self._elapsed[row] = 0
                message = f"{self._numbered(row)} ({self._name}): failed in reset: {describe(error)}"
                if not self._restart or attempt == _MAX_ATTEMPTS:
                    raise EnvError(message) from error
                self.faults.append(message)
                self._replace(row)

    def _reset(self, row: int) -> None:
        env_id, episode = self._env_ids[row], int(self.arrays.episode[row])
        self.arrays.running[0] = row
        with self.activity.during("reset"):
            obs, _ = reset_answer(self._envs[row].reset(seed=episode_seed(self.seed, env_id, episode)))
        first_obs = self.arrays.first_obs
        self._layout.write(first_obs, row, obs)
        written = [leaf[row : row + 1] for leaf in first_obs]
        if bad := self._values.bad_rows(written, np.zeros(1)):
            raise ValueError(bad[0][1])
        for _, what in self._values.rounded(written):
            _log.warning("%s", self._message(row, what))
        self._elapsed[row] = 0

    def _fault(self, row: int, what: str, cause: BaseException | None = None) -> None:
        """Reports a fault in a step; with `restart`, turns the row into the first one of a new episode."""
        message = self._message(row, what)
        if not self._restart:
            raise EnvError(message) from cause
        if self._streak.is_broken(row):
            raise EnvError(f"{message}; it failed in {self._streak.limit} steps in a row") from cause
        self.faults.append(message)
        if isinstance(cause, Hang):
            # The environment was interrupted in the middle of a call and may be in any state.
            self._replace(row)
        self._restart_row(row)

    def _restart_row(self, row: int) -> None:
        """Turns the row of this step into the first one of a new episode."""
        self.begin(row)
        arrays = self.arrays
        arrays.valid[row] = arrays.terminated[row] = arrays.truncated[row] = False
        arrays.reward[row] = 0.0
        for successor, first in zip(arrays.next_obs, arrays.first_obs):
            successor[row] = first[row]
        # The caller counts this step for all rows.
        self._elapsed[row] = -1

    def _replace(self, row: int) -> None:
        self._close_env(row)
        try:
            self._envs[row] = self._make_env()
        except MindingError as error:
            raise EnvError(self._message(row, f"a new one was needed: {error}")) from error

    def _close_env(self, row: int) -> None:
        self.arrays.running[0] = row
        with self.activity.during("close"):
            close_env(self._envs[row], f"{self._numbered(row)} ({self._name})")

    def who(self, row: int) -> str:
        """The environment and the step of its episode, for messages."""
        return f"{self._numbered(row)} ({self._name}), step {int(self._elapsed[row]) + 1} of its episode"

    def _numbered(self, row: int) -> str:
        return f"environment {self._first + self._env_ids[row]}"

    def _message(self, row: int, what: str) -> str:
        return f"{self.who(row)}: {what}"
