"""MiniGrid's observations as arrays (extra `minigrid`): planes of cell contents, direction, mission, legal actions.

Chevalier-Boisvert et al., 2023, https://arxiv.org/abs/2306.13831.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.data.observation import ACTION_MASK
from minding.engine.errors import ConfigError, ShapeError, SpaceError
from minding.engine.process.packages import import_extra
from minding.engine.types import Array

_MOST_MISSIONS = 500
# Number of kinds of objects, of colors, and of states: states of doors, or directions of the agent where it is drawn.
_SIZES = (11, 6, 4)
_OFFSETS = (0, 11, 17)


class MiniGrid(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Observations of a MiniGrid environment in a form for networks.

    The observation is a Dict of `image`, uint8 ``(21, W, H)``, one plane each for 11 kinds of objects, 6 colors and 4
    states, 255 in the cells that have the property; `direction`, Discrete(4); `mission`, the number of the mission's
    sentence, if the environment has several; and with `mask` an `action_mask` that allows only actions with an effect.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], mask: bool = False, mission: bool = True) -> None:
        import_extra("minigrid", "minigrid", "env.wrappers: minigrid")
        from minigrid.minigrid_env import MiniGridEnv

        super().__init__(env)
        core = env.unwrapped
        if not isinstance(core, MiniGridEnv):
            raise ConfigError(
                f"env.wrappers: minigrid needs a MiniGrid environment, but {type(core).__name__} is not one"
            )
        if mask and type(core).step is not MiniGridEnv.step:
            raise ConfigError(
                f"env.wrappers: minigrid cannot mask the actions of {type(core).__name__}, which have effects of "
                "their own; use mask=false"
            )
        self._mask, self._max_episode_steps = mask, core.max_steps
        self._missions = _numbered(env.observation_space["mission"]) if mission else {}
        width, height, _ = env.observation_space["image"].shape
        entries: dict[str, spaces.Space[Any]] = {
            "image": spaces.Box(0, 255, (sum(_SIZES), width, height), np.uint8),
            "direction": spaces.Discrete(4),
        }
        if len(self._missions) > 1:
            entries["mission"] = spaces.Discrete(len(self._missions))
        if mask:
            entries[ACTION_MASK] = spaces.MultiBinary(int(core.action_space.n))
        self.observation_space = spaces.Dict(entries)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._seen(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(obs), reward, terminated, truncated, info

    def _seen(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        seen = {"image": planes(obs["image"]), "direction": np.int64(obs["direction"])}
        if len(self._missions) > 1:
            if obs["mission"] not in self._missions:
                raise ShapeError(f"mission {obs['mission']!r} is not among the {len(self._missions)} of its space")
            seen["mission"] = np.int64(self._missions[obs["mission"]])
        if self._mask:
            seen[ACTION_MASK] = effective(self.env.unwrapped)
        return seen


def planes(image: Array) -> Array:
    """Codes of cells ``(W, H, 3)`` as planes of 0 and 255, uint8 ``(21, W, H)``."""
    drawn = np.zeros((sum(_SIZES), *image.shape[:2]), np.uint8)
    x, y = np.indices(image.shape[:2])
    for part, offset in enumerate(_OFFSETS):
        drawn[image[:, :, part] + offset, x, y] = 255
    return drawn


def effective(core: Any) -> Array:
    """Which actions have an effect, int8 ``(A,)``, by the rules of ``MiniGridEnv.step``."""
    actions, front, carried = core.actions, core.grid.get(*core.front_pos), core.carrying
    legal = np.zeros(core.action_space.n, np.int8)
    legal[[actions.left, actions.right]] = 1
    legal[actions.forward] = front is None or front.can_overlap()
    if front is None:
        legal[actions.drop] = carried is not None
        return legal
    legal[actions.pickup] = front.can_pickup() and carried is None
    if front.type == "door" and front.is_locked:
        legal[actions.toggle] = carried is not None and (carried.type, carried.color) == ("key", front.color)
    else:
        legal[actions.toggle] = front.type in ("door", "box")
    return legal


def _numbered(space: Any) -> dict[str, int]:
    """The number of each sentence in a space of missions, in alphabetical order."""
    from minigrid.core.mission import MissionSpace

    # BabyAI's spaces of missions are a subclass, whose sentences follow a grammar.
    choices = space.ordered_placeholders or () if type(space) is MissionSpace else None
    if choices is None or np.prod([len(words) for words in choices]) > _MOST_MISSIONS:
        raise SpaceError(
            f"missions of {type(space).__name__} cannot be numbered up to {_MOST_MISSIONS}; leave them out with "
            "{minigrid: {mission: false}}, or encode them in a wrapper of your own"
        )
    sentences = {space.mission_func(*words) for words in itertools.product(*choices)}
    return {sentence: number for number, sentence in enumerate(sorted(sentences))}
