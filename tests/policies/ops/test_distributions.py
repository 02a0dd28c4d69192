"""Distributions: literal numbers, compiled maths against NumPy sampling, frequencies."""

import math

import numpy as np
import pytest
from fakes import composite, discrete, multi_discrete, space_of

from minding.engine.process.runtime import ms, nn, to_device
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.acting.sampling import (
    Categorical,
    Composite,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
)
from minding.policies.networks.heads import make_action_head
from minding.policies.ops import distributions


class Compile(nn.Cell):
    def __init__(self, function):
        super().__init__()
        self.function = function

    @ms.jit
    def construct(self, *inputs):
        return self.function(*inputs)


def run(function, *arrays):
    outputs = Compile(function)(*[to_device(np.asarray(a)) for a in arrays])
    return [o.asnumpy() for o in outputs]


def f32(*rows):
    return np.array(rows, np.float32)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_squashed_gaussian_stays_finite_far_out():
    action, log_prob = run(distributions.squashed_gaussian, f32([50.0], [-50.0]), f32([2.0], [2.0]), f32([5.0], [-5.0]))
    assert action.tolist() == [[1.0], [-1.0]]
    assert np.isfinite(log_prob).all()


def test_choices_and_numbers_add_up_by_hand():
    # A choice of probability 3/4; a number 2 standard deviations from its mean, and one at its mean.
    head = make_action_head(composite(2, numbers=2), 3, rng(), log_std=0.0)
    params = f32([0.0, math.log(3.0)]), f32([1.0, -1.0]), np.log(f32(0.5, 2.0))

    def likelihood(action, *params):
        return head.log_prob_entropy(params, action)

    log_prob, entropy = run(likelihood, f32([1.0, 2.0, -1.0]), *params)
    normal = -math.log(0.5) - math.log(2.0) - math.log(2 * math.pi)
    np.testing.assert_allclose(log_prob, [math.log(0.75) - 2.0 + normal], rtol=1e-6)
    spread = math.log(0.5) + math.log(2.0) + 1.0 + math.log(2 * math.pi)
    np.testing.assert_allclose(entropy, [math.log(4) - 0.75 * math.log(3) + spread], rtol=1e-6)


def test_an_illegal_choice_beside_numbers_is_never_drawn():
    logits = np.tile(f32(0.0, ILLEGAL, 1.0, ILLEGAL, 0.0), (1000, 1))
    params = (logits, np.zeros((1000, 1), np.float32), f32(0.0))
    action, log_prob = Composite([3, 2]).sample(params, rng())
    assert set(action[:, 0]) == {0.0, 2.0}
    assert set(action[:, 1]) == {1.0}
    np.testing.assert_allclose(log_prob, Composite([3, 2]).log_prob(params, action), atol=1e-5)


HEADS = {
    "categorical": (discrete(4), 4),
    "multi_categorical": (multi_discrete(3, 2, 4), 9),
    "gaussian": (space_of(3), 3),
    "gaussian of a matrix": (space_of(3, 2), 6),
    "composite": (composite(3, 2, numbers=2), 5),
}


@pytest.mark.parametrize("name", HEADS)
def test_drawn_actions_have_the_compiled_log_probabilities(name):
    space, size = HEADS[name]
    head = make_action_head(space, 5, rng(), gain=1.0, log_std=-0.7)
    logits = rng(1).standard_normal((200, size)).astype(np.float32)
    params = (logits, head.log_std.asnumpy()) if name.startswith("gaussian") else (logits,)
    if name == "composite":
        params = (logits, rng(3).standard_normal((200, 2)).astype(np.float32), head.numbers.log_std.asnumpy())
    action, log_prob = head.distribution.sample(params, rng(2))
    if space["kind"] == "box":
        action = action.reshape(-1, *space["shape"])
    stored = action.astype(np.int32 if "discrete" in space["kind"] else np.float32)

    def recompute(action, *params):
        return head.log_prob_entropy(params, action)

    compiled, _ = run(recompute, stored, *params)
    assert log_prob.shape == compiled.shape == (200,)
    np.testing.assert_allclose(log_prob, compiled, atol=1e-5)
    np.testing.assert_allclose(head.distribution.log_prob(params, stored), compiled, atol=1e-5)


def chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


def test_categorical_draws_have_their_probabilities():
    probabilities = np.array([0.1, 0.2, 0.3, 0.4])
    logits = np.tile(np.log(probabilities) + 5.0, (20_000, 1)).astype(np.float32)
    action, log_prob = Categorical().sample((logits,), rng(3))
    # 3 degrees of freedom: below 16.3 in 99.9 % of cases.
    assert chi_square(np.bincount(action, minlength=4), 20_000 * probabilities) < 16.3
    np.testing.assert_allclose(log_prob, np.log(probabilities)[action], rtol=1e-4)


class EndOfRange:
    def random(self, count, dtype):
        return np.full(count, np.nextafter(dtype(1), dtype(0)), dtype)


def test_a_draw_at_the_very_end_gives_a_possible_action():
    logits = np.log(np.tile(f32(1.0, 0.7, 0.1, 1e-3), (3, 1)))
    logits[1, 3] = -200.0
    logits[2, 2:] = -200.0
    action, log_prob = Categorical().sample((logits,), EndOfRange())
    assert action.tolist() == [3, 2, 1]
    assert np.isfinite(log_prob).all()


def test_the_mode_is_the_most_likely_action():
    logits = f32([0.0, 2.0, 1.0, 5.0, 4.0])
    assert Categorical().mode((logits,)).tolist() == [3]
    assert MultiCategorical([3, 2]).mode((logits,)).tolist() == [[1, 0]]
    assert DiagonalGaussian().mode((logits, None)) is logits
    np.testing.assert_allclose(SquashedGaussian().mode((logits, None)), np.tanh(logits))
