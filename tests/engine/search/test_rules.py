"""The check of rules finds each mistake where it is."""

import numpy as np
import pytest

from minding.engine.errors import GameError
from minding.engine.search.rules import RulesWarning, check_rules, stones_of
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


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"actions": 0}, "Changed.actions: expected an integer from 1 to 100,000, and it is 0"),
        ({"actions": 10**9}, "Changed.actions: expected an integer from 1 to 100,000, and it is 1000000000"),
        ({"longest": None}, "Changed.longest: expected an integer from 1 to 10,000, and it is None"),
        ({"longest": 10**9}, "Changed.longest: expected an integer from 1 to 10,000, and it is 1000000000"),
        (
            {"longest": 6},
            "Changed.longest: expected the most plies that a game can have, but a random game continues after 6, ply 6",
        ),
        (
            {"initial": lambda self, n: np.zeros(n)},
            "Changed.initial: expected a state that is a tuple of arrays, and it",
        ),
        (
            {"initial": lambda self, n: (np.zeros(1), np.zeros(1))},
            r"Changed.initial: expected array 0 of the state of shape \(6,\) and dtype float64, and it has .*\(1,\)",
        ),
        (
            {"legal": lambda self, state: RULES.legal(state).astype(int)},
            r"Changed.legal: expected shape \(6, 9\) and dtype bool, and .* dtype int64 \(ndarray\), ply 1 of",
        ),
        (
            {"legal": lambda self, state: RULES.legal(state) & (state[0] == 0)[:, None]},
            "Changed.legal: expected at least one legal action until the game is over, got none, ply 3",
        ),
        (
            {"planes": lambda self, state: RULES.planes(state)[:, 0]},
            r"Changed.planes: expected an array \(n, C, H, W\), and its shape is \(6, 3, 3\)",
        ),
        (
            {"planes": lambda self, state: RULES.planes(state).astype(np.float64)},
            "Changed.planes: expected shape .* and dtype float32, and it has shape .* and dtype float64",
        ),
        (
            {"planes": lambda self, state: 2 * RULES.planes(state)},
            r"Changed.planes: expected numbers in \[0, 1\], and they reach from 0.0 to 2.0, ply 2",
        ),
        ({"symmetries": lambda self, planes, policy: []}, "Changed.symmetries: expected a list of pairs"),
        (
            {"symmetries": lambda self, planes, policy: RULES.symmetries(planes, policy)[1:]},
            "Changed.symmetries: expected the given planes and policy as the first pair",
        ),
        (
            {"symmetries": lambda self, planes, policy: [(planes, policy), (planes, 2 * policy)]},
            "Changed.symmetries: expected the policy's numbers in another order, and they differ",
        ),
        (
            play_with(lambda state, over, outcome: (state, over)),
            r"Changed.play: expected \(next state, over, outcome\)",
        ),
        (
            play_with(lambda state, over, outcome: (state[:1], over, outcome)),
            "Changed.play: expected 2 arrays as `initial` returns, and there are 1",
        ),
        (
            play_with(lambda state, over, outcome: ((state[0].astype(float), state[1]), over, outcome)),
            r"Changed.play: expected array 0 of the state of shape \(6,\) and dtype int16, and .* float64",
        ),
        (
            play_with(lambda state, over, outcome: (state, over.astype(int), outcome)),
            r"Changed.play: expected shape \(6,\) and dtype bool, and it has shape \(6,\) and dtype int64",
        ),
        (
            play_with(lambda state, over, outcome: (state, over, outcome * 2)),
            r"expected outcomes \(\d,\) of -1, 0 and 1",
        ),
        (
            play_with(lambda state, over, outcome: (state, over, outcome + 1)),
            "Changed.play: expected the outcome 0 while a game runs, ply 1",
        ),
        ({"play": write}, "Changed.play: it wrote to the arrays that it was given; change copies, ply 3"),
        ({"legal": spoil("legal")}, "Changed.legal: it wrote to the arrays that it was given; change copies, ply 1"),
        ({"planes": spoil("planes")}, "Changed.planes: it wrote to the arrays that it was given; change copies, ply 1"),
        ({"symmetries": blank}, "Changed.symmetries: it wrote to the arrays that it was given; change copies, ply 1"),
        ({"symmetries": None}, "Changed.symmetries: expected a method"),
        *(
            (in_state(dtype), f"Changed.initial: array 2 of the state has dtype {name}, which checkpoints cannot hold")
            for dtype, name in (
                (object, "object"),
                ("U3", "<U3"),
                ("M8[s]", r"datetime64\[s\]"),
                (complex, "complex128"),
                (np.longdouble, "float128"),
                ([("a", "i4")], r"\[\('a', '<i4'\)\]"),
            )
        ),
        ({"stones": spoil("planes")}, "Changed.stones: it wrote to the arrays that it was given; change copies, ply 1"),
        (
            {"stones": lambda self, state: RULES.planes(state)[:, 0]},
            "Changed.stones: expected shape .* and dtype int8, and it has shape .* and dtype float32",
        ),
        (
            {"stones": lambda self, state: RULES.planes(state).astype(np.int8)},
            r"Changed.stones: expected an array \(n, H, W\) of -1, 0 and 1, and its shape is \(6, 2, 3, 3\)",
        ),
        (
            {"symmetries": lambda self, planes, policy: [(planes, policy), (planes[..., ::-1].copy(), policy)]},
            "Changed.symmetries: form 1 mirrors the board and the policy differently: it makes action 0 of the initial "
            "position action 0, which leads to another position than its planes show",
        ),
        ({"play": mix}, "Changed.play: a game is played differently alone and among others, ply 1"),
    ],
)
def test_each_mistake_is_named_with_method_and_ply(methods, message):
    with pytest.raises(GameError, match=message):
        check_rules(changed(**methods))


def test_outcomes_that_seem_to_have_the_wrong_sign_are_warned_of():
    def play(self, state, action):
        state, over, outcome = RULES.play(state, action)
        return state, over, -outcome

    with pytest.warns(RulesWarning, match=r"Changed\.play: in \d of 6 random games the player of the last ply lost"):
        check_rules(changed(play=play))


def test_a_class_of_rules_is_warned_of_once_however_many_environments_are_made(recwarn):
    game = changed(**play_with(lambda state, over, outcome: (state, over, -outcome)))
    for _ in range(3):
        BoardEnv(game)
        check_rules(game)
    assert [str(each.message)[:13] for each in recwarn] == ["Changed.play:"]


def test_stones_come_from_the_rules_or_from_two_planes_that_do_not_overlap():
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


def test_an_environment_checks_its_rules_first():
    with pytest.raises(GameError, match=r"Changed\.play: it wrote to the arrays"):
        BoardEnv(changed(play=write))
