"""OpenSpiel's MCTS on Connect Four: ``python -m benchmarks.peers.open_spiel_search KIND GAMES SECONDS``; prints
simulations per second.

KIND is `python` or `cpp`, plain UCT with one random rollout per simulation, or `python_puct`, PUCT with an evaluator
that returns a constant. Games are searched one after another: it has no search of many at once.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyspiel
from open_spiel.python.algorithms import mcts

SIMULATIONS, PLIES, WINDOW = 64, 8, 0.2


class Constant(mcts.Evaluator):
    """Values of 0 and equal priors."""

    def evaluate(self, state):
        return np.zeros(2)

    def prior(self, state):
        legal = state.legal_actions()
        return [(action, 1.0 / len(legal)) for action in legal]


def make_bot(kind, game):
    if kind == "cpp":
        evaluator = pyspiel.RandomRolloutEvaluator(1, 0)
        return pyspiel.MCTSBot(game, evaluator, 2.0**0.5, SIMULATIONS, 100, False, 0, False)
    rng = np.random.RandomState(0)
    if kind == "python":
        evaluator = mcts.RandomRolloutEvaluator(1, rng)
        return mcts.MCTSBot(game, 2.0**0.5, SIMULATIONS, evaluator, solve=False, random_state=rng)
    select = mcts.SearchNode.puct_value
    return mcts.MCTSBot(game, 1.25, SIMULATIONS, Constant(), solve=False, random_state=rng, child_selection_fn=select)


def positions(game, count):
    """Positions after `PLIES` random plies in which the game runs."""
    rng, found = np.random.RandomState(0), []
    while len(found) < count:
        state = game.new_initial_state()
        while state.move_number() < PLIES and not state.is_terminal():
            state.apply_action(rng.choice(state.legal_actions()))
        if not state.is_terminal():
            found.append(state)
    return found


def simulations_per_second(kind, count, seconds):
    """The best of several windows of searches of all games."""
    game = pyspiel.load_game("connect_four")
    bot, states = make_bot(kind, game), positions(game, count)
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        start, searched = time.process_time(), 0
        while (spent := time.process_time() - start) < WINDOW:
            for state in states:
                bot.mcts_search(state)
            searched += count
        best = max(best, SIMULATIONS * searched / spent)
    return best


if __name__ == "__main__":
    print(
        json.dumps(
            {"simulations_per_second": simulations_per_second(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))}
        )
    )
