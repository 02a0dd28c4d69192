"""IQN: its network and one update against NumPy, the fractions that it draws."""

import copy

import numpy as np
import pytest
from action_values import (
    ACTIONS,
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
    check_gradients,
    disturbed,
    learn,
    linear,
    make_policy,
    np_features,
    np_quantile_huber,
    np_returns,
    params,
    random_rows,
)
from fakes import VECTOR, discrete, draw_masks
from numeric import value

from minding.engine.process.runtime import to_device

SMALL = {
    "policy.model.n_cosines": 6,
    "policy.model.n_fractions": 5,
    "policy.learn.n_fractions": 4,
    "policy.learn.n_target_fractions": 3,
}
CONTRACT = {
    "iqn": (
        VECTOR,
        discrete(ACTIONS),
        {**SMALL, **PRIORITIZED, "policy.learn.target.freq": 4, "policy.model.dueling": True},
    ),
}
LEARNS = {**LEARNS, "policy.model.n_cosines": 16}
RESUMES = {
    "IQN, prioritized": (
        "CartPole-v1",
        ("policy.model.n_cosines=8", "policy.other.replay=prioritized", "policy.learn.target.freq=5"),
    ),
}
__all__ = ["ALTERNATIVES", "SIGNATURES"]

MIDDLES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""The K = 5 fixed fractions."""


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double; with the target's choice, dueling and another kappa; and prioritized."""
    plain = {"policy.learn.double": False, "policy.model.dueling": True, "policy.learn.kappa": 0.5}
    kinds = {"double": {}, "plain": plain, "prioritized": PRIORITIZED}
    return {
        kind: make_policy(tiny_config, "iqn", **SMALL, **{"policy.learn.grad_norm": 0.0}, **changes)
        for kind, changes in kinds.items()
    }


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def policies(built):
    yield from disturbed(built)


def quantiles(p, part, obs, fractions):
    """The network at fractions (N,) or (B, N), one after another: (B, A, N)."""
    features, made = np_features(p, part, obs), []
    for tau in np.broadcast_to(fractions, (len(obs), np.shape(fractions)[-1])).T.astype(np.float64):
        cosines = np.cos(np.pi * np.arange(6) * tau[:, None])
        seen = features * np.maximum(linear(p, f"{part}.embedding.layers.0", cosines), 0.0)
        q = linear(p, f"{part}.advantage", seen)
        if f"{part}.value.weight" in p:
            q = linear(p, f"{part}.value", seen) + q - q.mean(axis=1, keepdims=True)
        made.append(q)
    return np.stack(made, axis=2)


def means(p, part, obs):
    return quantiles(p, part, obs, MIDDLES).mean(axis=2)


def drawn_fractions(policy):
    """Those of the next learn call: (steps, B, N) and (steps, B, N')."""
    rng = copy.deepcopy(policy.learn_rng)
    return [rng.random((STEPS, BATCH, count), np.float32) for count in (4, 3)]


# The network


def test_the_quantile_function_by_hand(policies):
    net = policies["double"].net
    for p in net.get_parameters():
        p.asnumpy()[...] = 0.0
    net.torso.layers[0].bias.asnumpy()[:2] = [2.0, 3.0]
    # phi = (cos 0 + cos(2 pi tau), 1/2 - cos(pi tau)), above 0.
    weight = net.embedding.layers[0].weight.asnumpy()
    weight[0, [0, 2]], weight[1, 1], net.embedding.layers[0].bias.asnumpy()[1] = 1.0, -1.0, 0.5
    net.advantage.weight.asnumpy()[0, :2], net.advantage.bias.asnumpy()[0] = [1.0, 10.0], 7.0
    obs, fractions = to_device(np.zeros((1, 4), np.float32)), to_device(np.float32([[0.0, 0.5, 1.0]]))
    found = value(net.quantiles((obs,), fractions))[0, 0]
    # At 0: phi = (2, 0); at 1/2: (0, 1/2); at 1: (2, 3/2).
    np.testing.assert_allclose(found, [2 * 2 + 7, 30 * 0.5 + 7, 4 + 30 * 1.5 + 7], atol=1e-4)


@pytest.mark.parametrize("kind", ["double", "plain"])
def test_the_network_equals_the_formula_at_any_fractions_and_decides_by_the_mean_at_fixed_ones(policies, kind):
    policy, rng = policies[kind], np.random.default_rng(3)
    p, obs = params(policy), rng.standard_normal((20, 4)).astype(np.float32)
    fractions = rng.random((20, 7), np.float32)
    found = value(policy.net.quantiles((to_device(obs),), to_device(fractions)))
    np.testing.assert_allclose(found, quantiles(p, "net", obs, fractions), atol=1e-5)
    expected = means(p, "net", obs)
    np.testing.assert_allclose(policy.actors["eval"].outputs(obs)[0], expected, atol=1e-5)
    np.testing.assert_allclose(value(policy.net((to_device(obs),))[0]), expected, atol=1e-5)
    assert np.array_equal(policy.eval_mode.forward(obs), expected.argmax(axis=1))
    assert np.array_equal(policy.collect_mode.forward(obs)["action"], expected.argmax(axis=1))


# The update


@pytest.mark.parametrize(
    "kind",
    ["double", pytest.param("plain", marks=pytest.mark.slow), pytest.param("prioritized", marks=pytest.mark.slow)],
)
def test_the_update_computes_the_loss_of_its_formula_and_its_gradient(policies, batch_of, kind):
    policy = policies[kind]
    p, (online, target) = params(policy), drawn_fractions(policy)
    rows, weight, output = learn(policy, batch_of, kind)
    next_obs, kappa = rows["next_obs"], 0.5 if kind == "plain" else 1.0
    best = best_actions(
        means(p, "target" if kind == "plain" else "net", next_obs), means(p, "target", next_obs), kind != "plain"
    )
    y = [np_returns(rows, quantiles(p, "target", next_obs, tau)[AT, best]) for tau in target]

    def chosen(p, k):
        return quantiles(p, "net", rows["obs"], online[k])[AT, rows["action"]]

    def loss(p, k):
        return np_quantile_huber(chosen(p, k), online[k], y[k], kappa) / kappa

    assert output.metrics["loss"] == pytest.approx((weight * (loss(p, 0) + loss(p, 1)) / 2).mean(), rel=1e-5)
    q = [chosen(p, k).mean(axis=1) for k in range(STEPS)]
    assert output.metrics["q_value"] == pytest.approx(np.mean(q), rel=1e-5, abs=1e-6)
    if kind == "prioritized":
        errors = [np.abs(y[k].mean(axis=1) - q[k]) for k in range(STEPS)]
        np.testing.assert_allclose(output.priorities, errors, rtol=1e-5, atol=1e-6)
    check_gradients(policy, lambda p, k: (weight * loss(p, k)).mean(), p)


@pytest.mark.parametrize("double", [True, False])
def test_the_next_action_is_the_best_legal_one(tiny_config, double):
    policy, rng = make_policy(tiny_config, "iqn", MASKED, **SMALL), np.random.default_rng(5)
    policy.root.double = double
    for p in policy.root.target.get_parameters():
        p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)
    obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
    plain = {"reward": 0.0, "terminated": 0.0, "discount": 1.0}
    batch = {
        "next_obs": (to_device(mask), to_device(obs)),
        "next_fractions": to_device(np.tile(np.float32([0.2, 0.6]), (30, 1))),
        **{name: to_device(np.full(30, number, np.float32)) for name, number in plain.items()},
    }
    p = params(policy)
    values = means(p, "net" if double else "target", obs)
    best = np.where(mask, values, -np.inf).argmax(axis=1)
    assert (best != values.argmax(axis=1)).any()
    expected = quantiles(p, "target", obs, np.array([0.2, 0.6]))[np.arange(30), best]
    np.testing.assert_allclose(value(policy.root.td_target(batch)), expected, atol=1e-5)


def test_every_row_and_step_draws_fractions_of_its_own_and_a_state_keeps_their_stream(policies, batch_of):
    policy = policies["double"]
    state = copy.deepcopy(policy.state_dict())
    batch = batch_of("double", random_rows(policy))
    draws = [policy.inputs(batch, 0.0).steps for _ in range(2)]
    for name, count in (("fractions", 4), ("next_fractions", 3)):
        numbers = draws[0][name]
        assert numbers.shape == (STEPS, BATCH, count)
        assert len(np.unique(numbers)) == numbers.size
        assert 0.0 <= numbers.min() < numbers.max() < 1.0
        assert not np.array_equal(numbers, draws[1][name])
    policy.load_state_dict(state)
    assert np.array_equal(policy.inputs(batch, 0.0).steps["fractions"], draws[0]["fractions"])
