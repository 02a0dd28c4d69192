"""C51: projection and loss by hand and against NumPy, one update against NumPy."""

import copy
import dataclasses

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, draw_masks, mask_of, rows_of, set_rate
from numeric import assert_gradient, t, value

from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import ms, to_device
from minding.policies import get_policy_class
from minding.policies.ops.categorical import cross_entropy, project

SMALL = {"policy.model.n_atoms": 7, "policy.model.v_min": -2.0, "policy.model.v_max": 1.0}
CONTRACT = {
    "c51": (VECTOR, discrete(3), {**SMALL, "policy.learn.target.freq": 4, "policy.model.dueling": True}),
    "c51, prioritized": (VECTOR, discrete(3), {**SMALL, "policy.other.replay": "prioritized"}),
    "c51, masked": (dict_of(action_mask=mask_of(3), observation=VECTOR), discrete(3), SMALL),
}
SIGNATURES = 2
"""One for calls that move the target, one for the others."""
LEARNS = {
    "policy.model.n_atoms": 21,
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
    "C51, prioritized": (
        "CartPole-v1",
        ("policy.model.n_atoms=7", "policy.other.replay=prioritized", "policy.learn.target.freq=5"),
    ),
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=prioritized")

STEPS, BATCH, ROWS, ACTIONS, ATOMS = 2, 8, 32, 3, 7
INDEX = np.tile(np.arange(BATCH), (STEPS, 1))
SUPPORT = np.linspace(-2.0, 1.0, ATOMS)


# Projection


def projected(probability, positions, count=3):
    places = to_device(np.arange(count, dtype=np.float32))
    return value(project(t(*probability), t(*positions), places)).tolist()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        # On the atoms, in order and not.
        ([0.0, 1.0, 2.0], [0.5, 0.25, 0.25]),
        ([2.0, 2.0, 0.0], [0.25, 0.0, 0.75]),
        # Between them: 1/4 of the way and in the middle.
        ([0.25, 1.5, 1.5], [0.375, 0.125 + 0.25, 0.25]),
        # Clipped at both ends, a little and far outside.
        ([-0.5, 2.5, 1.0], [0.5, 0.25, 0.25]),
        ([1e6, -1e6, 0.5], [0.25 + 0.125, 0.125, 0.5]),
        # After a true end all of it lies at the reward.
        ([0.75, 0.75, 0.75], [0.25, 0.75, 0.0]),
        ([2.0, 2.0, 2.0], [0.0, 0.0, 1.0]),
    ],
)
def test_the_projection_by_hand(positions, expected):
    assert projected([[0.5, 0.25, 0.25]], [positions]) == [expected]


def np_project(probability, x, support):
    """Algorithm 1 of the paper with its loop over the atoms, float64."""
    low, step = support[0], support[1] - support[0]
    moved = np.zeros((len(probability), len(support)))
    for b, j in np.ndindex(*probability.shape):
        place = (np.clip(x[b, j], support[0], support[-1]) - low) / step
        lower = min(int(np.floor(place + 1e-12)), len(support) - 2)
        moved[b, lower] += probability[b, j] * (lower + 1 - place)
        moved[b, lower + 1] += probability[b, j] * (place - lower)
    return moved


def test_the_projection_equals_algorithm_1_and_keeps_sum_and_mean():
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(9), 50)
    x = rng.normal(-0.5, 0.8, (50, 9))
    positions = (x - SUPPORT[0]) / 0.5
    places = to_device(np.arange(ATOMS, dtype=np.float32))
    found = value(project(t(*probability), t(*positions), places))
    np.testing.assert_allclose(found, np_project(probability, x, SUPPORT), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), np.ones(50), atol=1e-6)
    np.testing.assert_allclose(found @ SUPPORT, (probability * np.clip(x, -2.0, 1.0)).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_a_return_that_is_not_finite_is_not_hidden_by_the_bounds(x):
    moved = np.array(projected([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], [[x, 1.0, 2.0], [0.0, 1.0, 2.0]]))
    assert np.isnan(moved[0]).all()
    assert moved[1].tolist() == [0.5, 0.5, 0.0]


# The loss


def np_log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_the_cross_entropy_by_hand():
    # Probabilities 1/4 and 3/4; the second row is predicted exactly.
    loss, excess = cross_entropy(t([0.0, np.log(3.0)], [0.0, np.log(3.0)]), t([1.0, 0.0], [0.25, 0.75]))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    # MindSpore's logarithm is off by 2e-6.
    np.testing.assert_allclose(value(loss), [np.log(4.0), entropy], atol=1e-5)
    np.testing.assert_allclose(value(excess), [np.log(4.0), 0.0], atol=1e-5)
    assert (value(excess) >= 0.0).all()


def test_the_cross_entropy_has_its_gradient_and_none_flows_into_the_target():
    rng = np.random.default_rng(1)
    target, logits = rng.dirichlet(np.ones(5), 4), 3.0 * rng.standard_normal((4, 5))
    assert_gradient(
        lambda x: cross_entropy(x, t(*target))[0].sum(),
        lambda x: -(target.astype(np.float32) * np_log_softmax(x)).sum(),
        logits,
    )
    gradient = ms.grad(lambda x: cross_entropy(t(*logits), x)[0].sum())(t(*target))
    assert not value(gradient).any()
    gradient = ms.grad(lambda x: cross_entropy(x, t(*target))[1].sum())(t(*logits))
    assert not value(gradient).any()


# The update


def built_policy(tiny_config, **overrides):
    return get_policy_class("c51")(tiny_config("c51", VECTOR, discrete(ACTIONS), **SMALL, **overrides))


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double; with the target's choice and dueling; and prioritized."""
    return {
        "double": built_policy(tiny_config),
        "plain": built_policy(tiny_config, **{"policy.learn.double": False, "policy.model.dueling": True}),
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


def linear(layer, x):
    return x @ layer.weight.asnumpy().T.astype(np.float64) + layer.bias.asnumpy()


def np_log_probability(net, x):
    """The network in float64, (B, A, N): one hidden layer, dueling if there is a value."""
    hidden = np.maximum(linear(net.torso.layers[0], x.astype(np.float64)), 0.0)
    atoms = linear(net.advantage, hidden).reshape(-1, ACTIONS, ATOMS)
    if net.value is not None:
        atoms = linear(net.value, hidden)[:, None] + atoms - atoms.mean(axis=1, keepdims=True)
    return np_log_softmax(atoms)


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
    next_probability = np.exp(np_log_probability(target, taken["next_obs"]))
    choosing = next_probability if kind == "plain" else np.exp(np_log_probability(online, taken["next_obs"]))
    best = (choosing @ SUPPORT).argmax(axis=1)
    assert (best != (next_probability @ SUPPORT).argmax(axis=1)).any() == (kind != "plain")
    decay = taken["discount"] * (1.0 - taken["terminated"])
    m = np_project(next_probability[at, best], taken["reward"][:, None] + decay[:, None] * SUPPORT, SUPPORT)
    log_p = np_log_probability(online, taken["obs"])[at, taken["action"]]
    loss = -(m * log_p).sum(axis=1)
    assert output.metrics["loss"] == pytest.approx((weight * loss).mean(), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx((np.exp(log_p) @ SUPPORT).mean(), rel=1e-5)
    assert output.metrics["grad_norm"] > 0.0
    if kind == "prioritized":
        excess = loss + np.where(m > 0.0, m * np.log(np.maximum(m, 1e-300)), 0.0).sum(axis=1)
        np.testing.assert_allclose(output.priorities, [excess] * STEPS, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("double", [True, False])
def test_the_next_action_is_the_best_legal_one(tiny_config, double):
    space = dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR)
    policy = get_policy_class("c51")(tiny_config("c51", space, discrete(ACTIONS), **SMALL))
    root, rng = policy.root, np.random.default_rng(5)
    root.double = double
    for p in root.target.get_parameters():
        p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)
    obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
    logits = value(root.next_atoms({"next_obs": (to_device(mask), to_device(obs))}))
    means = np.exp(np_log_probability(root.net if double else root.target, obs)) @ SUPPORT
    best = np.where(mask, means, -np.inf).argmax(axis=1)
    assert (best != means.argmax(axis=1)).any()
    expected = np_log_probability(root.target, obs)[np.arange(30), best]
    np.testing.assert_allclose(np_log_softmax(logits), expected, atol=1e-5)


def test_the_values_that_decide_are_the_means_of_the_distributions(policies):
    policy = policies["plain"]
    obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    means = np.exp(np_log_probability(policy.net, obs)) @ SUPPORT
    np.testing.assert_allclose(policy.actors["eval"].outputs(obs)[0], means, atol=1e-5)
    assert np.array_equal(policy.eval_mode.forward(obs), means.argmax(axis=1))
