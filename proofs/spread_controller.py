"""What random play and a controller by hand reach on simple_spread: between them lies what can be learned.

    python -m proofs.spread_controller [--episodes 400]

The controller sends the nearest pair of agent and landmark to each other, then the next of those that are left, and
pushes each agent along the axis on which it is farther off, with a brake.
"""

from __future__ import annotations

import argparse

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


def mean_return(act: object, episodes: int) -> tuple[float, float]:
    """Mean and standard error of the episode return, summed over the agents."""
    manager = make_env_manager(load_preset("simple_spread_ippo").env, 8, 1, training=False)
    try:
        returns: list[float] = []
        while len(returns) < episodes:
            step = manager.play(act(manager.obs.observation))  # type: ignore[operator]
            returns += [end.episode_return for end in step.episodes]
    finally:
        manager.close()
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(len(returns)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=400)
    episodes = parser.parse_args().episodes
    rng = np.random.default_rng(0)
    for name, act in (("random", lambda seen: rng.integers(0, 5, seen.shape[:2])), ("controller", controller)):
        mean, error = mean_return(act, episodes)
        print(f"{name:10}  {mean:6.1f} +- {error:.1f} over {episodes} episodes")


if __name__ == "__main__":
    main()
