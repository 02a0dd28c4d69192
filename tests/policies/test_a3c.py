"""A3C: one update against NumPy, the learning-rate schedule."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, discrete, rows_of, set_rate, space_of

from minding.policies import get_policy_class

CONTRACT = {"a3c": (VECTOR, discrete(3), {})}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.02, "policy.learn.anneal_lr": "false"}
RESUMES = {}
"""A2C's have all that it keeps."""

BATCH = 16


@pytest.fixture(scope="module")
def built(tiny_config):
    settings = {"policy.learn.learning_rate": 0.01, "policy.learn.entropy_weight": 0.1}
    return get_policy_class("a3c")(tiny_config("a3c", VECTOR, space_of(2), **settings))


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    set_rate(built, 0.01)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, BATCH)


@pytest.fixture
def values(batches):
    return rows_of(batches.layout, BATCH, np.random.default_rng(0))


def test_the_update_computes_the_loss_of_its_formula(policy, batches, values):
    set_rate(policy, 1e-12)
    state_value, mean, log_std = (x.astype(np.float64) for x in policy.actors["eval"].outputs(values["obs"]))
    z = (values["action"] - mean) / np.exp(log_std)
    log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    advantage = values["return"] - state_value
    policy_loss, value_loss = -(advantage * log_prob).mean(), 0.5 * (advantage**2).mean()
    entropy = (log_std + 0.5 * (1 + np.log(2 * np.pi))).sum()
    values["log_prob"] = (log_prob - 0.5).astype(np.float32)
    output = policy.learn_mode.forward(batches(values, np.arange(BATCH)[None]))
    metrics = output.metrics
    assert output.steps == 1
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4)
    assert metrics["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert metrics["loss"] == pytest.approx(policy_loss + 0.5 * value_loss - 0.1 * entropy, rel=1e-4)
    assert metrics["approx_kl"] == pytest.approx(np.exp(0.5) - 1.5, rel=1e-3)


@pytest.mark.parametrize(("progress", "rate"), [(0.0, 0.01), (0.25, 0.0075), (1.0, 0.0)])
def test_the_learning_rate_falls_to_zero_over_the_run(policy, batches, values, progress, rate):
    before = policy.state_dict()["params"]["net.value.bias"]
    metrics = policy.learn_mode.forward(batches(values, np.arange(BATCH)[None]), progress=progress).metrics
    assert metrics["learning_rate"] == pytest.approx(rate)
    assert np.array_equal(policy.state_dict()["params"]["net.value.bias"], before) == (rate == 0.0)
