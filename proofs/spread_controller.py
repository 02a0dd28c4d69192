"""A hand-coded controller for simple_spread.

It sends the nearest pair of agent and landmark to each other, then the next of those that are left, and
pushes each agent along the axis on which it is farther off, with a brake.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minding.configs import load_preset
from minding.envs import make_env_manager

_BRAKE = 0.5  # s, how far ahead the velocity is looked
_CLOSE = 0.03
_LEFT, _DOWN = 1, 3  # right and up follow


def controller(seen: np.ndarray) -> np.ndarray:
    """Actions ``(N, M)`` for observations ``(N, M, 18)``: velocity, position, M landmarks relative to the agent, ..."""
    agents = seen.shape[1]
    to_landmark = seen[..., 4 : 4 + 2 * agents].reshape(*seen.shape[:2], agents, 2)
    distance = np.linalg.norm(to_landmark, axis=-1)
    envs = np.arange(len(seen))
    action = np.zeros(seen.shape[:2], np.int64)
    for _ in range(agents):
        m, k = np.divmod(distance.reshape(len(seen), -1).argmin(axis=1), agents)
        error = to_landmark[envs, m, k] - _BRAKE * seen[envs, m, :2]
        axis = np.abs(error).argmax(axis=1)
        along = error[envs, axis]
        push = np.where(axis == 0, _LEFT, _DOWN) + (along > 0)
        action[envs, m] = np.where(np.abs(along) < _CLOSE, 0, push)
        distance[envs, m], distance[envs, :, k] = np.inf, np.inf
    return action


def random_play(rng: np.random.Generator, seen: np.ndarray) -> np.ndarray:
    """Actions ``(N, M)``, all with the same probability."""
    return rng.integers(0, 5, seen.shape[:2])


def mean_return(act: Callable[[np.ndarray], np.ndarray], episodes: int) -> tuple[float, float]:
    """Mean and standard error of the episode return, summed over the agents."""
    manager = make_env_manager(load_preset("simple_spread_ippo").env, 8, 1, training=False)
    try:
        returns: list[float] = []
        while len(returns) < episodes:
            step = manager.play(act(manager.obs.observation))
            returns += [end.episode_return for end in step.episodes]
    finally:
        manager.close()
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(len(returns)))
