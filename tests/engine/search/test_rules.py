"""The check of rules finds each mistake where it is."""

import numpy as np
import pytest

from minding.engine.search.rules import check_rules, stones_of
from minding.envs.games.board import BoardEnv
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe

RULES = TicTacToe()


def changed(**methods):
    return type("Changed", (TicTacToe,), methods)()


def play_with(change):
    """A `play` whose answer is changed."""
    return {"play": lambda self, state, action: change(*RULES.play(state, action))}


@pytest.mark.parametrize("game", [TicTacToe(), ConnectFour()])
def test_our_rules_pass(game):
    check_rules(game)


def test_a_class_of_rules_is_warned_of_once(recwarn):
    game = changed(**play_with(lambda state, over, outcome: (state, over, -outcome)))
    for _ in range(3):
        BoardEnv(game)
        check_rules(game)
    assert [str(each.message)[:13] for each in recwarn] == ["Changed.play:"]


def test_stones_come_from_the_rules_or_from_two_planes():
    state, _, _ = RULES.play(RULES.initial(2), np.array([4, 0]))
    last = [[0, 0, 0, 0, -1, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0, 0, 0, 0]]
    assert stones_of(RULES, state).reshape(2, 9).tolist() == last
    flipped = changed(stones=lambda self, state: -stones_of(RULES, state))
    assert stones_of(flipped, state).reshape(2, 9).tolist() == (-np.array(last)).tolist()
    for planes in (
        lambda self, state: RULES.planes(state)[:, :1],
        lambda self, state: RULES.planes(state) / 2,
        lambda self, state: RULES.planes(state)[:, [0, 1, 1]],
        lambda self, state: RULES.planes(state)[:, [1, 1]],
    ):
        assert stones_of(changed(planes=planes), state) is None
