"""Wrappers that a configuration can name: ``[grayscale, {resize: {shape: [84, 84]}}, channel_first]``.

The convolutional encoder takes images channel-first, ``(C, H, W)``.
"""

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorActionWrapper, VectorEnv
from gymnasium.wrappers import (
    AddRenderObservation,
    AtariPreprocessing,
    FlattenObservation,
    GrayscaleObservation,
    ResizeObservation,
    TimeLimit,
    TransformObservation,
)

from minding.engine.config.options import short
from minding.engine.errors import ConfigError, SpaceError, nearest
from minding.engine.types import Array
from minding.envs.single.minigrid import MiniGrid
from minding.envs.single.rendering import reason_against
from minding.envs.spaces.actions import JoinedActions

AnyEnv: TypeAlias = "gymnasium.Env[Any, Any]"


_MOST_FRAMES, _MOST_PIXELS = 1000, 4096


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """The last `size` observations, oldest first, joined along the first axis.

    A vector ``(D,)`` becomes ``(size * D,)``, a gray image ``(H, W)`` becomes ``(size, H, W)``, a
    channel-first image ``(C, H, W)`` becomes ``(size * C, H, W)``. After a reset the first observation fills
    the stack.
    """

    def __init__(self, env: AnyEnv, size: int = 4) -> None:
        super().__init__(env)
        space = env.observation_space
        if not 1 <= size <= _MOST_FRAMES:
            raise ConfigError(f"frame_stack: size={size}: expected 1 to {_MOST_FRAMES} observations")
        if not isinstance(space, spaces.Box):
            raise SpaceError(f"frame_stack needs a Box observation, got {space}")
        # A gray image gets a channel axis to stack along.
        self._lift = len(space.shape) in (0, 2)
        self._frames: deque[Array] = deque(maxlen=size)
        low, high = (np.concatenate([self._frame(bound)] * size) for bound in (space.low, space.high))
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, Any]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._frames.extend([self._frame(obs)] * (self._frames.maxlen or 1))
        return np.concatenate(self._frames), info

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(self._frame(obs))
        return np.concatenate(self._frames), reward, terminated, truncated, info

    def _frame(self, obs: Any) -> Array:
        # A copy, because an environment may write the next image into the same array.
        frame = np.array(obs)
        return frame[None] if self._lift else frame


_IMAGES = (2, 3)
"""Possible numbers of dimensions of an image."""


def channel_first(env: AnyEnv) -> AnyEnv:
    """Turns images ``(H, W, C)`` into ``(C, H, W)`` and gray ones ``(H, W)`` into ``(1, H, W)``. In a Dict, and in
    nested Dicts, every uint8 image is turned, except images whose first axis already has at most 4 channels."""
    space = env.observation_space
    if isinstance(space, spaces.Box) and len(space.shape) in _IMAGES:
        return TransformObservation(env, _turn, _turned(space))
    turned = _turned_parts(space) if isinstance(space, spaces.Dict) else space
    if turned == space:
        raise SpaceError(f"channel_first needs an image (H, W, C) or (H, W), alone or in a Dict, got {space}")
    return TransformObservation(env, functools.partial(_turn_parts, space), turned)


def _is_turned(part: Any) -> bool:
    return (
        isinstance(part, spaces.Box)
        and part.dtype == np.uint8
        and len(part.shape) in _IMAGES
        and not (len(part.shape) == 3 and part.shape[0] <= 4 < part.shape[2])
    )


def _turned_parts(space: spaces.Dict) -> spaces.Dict:
    parts = {
        key: _turned_parts(part) if isinstance(part, spaces.Dict) else _turned(part) if _is_turned(part) else part
        for key, part in space.spaces.items()
    }
    return spaces.Dict(parts)


def _turn_parts(space: spaces.Dict, obs: dict[str, Any]) -> dict[str, Any]:
    return {
        **obs,
        **{
            key: _turn_parts(part, obs[key]) if isinstance(part, spaces.Dict) else _turn(obs[key])
            for key, part in space.spaces.items()
            if isinstance(part, spaces.Dict) or _is_turned(part)
        },
    }


def _turn(image: Array) -> Array:
    return np.moveaxis(image, -1, 0).copy() if image.ndim == 3 else image[None]


def _turned(space: Any) -> spaces.Box:
    return spaces.Box(_turn(space.low), _turn(space.high), dtype=space.dtype.type)


def atari(env: AnyEnv, stack: int = 4, **options: Any) -> AnyEnv:
    """Gray 84x84 frames, frame skip 4, up to 30 no-ops at reset, `stack` frames: uint8 ``(stack, 84, 84)``. The
    environment itself must not skip frames: ``env_kwargs: {frameskip: 1}``. `options` are passed to Gymnasium's
    AtariPreprocessing."""
    return FrameStack(AtariPreprocessing(env, **options), stack)


def pixels(env: AnyEnv) -> AnyEnv:
    """Replaces the observation by the image that the environment renders, uint8 ``(H, W, 3)``."""
    if env.render_mode != "rgb_array":
        raise ConfigError(f"env.wrappers: pixels needs env.env_kwargs.render_mode=rgb_array, got {env.render_mode!r}")
    if unable := reason_against(env):
        raise ConfigError(f"env.wrappers: pixels: {unable}")
    return AddRenderObservation(env, render_only=True)


class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Ends an episode with each life that is lost (Mnih et al., 2015, https://doi.org/10.1038/nature14236).

    The next episode continues the same game, after one step without an action; a reset begins a new game only if the
    last game is over. The number of lives is ``info['lives']``.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self._lives, self._continues = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._continues:
            obs, _, terminated, truncated, info = self.env.step(0)
            if not (terminated or truncated):
                self._continues, self._lives = False, _lives(info, self.env)
                return obs, info
        obs, info = self.env.reset(seed=seed, options=options)
        self._continues, self._lives = False, _lives(info, self.env)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(info, self.env)
        lost, self._lives = 0 < lives < self._lives, lives
        self._continues = lost and not (terminated or truncated)
        return obs, reward, lost or terminated, truncated, info


def _lives(info: Any, env: AnyEnv) -> int:
    if "lives" not in info:
        raise ConfigError(
            f"env.episodic_life=true and the wrapper episodic_life need info['lives'], as games of Atari give it, and "
            f"{env} gives none: leave them out"
        )
    return int(info["lives"])


def resize(env: AnyEnv, shape: Sequence[int] = (84, 84)) -> AnyEnv:
    """Resizes images to ``shape`` = (height, width); needs OpenCV."""
    height, width = shape
    if not 1 <= min(height, width) <= max(height, width) <= _MOST_PIXELS:
        raise ConfigError(f"resize: shape={list(shape)}: expected 1 to {_MOST_PIXELS} pixels in height and width")
    return ResizeObservation(env, (height, width))


def time_limit(env: AnyEnv, steps: int) -> AnyEnv:
    """Truncates episodes after `steps` steps of the environment below this wrapper."""
    return TimeLimit(env, steps)


WRAPPERS: dict[str, Callable[..., AnyEnv]] = {
    "atari": atari,
    "channel_first": channel_first,
    "episodic_life": EpisodicLife,
    "flatten": FlattenObservation,
    "frame_stack": FrameStack,
    "grayscale": GrayscaleObservation,
    "minigrid": MiniGrid,
    "pixels": pixels,
    "resize": resize,
    "time_limit": time_limit,
}


def wrap(env: AnyEnv, wrappers: Sequence[str | Mapping[str, Any]]) -> AnyEnv:
    """Puts the named wrappers around `env`, the first one innermost."""
    for position, entry in enumerate(wrappers):
        name, kwargs = _parse(entry, f"env.wrappers[{position}]")
        try:
            env = WRAPPERS[name](env, **kwargs)
        except TypeError as error:
            raise ConfigError(f"env.wrappers[{position}]={short(entry)}: {error}") from error
    return env


def _parse(entry: str | Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    name: Any = entry
    kwargs: Any = {}
    if isinstance(entry, Mapping) and len(entry) == 1:
        name, kwargs = next(iter(entry.items()))
    if not isinstance(name, str) or not isinstance(kwargs or {}, Mapping):
        raise ConfigError(f"{where}={short(entry)}: expected a name or {{name: {{argument: value}}}}")
    if name not in WRAPPERS:
        raise ConfigError(f"{where}={name!r}: unknown wrapper{nearest(name, WRAPPERS)}; known: {', '.join(WRAPPERS)}")
    return name, kwargs or {}


class JoinActions(gymnasium.ActionWrapper[Any, Any, Any]):  # type: ignore[misc]
    """Splits each row into the action that the environment takes; actions of its space pass unchanged."""

    action_space: JoinedActions

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.action_space = JoinedActions(env.action_space)

    def action(self, action: Any) -> Any:
        return self.action_space.codec.split(action) if isinstance(action, np.ndarray) else action


class JoinVectorActions(VectorActionWrapper):  # type: ignore[misc]
    """Splits each batch of rows into the actions that a vector environment takes."""

    action_space: JoinedActions

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.single_action_space = JoinedActions(env.single_action_space)
        self.action_space = JoinedActions(env.single_action_space, env.num_envs)

    def actions(self, actions: Array) -> Any:
        return self.action_space.codec.split(actions)


def join_actions(env: AnyEnv) -> AnyEnv:
    """The environment, which takes rows if its action space is a Tuple or a Dict."""
    return JoinActions(env) if isinstance(env.action_space, spaces.Tuple | spaces.Dict) else env


def join_vector_actions(env: VectorEnv[Any, Any, Any]) -> VectorEnv[Any, Any, Any]:
    """`join_actions` for a vector environment."""
    return JoinVectorActions(env) if isinstance(env.single_action_space, spaces.Tuple | spaces.Dict) else env
