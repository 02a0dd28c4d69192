"""SAC: one update against NumPy, the temperature, the targets."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, set_rate, space_of

from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import to_device
from minding.engine.seeding import generator_state, restore_generator
from minding.policies import get_policy_class

CONTRACT = {"sac": (VECTOR, space_of(3), {"policy.model.normalize_obs": True})}
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    "policy.learn.learning_rate": 0.003,
    "policy.learn.alpha": 0.02,
}
RESUMES = {"SAC, random steps first": ("Pendulum-v1", ("policy.collect.random_steps=32",))}

BATCH = 16
ACTION = space_of(2)


@pytest.fixture(scope="module")
def built(tiny_config):
    return get_policy_class("sac")(tiny_config("sac", VECTOR, ACTION, **{"policy.learn.alpha": 0.2}))


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    set_rate(built, 3e-4)
    built.cfg.learn.tau = 0.005


@pytest.fixture
def rows(policy):
    return rows_of(RowLayout(policy.learn_mode.fields), BATCH, np.random.default_rng(0))


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, BATCH)


@pytest.fixture
def batch(batches, rows):
    return batches(rows, [range(BATCH)])


def squashed(policy, obs, noise):
    mean, log_std = (x.astype(np.float64) for x in policy.actors["eval"].outputs(obs))
    u = mean + np.exp(log_std) * noise
    normal = -0.5 * noise.astype(np.float64) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), (normal - np.log(1 - np.tanh(u) ** 2)).sum(axis=1)


def q_values(critics, action, obs):
    return critics(to_device(action.astype(np.float32)), [to_device(obs)]).asnumpy().astype(np.float64)


def test_the_update_computes_the_losses_of_its_formulas(policy, rows, batch):
    for p in policy.root.targets.get_parameters():
        p.asnumpy()[...] += 0.1
    policy.cfg.learn.tau = 1e-12
    set_rate(policy, 1e-12)
    twin = np.random.default_rng()
    restore_generator(twin, generator_state(policy.learn_rng))
    noise = twin.standard_normal((1, 2, BATCH, 2), dtype=np.float32)[0]
    next_action, next_log_prob = squashed(policy, rows["next_obs"], noise[0])
    action, log_prob = squashed(policy, rows["obs"], noise[1])
    next_q = np.minimum(*q_values(policy.root.targets, next_action, rows["next_obs"]))
    y = rows["reward"] + rows["discount"] * (1 - rows["terminated"]) * (next_q - 0.2 * next_log_prob)
    q1, q2 = q_values(policy.root.critics, rows["action"], rows["obs"])
    q_of_policy = np.minimum(*q_values(policy.root.critics, action, rows["obs"]))

    output = policy.learn_mode.forward(batch)
    metrics = output.metrics
    assert metrics["critic_loss"] == pytest.approx((0.5 * (q1 - y) ** 2 + 0.5 * (q2 - y) ** 2).mean(), rel=1e-4)
    assert metrics["actor_loss"] == pytest.approx((0.2 * log_prob - q_of_policy).mean(), rel=1e-3, abs=1e-5)
    assert metrics["entropy"] == pytest.approx(-log_prob.mean(), rel=1e-4)
    assert metrics["q_value"] == pytest.approx(q1.mean(), rel=1e-3, abs=1e-5)
    assert metrics["alpha"] == pytest.approx(0.2, rel=1e-6)
    # The target entropy is minus the number of actions.
    assert metrics["alpha_loss"] == pytest.approx(-np.log(0.2) * (log_prob.mean() - 2.0), rel=1e-4)
    assert output.steps == 1


def test_the_temperature_falls_while_the_entropy_is_above_its_target_and_rises_below(policy, batch):
    log_std = policy.root.net.head.log_std.bias.asnumpy()
    for bias, sign in ((0.0, -1), (-8.0, 1)):
        log_std[:] = bias
        before = float(policy.root.log_alpha.asnumpy())
        metrics = policy.learn_mode.forward(batch).metrics
        assert (metrics["entropy"] > policy.target_entropy) == (sign < 0)
        assert np.sign(float(policy.root.log_alpha.asnumpy()) - before) == sign


def test_every_part_learns_and_the_targets_follow_by_their_share(policy, batch):
    root = policy.root
    parts = {"net": root.net, "q1": root.critics.q1, "q2": root.critics.q2}
    before = {name: [p.asnumpy().copy() for p in cell.get_parameters()] for name, cell in parts.items()}
    targets = [p.asnumpy().copy() for p in root.targets.get_parameters()]
    set_rate(policy, 0.01)
    policy.cfg.learn.tau = 0.25
    policy.learn_mode.forward(batch)
    for name, cell in parts.items():
        assert any(not np.array_equal(a, p.asnumpy()) for a, p in zip(before[name], cell.get_parameters()))
    for old, online, target in zip(targets, root.critics.get_parameters(), root.targets.get_parameters()):
        np.testing.assert_allclose(target.asnumpy(), 0.75 * old + 0.25 * online.asnumpy(), rtol=1e-5, atol=1e-6)


def test_the_critics_differ_and_begin_equal_to_their_targets(tiny_config):
    root = get_policy_class("sac")(tiny_config("sac", VECTOR, ACTION)).root
    first, second = root.critics.q1.value.weight.asnumpy(), root.critics.q2.value.weight.asnumpy()
    assert not np.array_equal(first, second)
    assert np.array_equal(first, root.targets.q1.value.weight.asnumpy())
    assert np.array_equal(second, root.targets.q2.value.weight.asnumpy())


def test_actions_have_the_shape_of_their_space_and_stay_in_the_box(tiny_config):
    policy = get_policy_class("sac")(tiny_config("sac", VECTOR, space_of(3, 2)), modes=("collect", "eval"))
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32) * 10
    for action in (policy.collect_mode.forward(obs)["action"], policy.eval_mode.forward(obs)):
        assert (action.shape, action.dtype) == ((50, 3, 2), np.float32)
        assert np.abs(action).max() <= 1.0


def test_the_target_entropy_is_configurable(tiny_config):
    assert get_policy_class("sac")(tiny_config("sac"), modes=("eval",)).target_entropy == -2.0
    cfg = tiny_config("sac", **{"policy.learn.target_entropy": -0.5})
    assert get_policy_class("sac")(cfg, modes=("eval",)).target_entropy == -0.5
