"""Plain tree search (MCTS) without a network plays Tic-Tac-Toe. python uct_search.py --simulations 1000"""

import argparse

import numpy as np

from minding.engine.search import UctOptions, match, opponents, uct
from minding.envs.games.boards.tic_tac_toe import TicTacToe

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--games", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    game, rng = TicTacToe(), np.random.default_rng(args.seed)

    # The opponent has a corner and threatens nothing yet: only the center does not lose.
    corner, _, _ = game.play(game.initial(1), np.array([0]))
    found = uct(game, corner, UctOptions(args.simulations), rng)
    for action in np.flatnonzero(game.legal(corner)[0]):
        print(f"square {action}: {found.visits[0, action]:4} visits, value {found.action_value[0, action]:+.2f}")
    print(f"it answers a corner with square {found.best[0]}; 4 is the center")

    player, start = opponents.uct(args.simulations), game.initial(args.games)
    for other in (opponents.random(), opponents.minimax()):
        first, second = match(game, player, other, start, rng), match(game, other, player, start, rng)
        outcomes = np.concatenate([first.outcomes, -second.outcomes])
        won, lost = (outcomes == 1).sum(), (outcomes == -1).sum()
        print(f"{player.name} against {other.name}: {won} won, {len(outcomes) - won - lost} drawn, {lost} lost")
