"""Games between two opponents."""

import dataclasses

import numpy as np
from board_toys import Twig, connect_four
from fakes import refuses

from minding.engine.errors import ConfigError, GameError
from minding.engine.search import match, opponents
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe

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


def test_an_illegal_action_names_player_game_and_ply_and_a_game_ends_when_it_says():
    four, endless = ConnectFour(), Endless()
    refuses(
        GameError,
        ("its action 3 is illegal", lambda: match(four, Always(3), Always(3), connect_four("3", "3"), RNG, 1)),
        ("game 0, ply 2", lambda: match(four, Always(9), Always(0), connect_four("3", "4"), RNG, 1)),
        ("longest=2", lambda: match(endless, Always(0), Always(0), endless.initial(1), RNG)),
    )


def test_opponents_may_be_given_by_name_and_what_is_none_is_refused():
    game = TicTacToe()
    outcomes = match(game, "minimax", "random", game.initial(20), np.random.default_rng(0)).outcomes
    assert (outcomes >= 0).all()
    assert (outcomes == 1).sum() > 10
    refuses(ConfigError, ("second=3", lambda: match(game, "random", 3, game.initial(1), RNG)))
