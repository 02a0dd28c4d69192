"""The rules of Tic-Tac-Toe."""

import numpy as np

from minding.envs.games.boards.tic_tac_toe import TicTacToe

GAME = TicTacToe()


def after(*actions):
    """The position, and what the last ply returned."""
    state, over, outcome = GAME.initial(1), None, None
    for action in actions:
        assert not over
        assert GAME.legal(state)[0, action]
        state, over, outcome = GAME.play(state, np.array([action]))
    return state, over[0], outcome[0]


def test_planes_show_the_player_to_move_first():
    state, over, outcome = after(0, 4, 2)
    assert (over, outcome) == (False, 0)
    assert GAME.planes(state).tolist() == [[[[0, 0, 0], [0, 1, 0], [0, 0, 0]], [[1, 0, 1], [0, 0, 0], [0, 0, 0]]]]
    assert np.flatnonzero(GAME.legal(state)[0]).tolist() == [1, 3, 5, 6, 7, 8]


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
