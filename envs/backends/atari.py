"""The vector version of Atari games in ale-py: preprocessing and all games in compiled threads.

Its observations equal those of the wrapper `atari`, pixel by pixel.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from minding.engine.process.packages import import_installed
from minding.engine.types import Array
from minding.envs.single.factory import EnvFactory

_ENTRY = "ale_py.env:AtariEnv"
# Names of the wrapper's arguments in ale-py.
_NAMES = {"frame_skip": "frameskip", "noop_max": "noop_max", "stack": "stack_num"}
_GAME = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")


def atari_options(factory: EnvFactory) -> dict[str, Any] | None:
    """Arguments with which ale-py's vector version plays the game of a factory; None if it cannot.

    It can if the only wrappers are `atari`, with gray square images, and `episodic_life`.
    """
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


class FirstFrames(VectorWrapper[Any, Any, Any]):  # type: ignore[misc]
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
