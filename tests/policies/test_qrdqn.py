"""QR-DQN: its loss by hand and against NumPy, one update against NumPy."""

import copy
import dataclasses

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, draw_masks, mask_of, rows_of, set_rate
from numeric import assert_gradient, t, value

from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import ms, to_device
from minding.policies import get_policy_class
from minding.policies.ops.quantiles import midpoints, quantile_huber
from minding.policies.qrdqn import qrdqn_loss

SMALL = {"policy.model.n_quantiles": 5}
CONTRACT = {
    "qrdqn": (VECTOR, discrete(3), {**SMALL, "policy.learn.target.freq": 4, "policy.model.dueling": True}),
    "qrdqn, prioritized": (VECTOR, discrete(3), {**SMALL, "policy.other.replay": "prioritized"}),
    "qrdqn, masked": (dict_of(action_mask=mask_of(3), observation=VECTOR), discrete(3), SMALL),
}
SIGNATURES = 2
"""One for calls that move the target, one for the others."""
LEARNS = {
    "policy.model.n_quantiles": 8,
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
    "QR-DQN, prioritized": (
        "CartPole-v1",
        ("policy.model.n_quantiles=5", "policy.other.replay=prioritized", "policy.learn.target.freq=5"),
    ),
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=prioritized")

STEPS, BATCH, ROWS, ACTIONS, QUANTILES = 2, 8, 32, 3, 5
INDEX = np.tile(np.arange(BATCH), (STEPS, 1))


# The loss


def test_levels_are_the_middles_of_equal_shares():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert midpoints(1).tolist() == [0.5]


def test_the_quantile_huber_loss_by_hand():
    # Errors target - quantile: of quantile 0 at level 1/4 they are -1/2 and 3, of quantile 2 at 3/4 -5/2 and 1.
    # Shares |tau - 1{u < 0}|: 3/4, 1/4 and 1/4, 3/4; Huber losses 1/8, 5/2 and 2, 1/2.
    loss = quantile_huber(t([0.0, 2.0]), t(0.25, 0.75), t([-0.5, 3.0]), 1.0)
    assert value(loss).tolist() == [(0.75 / 8 + 0.25 * 2.5) / 2 + (0.25 * 2.0 + 0.75 * 0.5) / 2]
    # Linear from 2 on: 3 costs 2 (3 - 1), -5/2 costs 2 (5/2 - 1).
    loss = quantile_huber(t([0.0, 2.0]), t(0.25, 0.75), t([-0.5, 3.0]), 2.0)
    assert value(loss).tolist() == [(0.75 / 8 + 0.25 * 4.0) / 2 + (0.25 * 3.0 + 0.75 * 0.5) / 2]


def np_quantile_huber(quantiles, levels, target, kappa):
    """The formula with a loop over pairs, float64 (B,)."""
    loss = np.zeros(len(quantiles))
    for b, i, j in np.ndindex(*quantiles.shape, target.shape[1]):
        u = float(target[b, j]) - float(quantiles[b, i])
        huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
        loss[b] += abs(float(levels[i]) - (u < 0)) * huber / target.shape[1]
    return loss


@pytest.mark.parametrize("kappa", [0.3, 1.0, 4.0])
def test_the_quantile_huber_loss_equals_the_formula_and_has_its_gradient(kappa):
    rng = np.random.default_rng(0)
    target, levels = rng.normal(0.0, 2.0, (4, 7)).astype(np.float32), midpoints(QUANTILES)
    assert_gradient(
        lambda x: quantile_huber(x, to_device(levels), to_device(target), kappa).sum(),
        lambda x: np_quantile_huber(x, levels, target, kappa).sum(),
        rng.normal(0.0, 2.0, (4, QUANTILES)),
    )


def test_levels_may_differ_from_row_to_row():
    rng = np.random.default_rng(1)
    quantiles, target, levels = rng.random((3, 2, 4)).astype(np.float32)
    loss = value(quantile_huber(t(*quantiles), t(*levels), t(*target), 1.0))
    for b in range(2):
        expected = np_quantile_huber(quantiles[b : b + 1], levels[b], target[b : b + 1], 1.0)
        np.testing.assert_allclose(loss[b], expected[0], rtol=1e-5)


def test_minimising_it_finds_the_quantiles():
    # Of 0, 1, ..., 9 with a small kappa; the slope is 0 between the neighbours of each level.
    target, levels = np.arange(10.0), np.array([0.25, 0.55, 0.85])

    def slope(quantiles):
        loss = ms.grad(lambda x: quantile_huber(x, t(*levels), t([*target]), 1e-3).sum())
        return value(loss(t([*quantiles])))[0]

    np.testing.assert_array_less(slope([1.5, 4.5, 7.5]), 0.0)
    np.testing.assert_array_less(0.0, slope([2.5, 5.5, 8.5]))


def test_no_gradient_flows_into_the_target_and_the_priority_is_the_error_of_the_mean():
    quantiles, target = t([1.0, 3.0], [0.0, 0.0]), t([4.0, 6.0], [-1.0, 1.0])
    gradient = ms.grad(lambda x: qrdqn_loss(quantiles, x, t(0.25, 0.75), 1.0)[0].sum())(target)
    assert value(gradient).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    loss, mean, priority = qrdqn_loss(quantiles, target, t(0.25, 0.75), 1.0)
    assert value(mean).tolist() == [2.0, 0.0]
    # The second row is right on the average.
    assert value(priority).tolist() == [3.0, 0.0]
    assert value(loss)[1] > 0.0


# The update


def built_policy(tiny_config, **overrides):
    return get_policy_class("qrdqn")(tiny_config("qrdqn", VECTOR, discrete(ACTIONS), **SMALL, **overrides))


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double; with the target's choice, dueling and another kappa; and prioritized."""
    plain = {"policy.learn.double": False, "policy.model.dueling": True, "policy.learn.kappa": 0.5}
    return {
        "double": built_policy(tiny_config),
        "plain": built_policy(tiny_config, **plain),
        "prioritized": built_policy(tiny_config, **{"policy.other.replay": "prioritized"}),
    }


@pytest.fixture(scope="module")
def batch_of(built):
    batches = {kind: Batches(policy, ROWS) for kind, policy in built.items()}
    return lambda kind, values: batches[kind](values, INDEX)


@pytest.fixture
def policies(built):
    """The policies, put back where they were before the test, with targets that differ."""
    states = {kind: copy.deepcopy(policy.state_dict()) for kind, policy in built.items()}
    rng = np.random.default_rng(7)
    for policy in built.values():
        for p in policy.root.target.get_parameters():
            p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)
        # Steps too small to change anything.
        set_rate(policy, 1e-12)
    yield built
    for kind, policy in built.items():
        policy.load_state_dict(states[kind])


def np_quantiles(net, x):
    """The network in float64, (B, A, N): one hidden layer, dueling if there is a value."""
    hidden = np.maximum(linear(net.torso.layers[0], x.astype(np.float64)), 0.0)
    atoms = linear(net.advantage, hidden).reshape(-1, ACTIONS, QUANTILES)
    if net.value is None:
        return atoms
    return linear(net.value, hidden)[:, None] + atoms - atoms.mean(axis=1, keepdims=True)


def linear(layer, x):
    return x @ layer.weight.asnumpy().T.astype(np.float64) + layer.bias.asnumpy()


@pytest.mark.parametrize("kind", ["double", "plain", "prioritized"])
def test_the_update_computes_the_loss_of_its_formula(policies, batch_of, kind):
    policy = policies[kind]
    values = rows_of(RowLayout(policy.learn_mode.fields), ROWS, np.random.default_rng(0), {"action": ACTIONS})
    # True ends among them.
    values["terminated"][::3], values["terminated"][1::3] = 1.0, 0.0
    batch, weight = batch_of(kind, values), np.ones(BATCH)
    if kind == "prioritized":
        weight = np.linspace(0.1, 1.0, BATCH)
        batch = dataclasses.replace(batch, weight=np.tile(weight.astype(np.float32), (STEPS, 1)))
    output = policy.learn_mode.forward(batch)

    taken = {name: each[:BATCH] for name, each in values.items()}
    at, online, target = np.arange(BATCH), policy.root.net, policy.root.target
    next_quantiles = np_quantiles(target, taken["next_obs"])
    choosing = next_quantiles if kind == "plain" else np_quantiles(online, taken["next_obs"])
    best = choosing.mean(axis=2).argmax(axis=1)
    assert (best != next_quantiles.mean(axis=2).argmax(axis=1)).any() == (kind != "plain")
    decay = taken["discount"] * (1.0 - taken["terminated"])
    y = taken["reward"][:, None] + decay[:, None] * next_quantiles[at, best]
    chosen = np_quantiles(online, taken["obs"])[at, taken["action"]]
    kappa = 0.5 if kind == "plain" else 1.0
    loss = np_quantile_huber(chosen, midpoints(QUANTILES), y, kappa)
    assert output.metrics["loss"] == pytest.approx((weight * loss).mean(), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx(chosen.mean(), rel=1e-5, abs=1e-6)
    assert output.metrics["grad_norm"] > 0.0
    if kind == "prioritized":
        errors = np.abs(y.mean(axis=1) - chosen.mean(axis=1))
        np.testing.assert_allclose(output.priorities, [errors] * STEPS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_the_next_action_is_the_best_legal_one(tiny_config, double):
    space = dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR)
    policy = get_policy_class("qrdqn")(tiny_config("qrdqn", space, discrete(ACTIONS), **SMALL))
    root, rng = policy.root, np.random.default_rng(5)
    root.double = double
    for p in root.target.get_parameters():
        p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)
    obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
    found = value(root.next_atoms({"next_obs": (to_device(mask), to_device(obs))}))
    quantiles, means = (
        np_quantiles(root.target, obs),
        np_quantiles(root.net if double else root.target, obs).mean(axis=2),
    )
    best = np.where(mask, means, -np.inf).argmax(axis=1)
    assert (best != means.argmax(axis=1)).any()
    np.testing.assert_allclose(found, quantiles[np.arange(30), best], atol=1e-5)


def test_the_values_that_decide_are_the_means_of_the_quantiles(policies):
    policy = policies["plain"]
    obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    means = np_quantiles(policy.net, obs).mean(axis=2)
    np.testing.assert_allclose(policy.actors["eval"].outputs(obs)[0], means, atol=1e-5)
    assert np.array_equal(policy.eval_mode.forward(obs), means.argmax(axis=1))
