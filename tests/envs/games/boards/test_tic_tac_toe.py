"""The rules of Tic-Tac-Toe."""

import numpy as np
import pytest

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
    assert GAME.planes(state).tolist() == [
        [[[0, 0, 0], [0, 1, 0], [0, 0, 0]], [[1, 0, 1], [0, 0, 0], [0, 0, 0]]],
    ]
    assert np.flatnonzero(GAME.legal(state)[0]).tolist() == [1, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param((0, 3, 1, 4, 2), id="row"),
        pytest.param((8, 1, 0, 4, 3, 7), id="column, by the second player"),
        pytest.param((2, 0, 4, 1, 6), id="diagonal"),
        pytest.param((0, 1, 2, 3, 5, 4, 7, 6, 8), id="with the last stone"),
    ],
)
def test_who_completes_a_line_has_won(actions):
    assert after(*actions)[1:] == (True, -1)


def test_a_full_board_without_a_line_is_a_draw():
    assert after(0, 1, 2, 4, 3, 5, 7, 6, 8)[1:] == (True, 0)


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
