"""A hand-coded controller for the battle.

It shoots at the weakest enemy in range, so that the fire of all meets one, and goes towards the nearest in
sight where none is. A unit with little health left steps back from the nearest while its rifle is not ready, and the
scripted team, which goes for whoever is nearest, turns to another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minding.envs import make_env_manager
from minding.envs.games.battle.rules import DIRECTIONS, SIGHT

_STAY, _NORTH, _SHOOT = 1, 2, 6
_SEEN = 6
_RANGE = 5 / 8
"""In units of the sight."""
_HELP = 0.08
"""Share of the health that one more ally in range of an enemy makes up for."""
_WEAK = 0.6
"""Share of the health below which a unit steps back."""


def controller(seen: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Actions ``(N, M)`` for observations ``(N, M, D)`` and masks ``(N, M, A)`` of `minding/Battle-v0`."""
    legal = np.asarray(legal, bool)
    enemies = legal.shape[-1] - _SHOOT
    about = seen[..., 4:-4].reshape(*seen.shape[:2], -1, _SEEN)
    foes, friends = about[:, :, :enemies], about[:, :, enemies:]
    reached = np.linalg.norm(foes[:, :, None, :, 2:4] - friends[:, :, :, None, 2:4], axis=-1) <= _RANGE
    helpers = (reached & (friends[..., None, 0] > 0)).sum(axis=2)
    # The order of the enemies decides between equals: the same one for all.
    worth = foes[..., 4] - _HELP * helpers + 1e-3 * np.arange(enemies)
    target = np.where(legal[..., _SHOOT:], worth, np.inf).argmin(axis=-1)
    distance = np.where(foes[..., 0] > 0, foes[..., 1], np.inf)
    nearest = np.take_along_axis(foes, distance.argmin(axis=-1)[..., None, None], axis=-2)[..., 0, :]
    flees = (seen[..., -3] == 0) & (seen[..., -4] < _WEAK)
    near = distance.min(axis=-1) <= _RANGE
    goes = np.where(near, np.where(flees, _way(-nearest[..., 2:4]), _STAY), _round(nearest[..., 2:4], friends))
    possible = np.take_along_axis(legal, goes[..., None], axis=-1)[..., 0] & np.isfinite(distance.min(axis=-1))
    action = np.where(legal[..., _SHOOT:].any(axis=-1), _SHOOT + target, np.where(possible, goes, _STAY))
    return np.where(legal[..., _STAY], action, 0)


def _way(gap: np.ndarray, *, longer: bool = True) -> np.ndarray:
    """The direction, as an action, along the axis on which the gap ``(..., 2)`` is longer, or the other one."""
    x, y = gap[..., 0], gap[..., 1]
    wide = np.abs(x) >= np.abs(y) if longer else np.abs(x) < np.abs(y)
    return _NORTH + np.where(wide, np.where(x > 0, 2, 3), np.where(y > 0, 1, 0))


def _round(gap: np.ndarray, friends: np.ndarray) -> np.ndarray:
    """The direction of `_way`, or the other one where a friend is in the next cell."""
    first = _way(gap)
    cell = DIRECTIONS[first - _NORTH] / SIGHT
    beside = (np.abs(friends[..., 2:4] - cell[:, :, None]).max(axis=-1) < 0.01) & (friends[..., 0] > 0)
    return np.where(beside.any(axis=-1), _way(gap, longer=False), first)


def random_play(rng: np.random.Generator, legal: np.ndarray) -> np.ndarray:
    """Legal actions ``(N, M)``, all with the same probability."""
    return np.where(legal, rng.random(legal.shape), -1).argmax(axis=-1)


def win_rate(act: Callable[[np.ndarray, np.ndarray], np.ndarray], map_name: str, battles: int) -> float:
    """Share of the battles that the team wins."""
    env = {"env_id": "minding/Battle-v0", "env_kwargs": {"map_name": map_name}, "info_keys": ["battle_won"]}
    manager = make_env_manager(env, battles, 1, training=False)
    won = np.full(battles, np.nan)
    try:
        while np.isnan(won).any():
            obs = manager.obs
            step = manager.play(act(obs.observation, obs.action_mask))
            for end in step.episodes:
                # The first of each environment: those that end early are not preferred.
                if np.isnan(won[end.env_id]):
                    won[end.env_id] = end.info["battle_won"]
    finally:
        manager.close()
    return float(won.mean())
