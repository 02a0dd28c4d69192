"""Gumbel search: trees computed by hand, a plain form, and what holds for every search."""

import math

import numpy as np
import pytest
from board_toys import Node, Twig, Uneven, connect_four, rows

from minding.engine.search import GumbelOptions, gumbel
from minding.engine.search.gumbel import halving
from minding.envs.games.boards.connect_four import ConnectFour

GAME = ConnectFour()
POSITIONS = ("", "3", "3342", "012345601", "33333", "222222666666", "0101002233")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("considered", "simulations", "visits"),
    [
        (1, 3, [0, 1, 2]),
        (2, 4, [0, 0, 1, 1]),
        (4, 16, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        (4, 2, [0, 0]),
        (7, 16, [0] * 7 + [1] * 3 + [2] * 2 + [3] * 2 + [4] * 2),
    ],
)
def test_sequential_halving_spends_its_simulations(considered, simulations, visits):
    assert halving(considered, simulations) == visits


def test_the_tree_is_that_computed_by_hand():
    # The larger prior first, then the other one; then the better one, to a draw; then the first again, to a loss.
    game, options = Twig(), GumbelOptions(4, max_considered=2, c_visit=50, c_scale=0.1, gumbel_scale=0.0)
    found = gumbel(game, game.initial(2), game.evaluate, options, RNG)
    scale = (50 + 2) * 0.1 / 2
    logits = [math.log(0.6) + scale * (1 - 0.6), math.log(0.4) + scale * (1 + 0.2)]
    policy = np.exp(logits) / np.exp(logits).sum()
    for row in range(2):
        assert found.visits[row].tolist() == [2, 2]
        assert np.allclose(found.tree.total[row], [-1.2, 0.4], rtol=0, atol=1e-12)
        assert np.allclose(found.policy[row], policy, rtol=0, atol=1e-12)
        assert math.isclose(found.value[row], -0.6 * policy[0] + 0.2 * policy[1], abs_tol=1e-12)
        assert found.best[row] == 1


def improved(node, options):
    """Logits of pi' and completed q, action by action."""
    visits = sum(node.visits.values())
    tried = [a for a in node.legal if node.visits[a]]
    mixed = node.value
    if tried:
        mean = sum(node.prior[a] * node.q(a) for a in tried) / sum(node.prior[a] for a in tried)
        mixed = (node.value + visits * mean) / (1 + visits)
    q = {a: node.q(a) if node.visits[a] else mixed for a in node.legal}
    weight = (options.c_visit + max(node.visits.values())) * options.c_scale
    return {a: node.logits[a] + weight * (q[a] + 1) / 2 for a in node.legal}, q


def softmax(logits):
    top = max(logits.values())
    weights = {a: math.exp(x - top) for a, x in logits.items()}
    return {a: w / sum(weights.values()) for a, w in weights.items()}


def plain(state, evaluate, options, noise):
    """Sequential halving phase by phase, as the paper's algorithm 2 has it; the root, and the actions that are left."""

    def choose(node):
        policy, visits = softmax(improved(node, options)[0]), sum(node.visits.values())
        return max(node.legal, key=lambda a: policy[a] - node.visits[a] / (1 + visits))

    def score(action):
        return noise[action] + improved(root, options)[0][action]

    root = Node(GAME, state, evaluate)
    left = sorted(root.legal, key=lambda a: -(noise[a] + root.logits[a]))[: options.max_considered]
    phases, spent = max(1, math.ceil(math.log2(len(left)))), 0
    while True:
        for _ in range(max(1, options.simulations // (phases * len(left)))):
            for action in sorted(left, key=score, reverse=True):
                if spent == options.simulations:
                    most = max(root.visits.values())
                    return root, max((a for a in left if root.visits[a] == most), key=score)
                root.simulate(action, choose, evaluate)
                spent += 1
        left = sorted(left, key=score, reverse=True)[: max(2, len(left) // 2)]


@pytest.mark.parametrize(("simulations", "considered"), [(16, 16), (32, 4), (50, 3), (5, 7), (1, 2)])
def test_the_arrays_hold_what_a_plain_tree_holds(simulations, considered):
    state, evaluate = connect_four(*POSITIONS), Uneven(5)
    options = GumbelOptions(simulations, considered, c_visit=20.0, c_scale=0.3)
    noise = np.random.default_rng(7).gumbel(size=(len(POSITIONS), 7))
    found = gumbel(GAME, state, evaluate, options, np.random.default_rng(7))
    illegal = ~GAME.legal(state)
    assert not found.visits[illegal].any()
    assert not found.policy[illegal].any()
    for k in range(len(POSITIONS)):
        root, best = plain(rows(state, slice(k, k + 1)), evaluate, options, noise[k])
        assert {a: int(found.visits[k, a]) for a in root.legal} == root.visits
        logits, q = improved(root, options)
        policy = softmax(logits)
        assert np.allclose([found.policy[k, a] for a in root.legal], list(policy.values()), rtol=0, atol=1e-12)
        assert math.isclose(found.value[k], sum(policy[a] * q[a] for a in root.legal), abs_tol=1e-12)
        assert found.best[k] == best
