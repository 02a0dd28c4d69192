"""DQN: one update against NumPy, the target's schedule, exploration."""

import copy

import numpy as np
import pytest
from action_values import (
    ALTERNATIVES,
    AT,
    BATCH,
    LEARNS,
    MASKED,
    PRIORITIZED,
    SIGNATURES,
    STEPS,
    batches_of,
    best_actions,
    disturbed,
    learn,
    linear,
    make_policy,
    np_features,
    np_huber,
    np_returns,
    params,
    random_rows,
)
from fakes import VECTOR, discrete

from minding.engine.errors import MindingError

CONTRACT = {
    "dqn": (VECTOR, discrete(3), {"policy.learn.target.freq": 4, "policy.model.dueling": True}),
    "dqn, prioritized": (VECTOR, discrete(3), {**PRIORITIZED, "policy.learn.target.freq": 4}),
    "dqn, masked": (MASKED, discrete(3), {}),
}
RESUMES = {
    "DQN, n-step": ("CartPole-v1", ("policy.learn.nstep=2", "policy.learn.target.freq=5")),
    "DQN, images stored once": ("minding/PixelCatch-v0", ("policy.learn.nstep=2",)),
    "DQN with hindsight": ("minding/BitFlip-v0", ("chain=hindsight",)),
    "DQN, prioritized, with action masks": (
        "minding/MaskedGrid-v0",
        (
            *("env.info_keys=[action_mask]", "policy.other.replay=prioritized"),
            "policy.other.priority.beta_steps=50",
        ),
    ),
}
__all__ = ["ALTERNATIVES", "LEARNS", "SIGNATURES"]


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double with a periodic target, plain with a soft one, and one with priorities."""
    kinds = {
        "double": {"policy.learn.target.freq": 4, "policy.model.normalize_obs": True},
        "plain": {
            "policy.learn.double": False,
            "policy.learn.target.kind": "soft",
            "policy.learn.target.tau": 0.25,
            "policy.learn.grad_norm": 0.0,
        },
        "prioritized": {"policy.learn.target.freq": 4, **PRIORITIZED},
    }
    return {kind: make_policy(tiny_config, "dqn", **overrides) for kind, overrides in kinds.items()}


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def disturbed_policies(built):
    yield from disturbed(built)


@pytest.fixture
def policies(built):
    """The policies, put back where they were before the test."""
    states = {kind: copy.deepcopy(policy.state_dict()) for kind, policy in built.items()}
    yield built
    for kind, policy in built.items():
        policy.load_state_dict(states[kind])


def q_values(p, part, x):
    return linear(p, f"{part}.advantage", np_features(p, part, x))


@pytest.mark.parametrize(
    "kind", ["double", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("plain", "prioritized"))]
)
def test_the_update_computes_the_loss_of_its_formula(disturbed_policies, batch_of, kind):
    policy = disturbed_policies[kind]
    policy.cfg.learn.target.tau = 1e-12
    p = params(policy)
    # The normalizers have seen nothing yet: they let observations pass.
    rows, weight, output = learn(policy, batch_of, kind)
    policy.cfg.learn.target.tau = 0.25

    next_target = q_values(p, "target", rows["next_obs"])
    choosing = next_target if kind == "plain" else q_values(p, "net", rows["next_obs"])
    best = best_actions(choosing, next_target, kind != "plain")
    y = np_returns(rows, next_target[AT, best][:, None])[:, 0]
    chosen = q_values(p, "net", rows["obs"])[AT, rows["action"]]
    assert output.metrics["loss"] == pytest.approx((weight * np_huber(chosen - y)).mean(), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx(chosen.mean(), rel=1e-4, abs=1e-6)
    assert (output.metrics["grad_norm"] > 0) == (kind != "plain")
    if kind == "prioritized":
        np.testing.assert_allclose(output.priorities, [np.abs(chosen - y)] * STEPS, rtol=1e-4, atol=1e-6)


def weights(cell):
    return [p.asnumpy().copy() for p in cell.get_parameters()]


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


def test_a_periodic_target_stays_until_it_is_due_and_then_is_the_online_network(policies, batch_of):
    policy = policies["double"]
    batch = batch_of("double", random_rows(policy))
    start = policy.state_dict()
    before = weights(policy.root.target.torso)
    for done, changes, is_online in ((0, False, False), (1, False, False), (2, True, True), (3, True, False)):
        policy.load_state_dict({**start, "learn_steps": done})
        policy.learn_mode.forward(batch)
        after = weights(policy.root.target.torso)
        # Steps done + 1 and done + 2 of the run; the copy follows the fourth.
        assert equal(before, after) != changes
        assert equal(after, weights(policy.root.net.torso)) == is_online


def test_a_soft_target_moves_a_little_in_every_call(policies, batch_of):
    policy = policies["plain"]
    batch = batch_of("plain", random_rows(policy))
    before = weights(policy.root.target.torso)
    policy.learn_mode.forward(batch)
    after = weights(policy.root.target.torso)
    assert not equal(before, after)
    assert not equal(after, weights(policy.root.net.torso))


def test_the_schedule_of_the_target_goes_on_in_a_loaded_policy(policies, tiny_config):
    policy = policies["double"]
    policy.load_state_dict({**policy.state_dict(), "learn_steps": 41})
    fresh = make_policy(tiny_config, "dqn", **{"policy.model.normalize_obs": True})
    fresh.load_state_dict(policy.state_dict())
    assert fresh.state_dict()["learn_steps"] == 41


def test_eps_is_the_share_of_random_actions(policies):
    policy = policies["double"]
    obs = np.random.default_rng(1).standard_normal((6000, 4)).astype(np.float32)
    greedy = policy.eval_mode.forward(obs)
    assert np.array_equal(policy.collect_mode.forward(obs, eps=0.0)["action"], greedy)
    changed = (policy.collect_mode.forward(obs, eps=0.3)["action"] != greedy).mean()
    # A random action is the greedy one in a third of the cases.
    assert changed == pytest.approx(0.2, abs=0.02)


def test_it_has_no_state_value(policies):
    with pytest.raises(MindingError, match="dqn has no state value; gae_estimator fits actor-critic policies"):
        policies["double"].collect_mode.value(np.zeros((1, 4), np.float32))


def test_the_normalizer_learns_from_the_rows_that_were_sampled_only(policies, batch_of):
    policy = policies["double"]
    values = random_rows(policy)
    for cell in (policy.root.net, policy.root.target):
        normalizer = cell.encoder.encoders[0].normalizer
        normalizer.moments.load_state_dict({"mean": np.zeros(4), "var": np.ones(4), "count": 0})
    values["obs"][BATCH:] = 1e6
    policy.learn_mode.forward(batch_of("double", values))
    for cell in (policy.root.net, policy.root.target):
        moments = cell.encoder.encoders[0].normalizer.moments
        assert moments.count == BATCH
        np.testing.assert_allclose(moments.mean, values["obs"][:BATCH].mean(0), rtol=1e-5)
