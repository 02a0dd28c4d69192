"""Opponents: their names, their strength, what is refused; and games between two of them."""

import dataclasses

import numpy as np
import pytest
from board_toys import Twig, connect_four
from fakes import refuses

from minding.engine.errors import ConfigError, GameError
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


def test_minimax_refuses_games_that_are_too_large(monkeypatch):
    monkeypatch.setattr(opponents, "LIMIT", 2000)
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match=r"enumerates all positions, and ConnectFour has more than 2,000 .*uct:SIM"):
        opponents.minimax()(FOUR, FOUR.initial(1), rng)
    # Close to its end the same game is small: one column is left.
    late = connect_four("010110100101" + "232332322323" + "454554544545")
    assert opponents.Solution(FOUR).value(late).tolist() == [0.0]


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


@pytest.mark.parametrize("name", ["random", "minimax", "uct:20"])
def test_the_same_generator_draws_the_same_actions(name):
    states = GAME.initial(64)
    drawn = [opponents.parse(name)(GAME, states, np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_random_draws_all_legal_actions_equally():
    state = tuple(np.repeat(part, 7000) for part in noughts(4, 0))
    counts = np.bincount(opponents.random()(GAME, state, np.random.default_rng(3)), minlength=9)
    assert counts[[4, 0]].tolist() == [0, 0]
    # 1,000 each, with a standard deviation of 29.
    assert (abs(counts[[1, 2, 3, 5, 6, 7, 8]] - 1000) < 120).all()


@dataclasses.dataclass
class Fixed:
    answer: np.ndarray
    name: str = "fixed"

    def __call__(self, game, state, rng):
        return self.answer


def test_an_illegal_action_of_an_opponent_names_game_and_ply():
    state = connect_four("", "222222", "")

    def ask(*answer):
        answer = np.array(answer)
        return opponents.ask(Fixed(answer), FOUR, state, np.random.default_rng(0), np.array([0, 6, 0]))

    refuses(
        GameError,
        ("action 2 is illegal in ConnectFour, game 1, ply 7; legal: 0, 1, 3, 4, 5, 6", lambda: ask(2, 2, 2)),
        ("action 7 is illegal in ConnectFour, game 2, ply 1", lambda: ask(2, 1, 7)),
        ("action -1 is illegal in ConnectFour, game 0, ply 1", lambda: ask(-1, 1, 1)),
        ("float64 of shape (3,)", lambda: ask(0.0, 0.0, 0.0)),
        ("int64 of shape (2,)", lambda: ask(0, 0)),
    )
    assert ask(2, 1, 6).tolist() == [2, 1, 6]


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


def test_games_of_different_lengths_are_all_played_to_their_end():
    outcomes = match(TicTacToe(), opponents.random(), opponents.random(), TicTacToe().initial(4000), RNG).outcomes
    # Random play: 58.5 % won by the first player, 28.8 % by the second; standard deviations 0.8 % and 0.7 %.
    assert abs((outcomes == 1).mean() - 0.585) < 0.03
    assert abs((outcomes == -1).mean() - 0.288) < 0.03


class Endless(Twig):
    def play(self, state, action):
        return state, np.zeros(len(action), bool), np.zeros(len(action), int)


def test_an_illegal_action_names_player_game_and_ply():
    four, endless = ConnectFour(), Endless()
    refuses(
        GameError,
        ("its action 3 is illegal", lambda: match(four, Always(3), Always(3), connect_four("3", "3"), RNG, 1)),
        ("game 0, ply 2", lambda: match(four, Always(9), Always(0), connect_four("3", "4"), RNG, 1)),
        ("longest=2", lambda: match(endless, Always(0), Always(0), endless.initial(1), RNG)),
    )


def test_opponents_may_be_given_by_name():
    game = TicTacToe()
    outcomes = match(game, "minimax", "random", game.initial(20), np.random.default_rng(0)).outcomes
    assert (outcomes >= 0).all()
    assert (outcomes == 1).sum() > 10
    refuses(ConfigError, ("second=3", lambda: match(game, "random", 3, game.initial(1), RNG)))
