"""Gymnasium vector environments, whose three ways of resetting themselves are turned into one form."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from minding.engine.errors import CheckpointError, ConfigError, EnvError
from minding.engine.types import Array, Obs, StateDict, is_savable
from minding.envs.backends.finals import final_infos, final_observations
from minding.envs.backends.group import episode_seed
from minding.envs.backends.source import Source, SourceStep
from minding.envs.guards.answers import InterfaceError, as_flags, reset_answer, step_answer
from minding.envs.guards.faults import FaultStreak, Hang, close_env, describe
from minding.envs.guards.values import ValueCheck, as_rewards
from minding.envs.guards.watchdog import Activity, Watch
from minding.envs.spaces.info import InfoForm, Masks
from minding.envs.spaces.layout import ObsLayout

_log = logging.getLogger("minding.envs")
_NATIVE_STATE = {"CartPoleVectorEnv": ("state", "steps", "prev_done")}
"""`native_state` of Gymnasium's vector environments, which do not define it themselves."""


class VectorSource(Source):
    """Adapts a Gymnasium vector environment.

    - NEXT_STEP: the step after an end only resets; its row is marked invalid.
    - SAME_STEP: the final observation is taken from ``info['final_obs']``, see `envs.backends.finals`.
    - DISABLED: ended environments are reset here, with a ``reset_mask``.

    A vector environment derives its own seeds: it gets one seed per reset, which follows from the run's seed. After a
    fault, `restart` resets all of its environments, because they cannot be reset one by one; all rows of that step are
    invalid. A fault in a reset or in `FaultStreak.limit` steps in a row, and an answer of the wrong form, are errors in
    any case.

    A vector environment resumes exactly if its `native_state` names the attributes that, together with its random
    generator, are its whole state.

    Args:
      step_timeout: time limit of one call in seconds.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        name: str,
        seed: int,
        *,
        restart: bool,
        step_timeout: float,
        form: InfoForm | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.num_envs = int(env.num_envs)
        self._form = form
        self._masks = Masks(env) if form is not None and form.masked else None
        space = env.single_observation_space
        joined = space if form is None else form.space(space, env.single_action_space)
        self.layout = ObsLayout(joined, env.single_action_space)
        self._values = ValueCheck(self.layout)
        self._rewards = (self.num_envs, *self.layout.reward_shape)
        self._env = env
        self._seed = seed
        self._resets = 0
        self._restart = restart
        mode = env.metadata.get("autoreset_mode")
        self._finish = self._finisher(mode)
        # Whether a step returns the last observation of an episode, and not the first of the next.
        self._shows_ends = mode != AutoresetMode.SAME_STEP
        self._done = np.zeros(self.num_envs, bool)
        raw = env.unwrapped
        self._native = getattr(raw, "native_state", _NATIVE_STATE.get(type(raw).__name__, ()))
        self._streak = FaultStreak()
        self._activity = Activity()
        self._watch = Watch(self._activity, self._who, step_timeout)
        self._closed = False
        if not self._native:
            self.resume_guarantee = "episode-boundary"

    def reset(self, seed: int | None) -> Obs:
        if seed is not None:
            self._seed, self._resets = seed, 0
        try:
            with self._activity.during("reset"):
                obs, info = reset_answer(self._env.reset(seed=episode_seed(self._seed, 0, self._resets)))
            leaves = self._split(obs, info, reset=True)
            self._check_values(leaves, np.zeros(self._rewards))
        except (Exception, Hang) as error:
            raise EnvError(self._message(f"failed in reset: {describe(error)}")) from error
        if self._resets == 0:
            self._check_native_state()
        self._resets += 1
        self._done.fill(False)
        return self._act_on(leaves)

    def _check_native_state(self) -> None:
        """Refuses a `native_state` that cannot be part of a checkpoint."""
        for name in self._native:
            value = getattr(self._env.unwrapped, name, None)
            if not is_savable(np.asarray(value).dtype):
                raise EnvError(
                    self._message(
                        f"its native_state names {name!r}, which is a {type(value).__name__} of dtype "
                        f"{np.asarray(value).dtype} after a reset: expected numbers, or an array of numbers or bools"
                    )
                )

    def step(self, actions: Array) -> SourceStep:
        self._streak.step += 1
        self._activity.begin("step")
        try:
            obs, reward, terminated, truncated, info = step_answer(self._env.step(actions))
            given = as_rewards(reward, self._rewards)
            leaves = self._split(obs, info)
            terminated = as_flags(terminated, "terminated", self.num_envs)
            truncated = as_flags(truncated, "truncated", self.num_envs)
            self._check_values(leaves, given, terminated if self._shows_ends else None)
            reward = given.astype(np.float32)
            return self._finish(leaves, reward, terminated, truncated, info)
        except InterfaceError as error:
            raise InterfaceError(self._message(str(error))) from error
        except (EnvError, Hang) as error:
            return self._fault(str(error), error)
        except (Exception, SystemExit) as error:
            return self._fault(f"raised {describe(error)}", error)
        finally:
            self._activity.end()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with self._activity.during("close"):
                close_env(self._env, self._who())
            self._watch.close()

    def state_dict(self) -> StateDict:
        state: StateDict = {"seed": self._seed, "resets": self._resets, "num_envs": self.num_envs}
        if self._native and self._obs_leaves:
            raw = self._env.unwrapped
            state["native"] = {name: np.copy(getattr(raw, name)) for name in self._native}
            state["generator"] = raw.np_random.bit_generator.state
            state["done"] = self._done.copy()
            state["obs"] = {str(i): leaf.copy() for i, leaf in enumerate(self._obs_leaves)}
        return state

    def load_state_dict(self, state: StateDict) -> tuple[Obs | None, list[int]]:
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"environment state: expected {self.num_envs} environments, got {state['num_envs']}; "
                "resume with the number of environments of the checkpoint"
            )
        self._seed, self._resets = int(state["seed"]), int(state["resets"])
        if "native" not in state:
            self.abandon()
            return None, list(range(self.num_envs))
        # A reset gives a fresh environment the attributes that are replaced below.
        self.reset(None)
        self._resets = int(state["resets"])
        raw = self._env.unwrapped
        for name in self._native:
            setattr(raw, name, np.array(state["native"][name]))
        raw.np_random.bit_generator.state = state["generator"]
        self._done = np.array(state["done"])
        return self._act_on([np.array(state["obs"][str(i)]) for i in range(len(self.layout.leaves))]), []

    def _finisher(self, mode: Any) -> Callable[..., SourceStep]:
        finishers = {
            AutoresetMode.NEXT_STEP: self._finish_next_step,
            AutoresetMode.SAME_STEP: self._finish_same_step,
            AutoresetMode.DISABLED: self._finish_disabled,
        }
        if mode not in finishers:
            raise ConfigError(
                f"{self.name}: metadata['autoreset_mode'] is {mode!r}; expected a member of "
                "gymnasium.vector.AutoresetMode, without which ends and resets cannot be told apart"
            )
        return finishers[mode]

    def _finish_next_step(
        self, leaves: list[Array], reward: Array, terminated: Array, truncated: Array, info: Any
    ) -> SourceStep:
        valid = None
        if np.count_nonzero(self._done):
            valid = ~self._done
            reward *= valid.reshape(-1, *[1] * (reward.ndim - 1))
            terminated &= valid
            truncated &= valid
        self._done = terminated | truncated
        truncated &= ~terminated
        obs, declared = self._act_on(leaves), self.layout.info(leaves)
        if valid is not None and declared is not None:
            for values in declared.values():
                values[~valid] = 0
        return SourceStep(obs, obs, reward, terminated, truncated, valid, declared)

    def _finish_same_step(
        self, leaves: list[Array], reward: Array, terminated: Array, truncated: Array, info: Any
    ) -> SourceStep:
        done = terminated | truncated
        truncated &= ~terminated
        obs = self._act_on(leaves)
        if not np.count_nonzero(done):
            return SourceStep(obs, obs, reward, terminated, truncated, None, self.layout.info(leaves))
        next_leaves = [leaf.copy() for leaf in leaves]
        finals = final_observations(info, done, self._env.single_observation_space)
        if self._form is not None:
            rows = zip(finals, final_infos(info, done, self._form), terminated[done])
            finals = [self._form.join(final, entries, over=bool(over)) for final, entries, over in rows]
        for row, final in zip(np.flatnonzero(done).tolist(), finals):
            self.layout.write(next_leaves, row, final)
        self._check_values(next_leaves, reward, terminated)
        next_obs, shown = self.layout.unflatten(next_leaves), self.layout.info(next_leaves)
        return SourceStep(obs, next_obs, reward, terminated, truncated, None, shown)

    def _finish_disabled(
        self, leaves: list[Array], reward: Array, terminated: Array, truncated: Array, info: Any
    ) -> SourceStep:
        done = terminated | truncated
        truncated &= ~terminated
        next_obs, declared = self._act_on(leaves), self.layout.info(leaves)
        if not np.count_nonzero(done):
            return SourceStep(next_obs, next_obs, reward, terminated, truncated, None, declared)
        first = self._split(*reset_answer(self._env.reset(options={"reset_mask": done})), reset=True)
        if self._form is not None:
            # The info is that of the reset environments only.
            for leaf, before in zip(first, leaves):
                leaf[~done] = before[~done]
        self._check_values(first, reward)
        return SourceStep(self._act_on(first), next_obs, reward, terminated, truncated, None, declared)

    def _fault(self, what: str, cause: BaseException) -> SourceStep:
        message = self._message(what)
        if not self._restart:
            raise EnvError(message) from cause
        if self._streak.is_broken(self.name):
            raise EnvError(f"{message}; it failed in {self._streak.limit} steps in a row") from cause
        self.report([f"{message}; all of them begin new episodes"])
        obs = self.reset(None)
        none = np.zeros(self.num_envs, bool)
        declared = self.layout.info(self._obs_leaves)
        return SourceStep(obs, obs, np.zeros(self._rewards, np.float32), none, none.copy(), none.copy(), declared)

    def _split(self, obs: Any, info: Any, *, reset: bool = False) -> list[Array]:
        """The leaves of a batch of observations and of the declared info; ShapeError if they do not fit."""
        if self._form is not None:
            info = info if self._masks is None else self._masks(info)
            obs = self._form.join_batch(obs, info, self.num_envs, reset=reset)
        return self.layout.split(obs, self.num_envs)

    def _check_values(self, leaves: list[Array], reward: Array, over: Array | None = None) -> None:
        """Raises EnvError unless all values are numbers that fit; `over` marks the last rows of terminated episodes."""
        if self._values.fits(leaves, reward, over):
            return
        for row, what in self._values.bad_rows(leaves, reward, over):
            raise EnvError(f"environment {self.first + row}, step {self.lengths[row] + 1} of its episode: {what}")
        for row, what in self._values.rounded(leaves):
            _log.warning("%s", self._message(f"environment {self.first + row}: {what}"))

    def _message(self, what: str) -> str:
        return f"{self._who()}: {what}"

    def _who(self) -> str:
        return f"{self.name} ({self.num_envs} environments)"

    def _act_on(self, leaves: list[Array]) -> Obs:
        self._obs_leaves = leaves
        return self.layout.unflatten(leaves)
