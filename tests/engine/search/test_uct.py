"""Plain UCT: a tree computed by hand, rollouts, and what is refused."""

import math

import numpy as np
from board_toys import Twig, connect_four

from minding.engine.search import UctOptions, uct
from minding.engine.search.puct import rollout
from minding.envs.games.boards.connect_four import ConnectFour

GAME = ConnectFour()


def test_the_visits_are_those_computed_by_hand():
    # After position 2 the player to move wins by action 0 and draws by action 1: nothing is left to chance but which
    # is first. Q is 1 and 0; after N simulations, of which one took action 1, it is next as soon as
    # c sqrt(log N) > 1 + c sqrt(log N / (N - 1)). With c = 1.2: 1.674 < 1.683 at N = 7, 1.730 > 1.654 at N = 8.
    root, turn = np.array([2]), 8
    for seed in range(4):
        for simulations, visits in ((1, None), (2, [1, 1]), (turn, [turn - 1, 1]), (turn + 1, [turn - 1, 2])):
            found = uct(Twig(), (root,), UctOptions(simulations, c=1.2), np.random.default_rng(seed))
            assert found.visits.sum() == simulations
            if visits:
                assert found.visits.tolist() == [visits]
                assert math.isclose(found.value[0], visits[0] / simulations)
                assert found.best.tolist() == [0]


def test_untried_legal_actions_come_first_in_random_order():
    found = uct(GAME, GAME.initial(200), UctOptions(3), np.random.default_rng(0))
    assert found.visits.max() == 1
    # Each of seven actions is among the first three of a game with probability 3/7: 86 of 200, deviation 7.
    assert (abs(found.visits.sum(axis=0) - 86) < 30).all()
    found = uct(GAME, GAME.initial(5), UctOptions(7), np.random.default_rng(0))
    assert found.visits.tolist() == [[1] * 7] * 5
    state = connect_four("222222", "3", "0101002233")
    found = uct(GAME, state, UctOptions(60), np.random.default_rng(0))
    assert (found.visits.sum(axis=1) == 60).all()
    assert not found.visits[~GAME.legal(state)].any()


def test_rollouts_give_the_outcome_of_the_player_to_move():
    rng = np.random.default_rng(0)
    # After this the player to move has one column left, and wins in it.
    state = Twig().play((np.full(2000, 1),), np.zeros(2000, np.int64))[0]
    outcomes = rollout(Twig(), state, rng)
    # Position 2: a win for the player to move, or a draw.
    assert set(outcomes.tolist()) == {0.0, 1.0}
    assert abs(outcomes.mean() - 0.5) < 0.05
    # Random play of Connect Four: the first player wins 55.6 % and loses 44.2 % of games.
    outcomes = rollout(GAME, GAME.initial(4000), rng)
    assert abs((outcomes == 1).mean() - 0.556) < 0.03
    assert abs((outcomes == -1).mean() - 0.442) < 0.03
