"""Opponents: their names, their strength, what is refused; and games between two of them."""

import dataclasses

import numpy as np
from board_toys import Twig, connect_four
from fakes import refuses

from minding.engine.errors import ConfigError
from minding.engine.search import match, opponents
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe

GAME, FOUR = TicTacToe(), ConnectFour()


def noughts(*actions):
    state = GAME.initial(1)
    for action in actions:
        state, over, _ = GAME.play(state, np.array([action]))
        assert not over[0]
    return state


def outcomes(first, second, game, n):
    """Outcomes of n games for `first`, who begins."""
    return match(game, first, second, game.initial(n), np.random.default_rng(0)).outcomes


def test_names_are_parsed_and_the_nearest_is_named():
    for name in ("random", "minimax", "uct:400"):
        assert opponents.parse(name).name == name
    assert opponents.uct(25).name == "uct:25"
    wrong = ("uct", "uct:", "uct:0", "uct:-5", "uct:many", "uct:2.5")
    refuses(
        ConfigError,
        ("did you mean 'minimax'", lambda: opponents.parse("minmax")),
        ("did you mean 'uct'", lambda: opponents.parse("utc:50")),
        *((f"opponent='{name}'", lambda name=name: opponents.parse(name)) for name in wrong),
        ("opponent='random:3'", lambda: opponents.parse("random:3")),
        ("simulations=0", lambda: opponents.uct(0)),
    )


def test_the_solution_of_tic_tac_toe_is_known():
    solved = opponents.Solution(GAME)
    assert solved.value(GAME.initial(1)).tolist() == [0.0]
    # All 4,520 positions in which the game runs: the 5,478 that can be reached less the 958 that end it.
    assert len(solved._known) == 4520
    # An answer to a corner that is not the center loses; the winner has four marks to choose from after an edge.
    assert np.flatnonzero(solved.optimal(noughts(0))[0]).tolist() == [4]
    assert solved.value(noughts(0, 1)).tolist() == [1.0]
    # A fork: whatever is played next, the game is lost, so that every legal action is as good.
    lost = noughts(0, 1, 3, 6, 4)
    assert (solved.value(lost).tolist(), np.flatnonzero(solved.optimal(lost)[0]).tolist()) == ([-1.0], [2, 5, 7, 8])
    # Two forced blocks.
    assert np.flatnonzero(solved.optimal(noughts(0, 4, 1))[0]).tolist() == [2]
    assert np.flatnonzero(solved.optimal(noughts(4, 0, 8, 2))[0]).tolist() == [1]


def test_minimax_loses_no_game_and_uct_beats_random():
    rng, player = np.random.default_rng(1), opponents.uct(200)
    wins_or_blocks = connect_four("010101", "01010", "0101015")
    assert player(FOUR, wins_or_blocks, rng).tolist() == [0, 0, 1]
    assert outcomes(opponents.uct(25), opponents.random(), FOUR, 30).mean() > 0.8
    assert outcomes(opponents.random(), opponents.uct(25), FOUR, 30).mean() < -0.7
    perfect = opponents.minimax()
    assert outcomes(perfect, perfect, GAME, 50).tolist() == [0.0] * 50
    random = opponents.random()
    for results in (outcomes(perfect, random, GAME, 200), -outcomes(random, perfect, GAME, 200)):
        assert results.min() >= 0
        assert results.mean() > 0.7


@dataclasses.dataclass
class Fixed:
    answer: np.ndarray
    name: str = "fixed"

    def __call__(self, game, state, rng):
        return self.answer


# Games between two opponents

RNG = np.random.default_rng(0)


@dataclasses.dataclass
class Always:
    action: int
    name: str = "always"

    def __call__(self, game, state, rng):
        return np.full(len(state[0]), self.action)


def test_outcomes_are_those_of_the_first_player():
    game = ConnectFour()
    # The first player needs one more stone in column 3; the second holds three in column 0.
    assert match(game, Always(3), Always(0), connect_four("303030"), RNG, 6).outcomes.tolist() == [1]
    # In the same columns the second completes a line first.
    assert match(game, Always(1), Always(0), connect_four("3030" + "50"), RNG, 6).outcomes.tolist() == [-1]
    # Position 6 of the toy is a draw, 7 a win of who moved first.
    start = Twig().initial(2)
    assert match(Twig(), Always(1), Always(0), start, RNG).outcomes.tolist() == [0, 0]
    assert match(Twig(), Always(1), Always(1), start, RNG).outcomes.tolist() == [1, 1]
    assert match(Twig(), Always(0), Always(0), start, RNG).outcomes.tolist() == [-1, -1]


class Endless(Twig):
    def play(self, state, action):
        return state, np.zeros(len(action), bool), np.zeros(len(action), int)


def test_opponents_may_be_given_by_name():
    game = TicTacToe()
    outcomes = match(game, "minimax", "random", game.initial(20), np.random.default_rng(0)).outcomes
    assert (outcomes >= 0).all()
    assert (outcomes == 1).sum() > 10
    refuses(ConfigError, ("second=3", lambda: match(game, "random", 3, game.initial(1), RNG)))
