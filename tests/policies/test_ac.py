"""AC: one update against the book's by hand, in float64: the actor's and the critic's step have sizes of their own."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, dict_of, discrete, space_of
from float64_networks import finite_differences, gradients, normal, scores, state_value

from minding.engine.data.returns import gae

pytestmark = pytest.mark.eager

CONTRACT = {"ac": (dict_of(a=VECTOR, b=discrete(2)), composite(3, 2, numbers=2), {"policy.model.activation": "relu"})}
RESUMES = {}
LEARNS = {
    "policy.collect.n_sample": 8,
    "policy.learn.learning_rate": 0.01,
    "policy.learn.critic_learning_rate": 0.03,
    "policy.learn.entropy_weight": 0.01,
}

BATCH, GAMMA = 12, 0.9
LEARN = {"learning_rate": 0.01, "critic_learning_rate": 0.04, "grad_norm": 1000.0, "gamma": GAMMA}
built, bench = kit.benches("ac", action=space_of(2), count=BATCH, learn=LEARN)


@pytest.fixture
def rows(bench):
    """One step of each of twelve environments under the policy, with its one-step errors; a third of them end."""
    rng = np.random.default_rng(0)
    values = {**bench.rows(), "reward": rng.standard_normal(BATCH)}
    values["next_obs"] = rng.standard_normal((BATCH, 4)).astype(np.float32)
    values["terminated"] = np.arange(BATCH) % 3 == 0
    value, next_value = (state_value(bench.params, values[name]).astype(np.float32) for name in ("obs", "next_obs"))
    ends = values["terminated"][None]
    advantage = gae(values["reward"][None], value[None], next_value[None], ends, ends, gamma=GAMMA, gae_lambda=0.0)[0]
    return {**values, "advantage": advantage, "return": advantage + value}


def test_gradients_are_those_of_the_book(bench, rows):
    p = bench.params
    value, following = (state_value(p, rows[name]) for name in ("obs", "next_obs"))
    delta = rows["reward"] + GAMMA * np.where(rows["terminated"], 0.0, following) - value

    def log_prob(p):
        return normal(scores(p, "net.actor", rows["obs"]), p["net.head.log_std"], rows["action"])[0]

    metrics = bench.learn(rows).metrics
    assert metrics["value_loss"] == pytest.approx(0.5 * (delta**2).mean(), rel=1e-5)
    assert metrics["policy_loss"] == pytest.approx(-(delta * log_prob(p)).mean(), rel=1e-5, abs=1e-6)
    # Steps go against the gradient: w grows by delta grad V, theta by delta grad log pi.
    critic = finite_differences(lambda x: -(delta * state_value(x, rows["obs"])).mean(), p, "net")
    actor = finite_differences(lambda x: -(delta * log_prob(x)).mean(), p, "net")
    names = [name for name in p if name.startswith("net.")]
    for group, slopes, parts in (
        ("critic", critic, ("net.critic", "net.value")),
        ("actor", actor, ("net.actor", "net.head")),
    ):
        wanted = [slope for name, slope in zip(names, slopes, strict=True) if name.startswith(parts)]
        for grad, slope in zip(gradients(bench.policy, group), wanted, strict=True):
            np.testing.assert_allclose(grad, slope, rtol=1e-4, atol=1e-6)
        norm = np.sqrt(sum((slope**2).sum() for slope in wanted))
        assert metrics[f"{group}_grad_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_step_sizes_of_actor_and_critic_fall_to_zero(bench, rows, progress, share):
    before = bench.params
    metrics = bench.learn(rows, progress=progress).metrics
    assert metrics["learning_rate_actor"] == pytest.approx(0.01 * share)
    assert metrics["learning_rate_critic"] == pytest.approx(0.04 * share)
    # The first step of Adam is as long as the learning rate.
    for name, rate in (("net.head.linear.bias", 0.01), ("net.value.bias", 0.04)):
        moved = np.abs(bench.params[name] - before[name])
        assert moved == pytest.approx(np.full(moved.shape, rate * share), rel=1e-2)
