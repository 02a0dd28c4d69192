"""The rules of Connect Four."""

import numpy as np
import pytest

from minding.envs.games.boards.connect_four import ConnectFour

GAME = ConnectFour()


def after(columns):
    """The position after stones in these columns, and what the last ply returned."""
    state, over, outcome = GAME.initial(1), None, None
    for column in columns:
        assert not over
        assert GAME.legal(state)[0, column]
        state, over, outcome = GAME.play(state, np.array([column]))
    return state, over[0], outcome[0]


def test_stones_fall_and_planes_show_the_player_to_move_first():
    state, over, outcome = after([3, 3, 0])
    own, other = GAME.planes(state)[0]
    assert (np.argwhere(own).tolist(), np.argwhere(other).tolist()) == ([[4, 3]], [[5, 0], [5, 3]])
    assert (over, outcome, own.dtype) == (False, 0, np.float32)


def test_a_full_column_is_illegal():
    state, *_ = after([2] * 6)
    assert np.flatnonzero(GAME.legal(state)[0]).tolist() == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([0, 1, 0, 1, 0, 1, 0], id="upwards"),
        pytest.param([3, 3, 4, 4, 5, 5, 6], id="sideways, at the edge"),
        pytest.param([6, 0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], id="diagonally up, by the second player"),
        pytest.param([6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], id="diagonally down"),
        pytest.param([3, 3, 5, 5, 6, 6, 4], id="in a gap"),
    ],
)
def test_who_completes_a_line_has_won(columns):
    assert after(columns)[1:] == (True, -1)


def test_no_line_runs_from_the_top_of_a_column_into_the_next():
    # The first player holds the two top squares of column 0 and the two lowest of column 1.
    state, over, outcome = after([1, 0, 1, 0, 0, 0, 0, 3, 0])
    assert np.argwhere(GAME.planes(state)[0, 1][:, :2]).tolist() == [[0, 0], [1, 0], [3, 0], [4, 1], [5, 1]]
    assert (over, outcome) == (False, 0)


def test_a_full_board_without_a_line_is_a_draw():
    columns = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3, 4, 5, 4, 5, 5, 4, 5, 4, 4, 5]
    assert after([*columns, 4, 5, 6, 6, 6, 6, 6, 6])[1:] == (True, 0)


def test_the_sequences_of_one_to_seven_plies_are_counted():
    state, counts = GAME.initial(1), []
    for _ in range(7):
        rows, actions = np.nonzero(GAME.legal(state))
        state, over, _ = GAME.play(tuple(x[rows] for x in state), actions)
        counts.append(len(over))
        state = tuple(x[~over] for x in state)
    assert counts == [7, 49, 343, 2401, 16807, 117649, 823536]
