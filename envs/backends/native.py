"""The vector version that an environment comes with."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from minding.engine.errors import ConfigError
from minding.envs.backends.atari import atari_env, atari_options
from minding.envs.guards import open_envs
from minding.envs.guards.faults import START_TIMEOUT, Hang, describe
from minding.envs.guards.watchdog import watched
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.info import sample_action

_TRIES = 5


def native_env(factory: EnvFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Creates the vector version."""
    if factory.native is None:
        return atari_env(atari_options(factory) or {}, num_envs)
    limit = factory.max_episode_steps
    return _make(factory, num_envs, {} if limit is None else {"max_episode_steps": limit})


def native_objection(factory: EnvFactory) -> str:
    """Why the vector version behaves differently from single environments; empty if it does not.

    A vector version of several agents may not accept all keyword arguments, so one is made as a test. Time limits of
    single environments are enforced by a wrapper. A vector version has to enforce its limit itself, and some accept
    `max_episode_steps` and ignore it, so this is tested once, with a limit of one step.
    """
    spec = factory.native
    assert spec is not None
    failed = "cannot be made"
    try:
        with watched("__init__", factory.name, max(factory.step_timeout, START_TIMEOUT)):
            if not isinstance(spec, EnvSpec):
                factory.close(_make(factory, 1, {}))
            if factory.max_episode_steps is None and getattr(spec, "max_episode_steps", None) is None:
                return ""
            failed = "does not take the time limit"
            return "" if _keeps_limit(factory) else "its vector version ignores the time limit (max_episode_steps)"
    except (Exception, Hang) as error:
        return f"its vector version {failed}: {describe(error)}"


def _keeps_limit(factory: EnvFactory) -> bool:
    env = _make(factory, 1, {"max_episode_steps": 1})
    env.action_space.seed(0)
    try:
        for seed in range(_TRIES):
            obs, info = env.reset(seed=seed)
            _, _, terminated, truncated, _ = env.step(sample_action(env, obs, info, np.random.default_rng(seed)))
            if truncated[0] or not terminated[0]:
                return bool(truncated[0])
        return True  # every episode has one step
    finally:
        factory.close(env)


def _make(factory: EnvFactory, num_envs: int, limit: dict[str, int]) -> VectorEnv[Any, Any, Any]:
    kwargs = {**factory.kwargs, **limit}
    if not isinstance(factory.native, EnvSpec):
        assert factory.native is not None
        asked = {"global_state": factory.global_state, "team_reward": factory.team_reward}
        given: Any = factory.native(num_envs=num_envs, **asked, **kwargs)
        if not open_envs.is_new(given):
            raise ConfigError(
                f"{factory.name}.vector_env returned the same environments as before: training makes several, each "
                "with episodes of their own: make new ones in each call"
            )
        return given  # type: ignore[no-any-return]
    env = gymnasium.make_vec(factory.native, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    raw = env.unwrapped
    space = vars(raw).get("action_space")
    if type(space) is spaces.MultiDiscrete:
        raw.action_space = QuickMultiDiscrete(space)
    return env


class QuickMultiDiscrete(spaces.MultiDiscrete):
    """A MultiDiscrete space that answers `contains` in a fifth of the time, which some environments ask in every step.

    Args:
      space: the space that it equals.
    """

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__(space.nvec, space.dtype.type, start=space.start)
        self._shifted = bool(self.start.any())
        self._unsigned = np.dtype(f"u{self.dtype.itemsize}")
        self._counts = self.nvec.astype(self._unsigned)

    def contains(self, x: Any) -> bool:
        if type(x) is not np.ndarray or x.dtype != self.dtype or x.shape != self._shape:
            return super().contains(x)
        offset = x - self.start if self._shifted else x
        # Read as unsigned, negative numbers are large.
        return bool((offset.view(self._unsigned) < self._counts).all())
