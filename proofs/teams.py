"""Algorithms for several agents side by side, between random play and hand-coded controllers.

``python -m proofs.teams``, at the root, lets the two play and writes ``docs/results/teams.json``. The tables are on the
page of all algorithms, beside the results of the presets, which ``proofs.run`` writes.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minding.envs.games.battle.rules import MAPS
from proofs import battle_controller, spread_controller
from proofs import pages as proof_pages
from proofs.runs import ROOT, Record, Results
from proofs.team_tables import TEAMS

EPISODES = 400


def measure(episodes: int) -> Record:
    """Returns of random play and of the controller on simple_spread, and their shares of won battles by map."""
    rng = np.random.default_rng(0)
    spread = {
        "random": spread_controller.mean_return(functools.partial(spread_controller.random_play, rng), episodes),
        "controller": spread_controller.mean_return(spread_controller.controller, episodes),
    }

    def at_random(_: np.ndarray, legal: np.ndarray) -> np.ndarray:
        return battle_controller.random_play(rng, legal)

    battle = {
        name: {
            "random": battle_controller.win_rate(at_random, name, episodes),
            "controller": battle_controller.win_rate(battle_controller.controller, name, episodes),
        }
        for name in MAPS
    }
    return {"episodes": episodes, "spread": spread, "battle": battle}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.teams", description=__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES, help=f"episodes, battles of each map ({EPISODES})")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    args = parser.parse_args(argv)
    found = measure(args.episodes)
    (args.docs / "results" / f"{TEAMS}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    proof_pages.update(Results(args.docs))
    for name, (mean, error) in found["spread"].items():
        print(f"simple_spread  {name:10}  {mean:6.1f} ± {error:.1f}")
    for name, players in found["battle"].items():
        for player, won in players.items():
            print(f"battle {name:6}  {player:10}  wins {won:6.1%}")


if __name__ == "__main__":
    main()
