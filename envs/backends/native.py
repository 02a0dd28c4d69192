"""The vector version that an environment comes with, and that of Atari games in ale-py.

The latter runs preprocessing and all games in compiled threads; its observations equal those of the wrapper `atari`,
pixel by pixel.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from minding.engine.errors import ConfigError
from minding.engine.process.packages import import_installed
from minding.engine.types import Array
from minding.envs.guards import open_envs
from minding.envs.guards.faults import START_TIMEOUT, Hang, describe
from minding.envs.guards.watchdog import watched
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.info import sample_action

_ENTRY = "ale_py.env:AtariEnv"
# Names of the wrapper's arguments in ale-py.
_NAMES = {"frame_skip": "frameskip", "noop_max": "noop_max", "stack": "stack_num"}
_GAME = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")


def atari_options(factory: EnvFactory) -> dict[str, Any] | None:
    """Arguments with which ale-py's vector version plays the game of a factory; None if it cannot. It can if the only
    wrappers are `atari`, with gray square images, and `episodic_life`."""
    spec = factory.source
    names = [entry if isinstance(entry, str) else next(iter(entry)) for entry in factory.wrappers]
    if not isinstance(spec, EnvSpec) or spec.entry_point != _ENTRY or names[:1] != ["atari"]:
        return None
    given = {**spec.kwargs, **factory.kwargs}
    first = factory.wrappers[0]
    wrapper: Mapping[str, Any] = {} if isinstance(first, str) else dict(first["atari"] or {})
    unknown = set(given) - {*_GAME, "frameskip"} or set(wrapper) - {*_NAMES, "screen_size"}
    if names[1:] not in ([], ["episodic_life"]) or unknown or given.get("frameskip") != 1:
        return None
    size = wrapper.get("screen_size", 84)
    if not isinstance(size, int):
        return None
    options = {key: given[key] for key in _GAME if key in given}
    options |= {_NAMES[key]: value for key, value in wrapper.items() if key in _NAMES}
    if factory.max_episode_steps is not None:
        # The limit of a single game counts frames, because it is applied below the wrapper.
        options["max_num_frames_per_episode"] = factory.max_episode_steps
    options |= {"img_height": size, "img_width": size, "episodic_life": len(names) > 1}
    return {**options, "reward_clipping": False, "use_fire_reset": False}


def atari_env(options: Mapping[str, Any], num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Makes the games of `atari_options`."""
    import_installed("ale_py")
    from ale_py.vector_env import AtariVectorEnv

    return FirstFrames(AtariVectorEnv(num_envs=num_envs, **options))


class FirstFrames(VectorWrapper):  # type: ignore[misc]
    """Fills the missing frames of stacks at the start of an episode with its first frame, as `frame_stack` does.

    Args:
      env: environments whose observations are stacks ``(N, S, H, W)`` that begin with black frames, and that reset in
        the step after an end.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._stack = env.single_observation_space.shape[0]
        self._age = np.zeros(env.num_envs, np.int64)
        self._done = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._age[:], self._done[:] = 0, False
        return self._filled(obs), info

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._age = np.where(self._done, 0, self._age + 1)
        self._done = terminated | truncated
        return self._filled(obs), reward, terminated, truncated, info

    def _filled(self, obs: Array) -> Array:
        young = np.flatnonzero(self._age < self._stack - 1)
        if len(young):
            obs = obs.copy()
        for row in young:
            first = self._stack - 1 - self._age[row]
            # After the loss of a life the game continues, and with it the frames.
            if not obs[row, :first].any():
                obs[row, :first] = obs[row, first]
        return obs


_TRIES = 5


def native_env(factory: EnvFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
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
    """A MultiDiscrete space that answers `contains` in a fifth of the time, which some environments ask in
    every step."""

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
