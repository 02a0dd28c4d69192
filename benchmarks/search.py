"""Speed of tree search beside OpenSpiel's MCTS: ``python -m benchmarks.search --peer-python PYTHON``.

PYTHON has the package `open-spiel`; it runs in processes of its own. Both sides search positions of Connect Four after
8 random plies with 64 simulations each: plain UCT with one random rollout per simulation, and PUCT with an evaluator
that returns a constant. Each comparison is repeated in pairs, A B A B. Times are processor times, in each process the
best of several windows of 0.2 s; the report is the median over the pairs and their median ratio. A whole run writes
``benchmarks/results/search.json`` and the table in ``docs/games.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.pairs import ROOT, call
from benchmarks.report import describe_machine
from minding.engine.search import PuctOptions, UctOptions, puct, uct
from minding.engine.search.puct import random_legal
from minding.engine.types import Array, State
from minding.envs.games.boards.connect_four import ConnectFour

SIMULATIONS, PLIES = 64, 8
GAMES = (1, 64, 256)
PEERS = {"python": "uct", "cpp": "uct", "python_puct": "puct"}
"""Kinds of the peer, with our search of the same kind."""
WINDOW = 0.2
"""Seconds of processor time."""
_TIMEOUT = 300.0


def positions(game: ConnectFour, count: int) -> State:
    """Positions after `PLIES` random plies in which the game runs."""
    rng, state = np.random.default_rng(0), game.initial(2 * count + 16)
    for _ in range(PLIES):
        state, over, _ = game.play(state, random_legal(game, state, rng))
        state = tuple(part[~over] for part in state)
    return tuple(part[:count] for part in state)


def simulations_per_second(search: str, count: int, seconds: float) -> float:
    """The best of several windows of searches of all games."""
    game, rng = ConnectFour(), np.random.default_rng(0)
    state = positions(game, count)
    logits, values = np.zeros((count, game.actions)), np.zeros(count)

    def evaluate(state: State) -> tuple[Array, Array]:
        return logits, values

    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        start, searched = time.process_time(), 0
        while (spent := time.process_time() - start) < WINDOW:
            if search == "uct":
                uct(game, state, UctOptions(SIMULATIONS), rng)
            else:
                puct(game, state, evaluate, PuctOptions(SIMULATIONS), rng)
            searched += count
        best = max(best, SIMULATIONS * searched / spent)
    return best


def compare(kind: str, count: int, pairs: int, seconds: float, python: str) -> dict[str, Any]:
    """One line of the report."""
    size = [str(count), str(seconds)]
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    sides = {
        "ours": ([sys.executable, "-m", "benchmarks.search", "--one", PEERS[kind], *size], str(ROOT / "src")),
        "peer": ([python, "-m", "benchmarks.peers.open_spiel_search", kind, *size], ""),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs):
        for name, (command, path) in sides.items():
            said = call(command, {**environment, "PYTHONPATH": path}, _TIMEOUT)
            found[name].append(json.loads(said.splitlines()[-1])["simulations_per_second"])
    ratios = [ours / peer for ours, peer in zip(found["ours"], found["peer"])]
    medians = {name: round(statistics.median(values)) for name, values in found.items()}
    line = {"peer": kind, "games": count, "pairs": pairs, "ours": medians["ours"], "peer_value": medians["peer"]}
    spread = {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    return {**line, **{name: round(value, 2) for name, value in spread.items()}}


def main() -> None:
    """Prints a line of JSON per comparison, then writes them all and the table of docs/games.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--peer-python", help="interpreter that has open-spiel")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each process searches (3)")
    parser.add_argument("--games", type=int, action="append", help=f"games at once; {GAMES} by default")
    parser.add_argument("--out", type=Path, help="file of the report, in place of the published one")
    parser.add_argument("--one", nargs=3, metavar=("SEARCH", "GAMES", "SECONDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        search, count, seconds = args.one
        print(json.dumps({"simulations_per_second": simulations_per_second(search, int(count), float(seconds))}))
        return
    if args.peer_python is None:
        parser.error("--peer-python PYTHON is missing: an interpreter that has the package open-spiel")
    record: pages.Record = {"name": "search", **describe_machine(args.peer_python), "rows": []}
    for kind in PEERS:
        for games in args.games or GAMES:
            record["rows"].append(compare(kind, games, args.pairs, args.seconds, args.peer_python))
            print(json.dumps(record["rows"][-1]), flush=True)
    print(f"\n{pages.search_table(record)}")
    pages.publish("search", record, args.out)


if __name__ == "__main__":
    main()
