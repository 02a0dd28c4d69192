"""The rules of Tic-Tac-Toe."""

import numpy as np

from minding.envs.games.boards.tic_tac_toe import TicTacToe

GAME = TicTacToe()


def test_the_whole_game_has_255168_lines_of_play():
    # Wins of the first and of the second player, and draws, by ply: known counts.
    state, wins, draws = GAME.initial(1), [], 0
    for _ in range(GAME.longest):
        rows, actions = np.nonzero(GAME.legal(state))
        state, over, outcome = GAME.play(tuple(x[rows] for x in state), actions)
        wins.append(int((outcome == -1).sum()))
        draws += int((over & (outcome == 0)).sum())
        state = tuple(x[~over] for x in state)
    assert (wins, draws, len(state[0])) == ([0, 0, 0, 0, 1440, 5328, 47952, 72576, 81792], 46080, 0)
