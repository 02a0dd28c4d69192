"""The check of rules finds each mistake where it is."""

import numpy as np
import pytest

from minding.engine.errors import GameError
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


def write(self, state, action):
    following = RULES.play(state, action)
    state[0][:] = 0
    return following


def spoil(method):
    """The method, which then writes to the state."""

    def call(self, state):
        answer = getattr(RULES, method)(state)
        state[0][:] = 1
        return answer

    return call


def blank(self, planes, policy):
    pair = planes.copy(), policy.copy()
    planes[:] = 0
    policy[:] = 0
    return [pair]


def in_state(dtype):
    """An `initial` with a further array of a dtype."""
    return {"initial": lambda self, n: (*RULES.initial(n), np.zeros(n, dtype))}


def mix(self, state, action):
    (own, other), over, outcome = RULES.play(state, action)
    return (own, np.roll(other, 1)), over, outcome


@pytest.mark.parametrize("game", [TicTacToe(), ConnectFour()])
def test_our_rules_pass(game):
    check_rules(game)


UNSAVED = {
    object: "object", "U3": "<U3", "M8[s]": "datetime64[s]", complex: "complex128", np.longdouble: "float128",
}  # fmt: skip
# What is changed, and what the message has: the method, and a word.
MISTAKES = [
    ({"actions": 0}, "actions", "1 to 100,000"),
    ({"actions": 10**9}, "actions", "1000000000"),
    ({"longest": None}, "longest", "1 to 10,000"),
    ({"longest": 10**9}, "longest", "1000000000"),
    ({"longest": 6}, "longest", "ply 6"),
    ({"initial": lambda self, n: np.zeros(n)}, "initial", "tuple of arrays"),
    ({"initial": lambda self, n: (np.zeros(1), np.zeros(1))}, "initial", "shape (6,) and dtype float64"),
    ({"legal": lambda self, state: RULES.legal(state).astype(int)}, "legal", "dtype int64 (ndarray), ply 1"),
    ({"legal": lambda self, state: RULES.legal(state) & (state[0] == 0)[:, None]}, "legal", "got none, ply 3"),
    ({"planes": lambda self, state: RULES.planes(state)[:, 0]}, "planes", "(n, C, H, W)"),
    ({"planes": lambda self, state: RULES.planes(state).astype(np.float64)}, "planes", "dtype float64"),
    ({"planes": lambda self, state: 2 * RULES.planes(state)}, "planes", "from 0.0 to 2.0, ply 2"),
    ({"symmetries": lambda self, planes, policy: []}, "symmetries", "a list of pairs"),
    ({"symmetries": lambda self, planes, policy: RULES.symmetries(planes, policy)[1:]}, "symmetries", "first pair"),
    ({"symmetries": lambda self, *pair: [pair, (pair[0], 2 * pair[1])]}, "symmetries", "another order"),
    ({"symmetries": lambda self, *pair: [pair, (pair[0][..., ::-1].copy(), pair[1])]}, "symmetries", "form 1 mirrors"),
    ({"symmetries": blank}, "symmetries", "it wrote to the arrays that it was given"),
    ({"symmetries": None}, "symmetries", "a method"),
    (play_with(lambda state, over, outcome: (state, over)), "play", "(next state, over, outcome)"),
    (play_with(lambda state, over, outcome: (state[:1], over, outcome)), "play", "there are 1"),
    (play_with(lambda state, *rest: ((state[0].astype(float), state[1]), *rest)), "play", "dtype int16"),
    (play_with(lambda state, over, outcome: (state, over.astype(int), outcome)), "play", "dtype bool"),
    (play_with(lambda state, over, outcome: (state, over, outcome * 2)), "play", "of -1, 0 and 1"),
    (play_with(lambda state, over, outcome: (state, over, outcome + 1)), "play", "while a game runs, ply 1"),
    ({"play": write}, "play", "it wrote to the arrays that it was given; change copies, ply 3"),
    ({"play": mix}, "play", "differently alone and among others, ply 1"),
    ({"legal": spoil("legal")}, "legal", "it wrote to the arrays that it was given"),
    ({"planes": spoil("planes")}, "planes", "it wrote to the arrays that it was given"),
    ({"stones": spoil("planes")}, "stones", "it wrote to the arrays that it was given"),
    ({"stones": lambda self, state: RULES.planes(state)[:, 0]}, "stones", "dtype int8"),
    ({"stones": lambda self, state: RULES.planes(state).astype(np.int8)}, "stones", "(n, H, W)"),
    *((in_state(dtype), "initial", f"has dtype {name}, which checkpoints") for dtype, name in UNSAVED.items()),
    (in_state([("a", "i4")]), "initial", "which checkpoints cannot hold"),
]


@pytest.mark.parametrize(("methods", "method", "word"), MISTAKES)
def test_each_mistake_is_named_with_method_and_ply(methods, method, word):
    with pytest.raises(GameError) as caught:
        check_rules(changed(**methods))
    assert f"Changed.{method}: " in str(caught.value)
    assert word in str(caught.value)


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
