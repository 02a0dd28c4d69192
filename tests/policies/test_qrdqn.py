"""QR-DQN: its loss by hand and against NumPy, one update against NumPy."""

import action_values as av
import numpy as np
import pytest
from fakes import VECTOR, discrete, needs_kernels
from numeric import assert_gradient, t, value

from minding.engine.process.runtime import ms, to_device
from minding.policies.ops.distributional import QuantileLoss, midpoints, quantile_huber

pytestmark = pytest.mark.eager

SMALL = {"policy.model.n_quantiles": 5}
CONTRACT = {"qrdqn": (VECTOR, discrete(3), {**SMALL, **av.DUELING, "policy.learn.target.freq": 4})}
RESUMES = {}
"""IQN's has all that it keeps, and more draws."""
ALTERNATIVES = av.ALTERNATIVES

QUANTILES = 5


@pytest.fixture(params=["plain", pytest.param("kernel", marks=needs_kernels)])
def huber(request):
    """The loss as MindSpore's operations, and as a kernel."""

    def in_one_kernel(quantiles, levels, target, kappa):
        made = QuantileLoss(kappa)
        assert made.fused is not None
        return made(quantiles, levels, target)[0]

    return quantile_huber if request.param == "plain" else in_one_kernel


def test_levels_are_the_middles_of_equal_shares():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert midpoints(1).tolist() == [0.5]


@pytest.mark.parametrize(("kappa", "samples"), [(0.3, 7), (1.0, 8), (4.0, 19)])
def test_the_quantile_huber_loss_equals_the_formula(huber, kappa, samples):
    rng = np.random.default_rng(0)
    target, levels = rng.normal(0.0, 2.0, (4, samples)).astype(np.float32), midpoints(QUANTILES)
    assert_gradient(
        lambda x: huber(x, to_device(levels), to_device(target), kappa).sum(),
        lambda x: av.np_quantile_huber(x, levels, target, kappa).sum(),
        rng.normal(0.0, 2.0, (4, QUANTILES)),
    )


def test_nan_reaches_the_loss_of_its_row(huber):
    target = to_device(np.arange(18.0, dtype=np.float32).reshape(2, 9))
    quantiles = t([1.0, np.nan], [0.0, 0.0])
    loss = value(huber(quantiles, t(0.25, 0.75), target, 1.0))
    assert np.isnan(loss[0])
    assert np.isfinite(loss[1])


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_kernels)])
def test_no_gradient_flows_into_the_target(fused):
    loss_of = QuantileLoss(1.0)
    if not fused:
        loss_of.fused = None
    quantiles, target = t([1.0, 3.0], [0.0, 0.0]), t([4.0, 6.0], [-1.0, 1.0])
    gradient = ms.grad(lambda x: loss_of(quantiles, t(0.25, 0.75), x)[0].sum())(target)
    assert value(gradient).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    loss, mean, priority = loss_of(quantiles, t(0.25, 0.75), target)
    assert value(mean).tolist() == [2.0, 0.0]
    # The second row is right on the average.
    assert value(priority).tolist() == [3.0, 0.0]
    assert value(loss)[1] > 0.0


built, bench, each = av.value_benches("qrdqn", av.KINDS, learn={"grad_norm": 0.0}, **SMALL)


class TestUpdate(av.ActionValueTests):
    algorithm = "qrdqn"
    model = SMALL

    def values(self, p, part, obs):
        return av.np_atoms(p, part, obs, QUANTILES).mean(axis=2)

    def of_best(self, p, obs, best):
        return av.np_atoms(p, "target", obs, QUANTILES)[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        best = self.best(bench, p, rows["next_obs"])
        return av.np_returns(rows, self.of_best(p, rows["next_obs"], best))

    def step(self, bench, p, rows, goal, draw):
        chosen = av.np_atoms(p, "net", rows["obs"], QUANTILES)[av.AT, rows["action"]]
        loss = av.np_quantile_huber(chosen, midpoints(QUANTILES), goal, bench.settings.kappa)
        return loss, chosen.mean(axis=1), np.abs(goal.mean(axis=1) - chosen.mean(axis=1))
