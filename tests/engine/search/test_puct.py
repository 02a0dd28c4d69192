"""PUCT: trees computed by hand, a plain form, and what holds for every search."""

import functools
import math

import numpy as np
import pytest
from board_toys import Node, Twig, Uneven, connect_four, rows
from fakes import refuses

from minding.engine.errors import ConfigError
from minding.engine.search import GumbelOptions, PuctOptions, UctOptions, puct
from minding.envs.games.boards.connect_four import ConnectFour

GAME = ConnectFour()
POSITIONS = ("", "3", "3342", "012345601", "33333", "222222666666", "0101002233")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("simulations", "visits", "total"),
    [
        (1, [1, 0], [-0.2, 0.0]),  # 0.6, 0.4
        (2, [1, 1], [-0.2, 0.4]),  # -0.2 + 0.6 sqrt(2) / 2 = 0.224, 0.4 sqrt(2) = 0.566
        (3, [1, 2], [-0.2, 0.4]),  # 0.320, 0.746; then a draw
        (4, [1, 3], [-0.2, 0.4]),  # -0.2 + 0.6 * 2 / 2 = 0.4, 0.2 + 0.4 * 2 / 3 = 0.467; the same draw
        (5, [2, 3], [-1.2, 0.4]),  # 0.471, 0.357; then a loss
        (6, [2, 4], [-1.2, 0.4]),  # -0.110, 0.378
    ],
)
def test_the_tree_is_that_computed_by_hand(simulations, visits, total):
    game = Twig()
    found = puct(game, game.initial(3), game.evaluate, PuctOptions(simulations, c_puct=1.0), RNG)
    for row in range(3):
        assert found.visits[row].tolist() == visits
        assert np.allclose(found.tree.total[row], total, rtol=0, atol=1e-12)
        assert found.policy[row].tolist() == [v / simulations for v in visits]
        assert math.isclose(found.value[row], sum(total) / simulations, abs_tol=1e-12)
    assert np.allclose(found.prior, [0.6, 0.4], rtol=0, atol=1e-12)
    assert np.allclose(found.action_value[0, 0], total[0] / visits[0], rtol=0, atol=1e-12)
    assert np.isnan(found.action_value[0, 1]) == (visits[1] == 0)


def plain(state, evaluate, simulations, c_puct):
    def choose(node):
        root = math.sqrt(1 + sum(node.visits.values()))
        return max(node.legal, key=lambda a: node.q(a) + c_puct * node.prior[a] * root / (1 + node.visits[a]))

    root = Node(GAME, state, evaluate)
    for _ in range(simulations):
        root.simulate(choose(root), choose, evaluate)
    return root


def test_the_arrays_hold_what_a_plain_tree_holds():
    state, evaluate = connect_four(*POSITIONS), Uneven()
    found = puct(GAME, state, evaluate, PuctOptions(60, c_puct=2.0), RNG)
    illegal = ~GAME.legal(state)
    assert illegal.any()
    assert not any(values[illegal].any() for values in (found.visits, found.policy, found.prior))
    for k in range(len(POSITIONS)):
        root = plain(rows(state, slice(k, k + 1)), evaluate, 60, 2.0)
        assert {a: int(found.visits[k, a]) for a in root.legal} == root.visits
        assert np.allclose([found.tree.total[k, a] for a in root.legal], list(root.total.values()), rtol=0, atol=1e-12)


def test_noise_mixes_the_legal_priors_of_the_root_alone():
    state, options = connect_four("222222", "3"), PuctOptions(30, dirichlet_alpha=0.5, dirichlet_fraction=0.25)
    results = [puct(GAME, state, Uneven(), options, np.random.default_rng(k)) for k in (1, 1, 2)]
    quiet = puct(GAME, state, Uneven(), PuctOptions(30), RNG)
    noise = (results[0].prior - 0.75 * quiet.prior) / 0.25
    assert noise.min() > -1e-12
    assert np.allclose(noise.sum(axis=1), 1.0)
    assert (results[0].prior[0, 2], results[0].visits[0, 2]) == (0.0, 0)
    assert results[0].visits.tolist() == results[1].visits.tolist()
    assert results[0].prior.tolist() != results[2].prior.tolist()
    first = results[0].tree
    assert np.allclose(first.prior[2:4], np.exp(first.logits[2:4]) / np.exp(first.logits[2:4]).sum(axis=1)[:, None])


WRONG = [
    *((kind, {"simulations": value}) for kind in (PuctOptions, GumbelOptions, UctOptions) for value in (0, 2.5, 10**7)),
    *((PuctOptions, {name: value}) for name in ("c_puct", "dirichlet_alpha") for value in (0.0, math.inf, 1e300)),
    *((PuctOptions, {"dirichlet_fraction": value}) for value in (-0.1, 1.5, math.nan)),
    *((GumbelOptions, {"max_considered": value}) for value in (0, 2.5, math.inf)),
    *((GumbelOptions, {name: math.inf}) for name in ("c_visit", "c_scale", "gumbel_scale")),
    *((GumbelOptions, {name: value}) for name in ("c_visit", "c_scale") for value in (-1.0, math.nan, "1")),
    *((UctOptions, {"c": value}) for value in (0.0, math.inf, math.nan)),
]


def test_options_out_of_range_are_refused():
    for kind, options in WRONG:
        ((name, value),) = options.items()
        refuses(ConfigError, (f"{name}={value!r}", functools.partial(kind, **options)))
