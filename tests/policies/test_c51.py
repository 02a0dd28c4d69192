"""C51: edges of the projection by hand, one update against NumPy."""

import action_values as av
import numpy as np
import pytest
from fakes import VECTOR, discrete
from numeric import t, value

from minding.engine.process.runtime import to_device
from minding.policies.networks.return_distribution import SupportMean
from minding.policies.ops.distributional import beyond, moved, project

pytestmark = pytest.mark.eager

SMALL = {"policy.model.n_atoms": 7, "policy.model.v_min": -2.0, "policy.model.v_max": 1.0}
CONTRACT = {"c51": (VECTOR, discrete(3), {**SMALL, **av.DUELING, "policy.learn.target.freq": 4})}
RESUMES = {}
"""Rainbow's has its network, its target and its priorities."""
ALTERNATIVES = av.ALTERNATIVES

ATOMS = 7
SUPPORT = np.linspace(-2.0, 1.0, ATOMS)


def projected(probability, positions, count=3):
    places = to_device(np.arange(count, dtype=np.float32))
    return value(project(t(*probability), t(*positions), places)).tolist()


@pytest.mark.parametrize(("low", "high", "count"), [(-10.0, 10.0, 51), (9999.0, 10000.0, 51), (-3e5, -2e5, 21)])
def test_atoms_lie_where_they_do_in_float64(low, high, count):
    support, mean = np.linspace(low, high, count), SupportMean(low, high, count)
    decay = np.float32([0.99, 0.9801, 0.0])
    target = np.array([low + 0.3 * (high - low), high, low + 0.51 * (high - low)])
    reward = (target - decay.astype(np.float64) * target).astype(np.float32)
    found = value(moved(t(*reward), t(*decay), mean.low, mean.spacing, to_device(np.arange(count, dtype=np.float32))))
    returns = reward.astype(np.float64)[:, None] + decay.astype(np.float64)[:, None] * support
    # A reward of 100,000 is itself known to 0.004 only.
    np.testing.assert_allclose(found, (returns - low) / ((high - low) / (count - 1)), atol=0.02)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_a_return_that_is_not_finite_is_not_hidden_by_the_bounds(x):
    moved = np.array(projected([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], [[x, 1.0, 2.0], [0.0, 1.0, 2.0]]))
    assert np.isnan(moved[0]).all()
    assert moved[1].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([0.0, 1.0, 2.0], 0.0),
        ([-0.5, 1.0, 2.5], 0.75),
        # On the last atom but for rounding, and an infinite one.
        ([2.0002, 0.0, 2.0], 0.0),
        ([0.5, np.inf, -np.inf], 0.5),
    ],
)
def test_the_probability_beyond_the_support_by_hand(positions, expected):
    places = to_device(np.arange(3, dtype=np.float32))
    assert value(beyond(t([0.5, 0.25, 0.25]), t(positions), places)).tolist() == [expected]


KINDS = {"double, prioritized": av.PRIORITIZED, "plain, dueling": {**av.DUELING, "learn": {"double": False}}}
built, bench, each = av.value_benches("c51", KINDS, learn={"grad_norm": 0.0}, **SMALL)


class CategoricalTests(av.ActionValueTests):
    def log_probability(self, p, part, obs, noise=None):
        return av.np_log_softmax(av.np_atoms(p, part, obs, ATOMS, noise))

    def values(self, p, part, obs, noise=None):
        return np.exp(self.log_probability(p, part, obs, noise)) @ SUPPORT

    def of_best(self, p, obs, best, noise=None):
        return np.exp(self.log_probability(p, "target", obs, noise))[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        following = self.of_best(p, rows["next_obs"], self.best(bench, p, rows["next_obs"]))
        return av.np_project(following, av.np_returns(rows, SUPPORT), SUPPORT)

    def step(self, bench, p, rows, goal, draw):
        log_p = self.log_probability(p, "net", rows["obs"], draw)[av.AT, rows["action"]]
        loss = -(goal * log_p).sum(axis=1)
        return loss, np.exp(log_p) @ SUPPORT, av.np_excess(goal, loss)


class TestUpdate(CategoricalTests):
    algorithm = "c51"
    model = SMALL

    def test_the_update_has_the_loss_and_gradient_of_its_formula(self, each):
        rows, p, _, metrics = self.check_update(each)
        following = self.of_best(p, rows["next_obs"], self.best(each, p, rows["next_obs"]))
        returns = av.np_returns(rows, SUPPORT)
        beyond_it = (following * ((returns < SUPPORT[0]) | (returns > SUPPORT[-1]))).sum(axis=1)
        assert metrics["clipped_mass"] == pytest.approx(beyond_it.mean(), rel=1e-5)


def test_a_support_that_is_too_small_is_reported_once(bench, caplog, monkeypatch):
    values = av.random_rows(bench)
    monkeypatch.setattr(bench.policy, "_warned_of_clipping", False)
    for scale, reports in ((0.0, 0), (100.0, 1), (100.0, 1)):
        share = bench.learn({**values, "reward": scale * np.abs(values["reward"])}, av.INDEX).metrics["clipped_mass"]
        assert (share > 0.2) == (scale > 0.0)
        warnings = [each.getMessage() for each in caplog.records if "beyond the support from -2 to 1" in each.message]
        assert len(warnings) == reports
    assert "set policy.model.v_min and policy.model.v_max" in warnings[0]
