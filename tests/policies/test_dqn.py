"""DQN: one update against NumPy, the target's schedule, exploration."""

import copy
import dataclasses

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, mask_of, rows_of, set_rate

from minding.engine.data.batch import RowLayout
from minding.engine.errors import MindingError
from minding.policies import get_policy_class

CONTRACT = {
    "dqn": (VECTOR, discrete(3), {"policy.learn.target.freq": 4, "policy.model.dueling": True}),
    "dqn, prioritized": (VECTOR, discrete(3), {"policy.other.replay": "prioritized", "policy.learn.target.freq": 4}),
    "dqn, masked": (dict_of(action_mask=mask_of(3), observation=VECTOR), discrete(3), {}),
}
SIGNATURES = 2
"""One for calls that move the target, one for the others."""
LEARNS = {
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    "policy.learn.learning_rate": 0.005,
    "policy.learn.target.freq": 20,
    "policy.other.eps.decay": 1000,
}
RESUMES = {
    "DQN, n-step": ("CartPole-v1", ("policy.learn.nstep=2", "policy.learn.target.freq=5")),
    "DQN, images stored once": ("minding/PixelCatch-v0", ("policy.learn.nstep=2",)),
    "DQN, prioritized": ("CartPole-v1", ("policy.other.replay=prioritized", "policy.other.priority.beta_steps=50")),
    "DQN with action masks": ("minding/MaskedGrid-v0", ("env.info_keys=[action_mask]",)),
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=prioritized")

STEPS, BATCH, ROWS = 2, 8, 32


INDEX = np.tile(np.arange(BATCH), (STEPS, 1))


def rows(policy):
    return rows_of(RowLayout(policy.learn_mode.fields), ROWS, np.random.default_rng(0), {"action": 3})


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
        "prioritized": {"policy.learn.target.freq": 4, "policy.other.replay": "prioritized"},
    }
    return {
        kind: get_policy_class("dqn")(tiny_config("dqn", VECTOR, discrete(3), **overrides))
        for kind, overrides in kinds.items()
    }


@pytest.fixture(scope="module")
def batch_of(built):
    """(kind, rows) -> a batch of the first rows, twice."""
    batches = {kind: Batches(policy, ROWS) for kind, policy in built.items()}
    return lambda kind, values: batches[kind](values, INDEX)


@pytest.fixture
def policies(built):
    """The policies, put back where they were before the test."""
    states = {kind: copy.deepcopy(policy.state_dict()) for kind, policy in built.items()}
    yield built
    for kind, policy in built.items():
        policy.load_state_dict(states[kind])
        set_rate(policy, 1e-3)


@pytest.mark.parametrize("kind", ["double", "plain"])
def test_the_update_computes_the_loss_of_its_formula(policies, batch_of, kind):
    policy = policies[kind]
    online, target = policy.root.net, policy.root.target
    # Networks that differ, and steps too small to change them.
    for cell in (target.torso, target.advantage):
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.3
    set_rate(policy, 1e-12)
    policy.cfg.learn.target.tau = 1e-12
    values = rows(policy)
    metrics = policy.learn_mode.forward(batch_of(kind, values)).metrics
    policy.cfg.learn.target.tau = 0.25

    taken = {name: value[:BATCH] for name, value in values.items()}
    # The normalisers have seen nothing yet: they let observations pass.
    q, next_online = q_values(online, taken["obs"]), q_values(online, taken["next_obs"])
    next_target = q_values(target, taken["next_obs"])
    best = (next_online if kind == "double" else next_target).argmax(axis=1)
    at = np.arange(BATCH)
    y = taken["reward"] + taken["discount"] * (1 - taken["terminated"]) * next_target[at, best]
    error = np.abs(q[at, taken["action"]] - y)
    loss = np.where(error <= 1, 0.5 * error**2, error - 0.5).mean()
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics["q_value"] == pytest.approx(q[at, taken["action"]].mean(), rel=1e-3, abs=1e-5)
    assert (metrics["grad_norm"] > 0) == (kind == "double")


def test_errors_of_rows_are_weighted_and_are_their_priorities(policies, batch_of):
    policy = policies["prioritized"]
    for cell in (policy.root.target.torso, policy.root.target.advantage):
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.3
    set_rate(policy, 1e-12)
    values = rows(policy)
    weight = np.tile(np.linspace(0.1, 1, BATCH, dtype=np.float32), (STEPS, 1))
    output = policy.learn_mode.forward(dataclasses.replace(batch_of("prioritized", values), weight=weight))

    taken = {name: value[:BATCH] for name, value in values.items()}
    q, next_online = q_values(policy.root.net, taken["obs"]), q_values(policy.root.net, taken["next_obs"])
    best, at = next_online.argmax(axis=1), np.arange(BATCH)
    next_value = q_values(policy.root.target, taken["next_obs"])[at, best]
    y = taken["reward"] + taken["discount"] * (1 - taken["terminated"]) * next_value
    error = np.abs(q[at, taken["action"]] - y)
    loss = (weight[0] * np.where(error <= 1, 0.5 * error**2, error - 0.5)).mean()
    assert output.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    assert output.priorities.shape == INDEX.shape
    np.testing.assert_allclose(output.priorities, [error, error], rtol=1e-3, atol=1e-5)


def q_values(net, x):
    """The network in float64: one hidden layer."""
    hidden, head = net.torso.layers[0], net.advantage
    h = np.maximum(x.astype(np.float64) @ hidden.weight.asnumpy().T + hidden.bias.asnumpy(), 0.0)
    return h @ head.weight.asnumpy().T + head.bias.asnumpy()


def weights(cell):
    return [p.asnumpy().copy() for p in cell.get_parameters()]


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


def test_a_periodic_target_stays_until_it_is_due_and_then_is_the_online_network(policies, batch_of):
    policy = policies["double"]
    batch = batch_of("double", rows(policy))
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
    batch = batch_of("plain", rows(policy))
    before = weights(policy.root.target.torso)
    policy.learn_mode.forward(batch)
    after = weights(policy.root.target.torso)
    assert not equal(before, after)
    assert not equal(after, weights(policy.root.net.torso))


def test_the_schedule_of_the_target_goes_on_in_a_loaded_policy(policies, tiny_config):
    policy = policies["double"]
    policy.load_state_dict({**policy.state_dict(), "learn_steps": 41})
    fresh = get_policy_class("dqn")(tiny_config("dqn", VECTOR, discrete(3), **{"policy.model.normalize_obs": True}))
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


def test_the_normaliser_learns_from_the_rows_that_were_sampled_only(policies, batch_of):
    policy = policies["double"]
    values = rows(policy)
    for cell in (policy.root.net, policy.root.target):
        normalizer = cell.encoder.encoders[0].normalizer
        normalizer.moments.load_state_dict({"mean": np.zeros(4), "var": np.ones(4), "count": 0})
    values["obs"][BATCH:] = 1e6
    policy.learn_mode.forward(batch_of("double", values))
    for cell in (policy.root.net, policy.root.target):
        moments = cell.encoder.encoders[0].normalizer.moments
        assert moments.count == BATCH
        np.testing.assert_allclose(moments.mean, values["obs"][:BATCH].mean(0), rtol=1e-5)
