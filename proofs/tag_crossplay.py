"""How often predators touch their prey in simple_tag, for any predators against any prey.

    minding train simple_tag_maddpg
    minding train simple_tag_maddpg policy.model.central=false exp_name=simple_tag_ddpg
    python -m proofs.tag_crossplay maddpg=runs/simple_tag_maddpg ddpg=runs/simple_tag_ddpg [--episodes 400]

Each row is a team of predators, each column a prey; random play is one of both. A predator earns 10 for each touch of
any of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding import training
from minding.configs import load_preset
from minding.engine.data.observation import random_legal
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager

PER_TOUCH = 10.0
Act = Callable[[Any], np.ndarray]
"""From the observation of N environments to the actions ``(N, M)`` of all agents."""


def crossed(predators: Act, prey: Act) -> Act:
    """All actions but those of the last agent from the first, that of the last from the second."""

    def act(obs: Any) -> np.ndarray:
        return np.concatenate([predators(obs)[:, :-1], prey(obs)[:, -1:]], axis=1)

    return act


def random_play(seed: int) -> Act:
    """Legal actions, all with the same probability."""
    rng = np.random.default_rng(seed)

    def act(obs: Any) -> np.ndarray:
        if "action_mask" in obs:
            return random_legal(obs.action_mask, (obs.action_mask.shape[-1],), rng)
        return rng.integers(0, 5, obs.alive.shape)

    return act


def touches(act: Act, episodes: int) -> tuple[float, float]:
    """Mean touches per episode and their standard error."""
    manager = make_env_manager(load_preset("simple_tag_maddpg").env, 8, 1, training=False)
    try:
        returns: list[float] = []
        while len(returns) < episodes:
            step = manager.play(act(manager.obs))
            returns += [end.info["return.adversary_0"] for end in step.episodes]
    finally:
        manager.close()
    counts = np.array(returns) / PER_TOUCH
    return float(counts.mean()), float(counts.std() / np.sqrt(len(counts)))


def table(players: Mapping[str, Act], episodes: int) -> list[str]:
    """Lines: a row for each team of predators, a column for each prey."""
    lines = [f"{'predators':12}" + "".join(f"{f'prey: {name}':>20}" for name in players)]
    for name, predators in players.items():
        cells = [touches(crossed(predators, prey), episodes) for prey in players.values()]
        lines.append(f"{name:12}" + "".join(f"{f'{mean:.2f} +- {error:.2f}':>20}" for mean, error in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--episodes", type=int, default=400)
    args = parser.parse_args()
    players: dict[str, Act] = {"random": random_play(0)}
    for given in args.runs:
        name, _, folder = given.partition("=")
        players[name] = training.load_policy(RunDir.open(Path(folder))).policy.eval_mode.forward
    print("\n".join(table(players, args.episodes)))


if __name__ == "__main__":
    main()
