"""IMPALA: one update against NumPy, what a trajectory's ends mean, reset rows."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, rows_of, set_rate, space_of

from minding.policies import get_policy_class
from proofs.fingerprint import fingerprint

CONTRACT = {
    "impala": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {"policy.model.normalize_obs": True}),
}
LEARNS = {"policy.collect.n_sample": 16, "policy.learn.learning_rate": 0.01}
RESUMES = {"IMPALA, observations normalized": ("CartPole-v1", ("policy.model.normalize_obs=true",))}

STEPS, T, N = 2, 6, 2
ROWS = T * N
TINY = 1e-12
"""A learning rate that leaves the weights as they are: the means over the steps are then those of one."""


@pytest.fixture(scope="module")
def built(tiny_config):
    settings = {"learning_rate": 0.01, "gamma": 0.9, "vtrace_lambda": 0.8, "rho_bar": 1.5, "c_bar": 0.75}
    overrides = {f"policy.learn.{key}": value for key, value in settings.items()}
    return get_policy_class("impala")(
        tiny_config("impala", VECTOR, discrete(3), **{**overrides, "policy.model.normalize_obs": True})
    )


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    set_rate(built, 0.01)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, ROWS)


@pytest.fixture
def batch_for(batches):
    """A maker of blocks of trajectories in the order of time, the same block in every step."""

    def make(**changes):
        values = rows_of(batches.layout, ROWS, np.random.default_rng(0), {"action": 3})
        values.update(log_prob=np.log(np.random.default_rng(1).uniform(0.1, 0.6, ROWS)).astype(np.float32))
        values.update({name: np.zeros(ROWS, np.float32) for name in ("terminated", "cut")}, valid=np.ones(ROWS))
        values.update(changes)
        return values, batches(values, np.tile(np.arange(ROWS).reshape(T, N), (STEPS, 1, 1)))

    return make


def flags(*rows):
    """Float32 (T * N,), 1 at the given (t, n)."""
    table = np.zeros((T, N), np.float32)
    for row in rows:
        table[row] = 1.0
    return table.reshape(-1)


def expected_metrics(policy, values):
    """The formula in float64, environment by environment."""
    value, logits = (x.astype(np.float64) for x in policy.actors["eval"].outputs(values["obs"]))
    next_value = policy.actors["eval"].outputs(values["next_obs"])[0].astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    log_prob = log_p[np.arange(ROWS), values["action"]]
    ratio = np.exp(log_prob - values["log_prob"])
    correction, advantage = np.zeros(ROWS), np.zeros(ROWS)
    for i in reversed(range(ROWS)):
        rho, c = min(1.5, ratio[i]), min(0.75, ratio[i])
        error = values["reward"][i] + 0.9 * (1 - values["terminated"][i]) * next_value[i] - value[i]
        later = 0.9 * 0.8 * correction[i + N] if i + N < ROWS and not values["cut"][i] else 0.0
        correction[i], advantage[i] = rho * error + c * later, rho * (error + later)
    keep = values["valid"] > 0
    policy_loss = -(advantage * log_prob)[keep].mean()
    value_loss = 0.5 * (correction**2)[keep].mean()
    entropy = -(np.exp(log_p) * log_p).sum(axis=1)[keep].mean()
    return {
        "loss": policy_loss + 0.5 * value_loss - 0.01 * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - np.log(ratio))[keep].mean(),
        "rho": np.minimum(ratio, 1.5)[keep].mean(),
    }


def test_the_update_computes_the_loss_of_its_formula(policy, batch_for):
    set_rate(policy, TINY)
    cut, terminated = flags((1, 0), (2, 1), (3, 1), (4, 0)), flags((1, 0), (2, 1))
    values, batch = batch_for(cut=cut, terminated=terminated, valid=1 - flags((3, 1)))
    expected = expected_metrics(policy, values)
    output = policy.learn_mode.forward(batch)
    metrics = output.metrics
    assert output.steps == STEPS
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_time_limit_bootstraps_from_the_true_successor_and_a_true_end_does_not(policy, batch_for):
    set_rate(policy, TINY)
    losses, start = {}, copy.deepcopy(policy.state_dict())
    for end in ("terminated", "truncated"):
        for successor in (0.0, 5.0):
            terminated = flags((2, 0)) if end == "terminated" else flags()
            values, _ = batch_for()
            values["next_obs"][2 * N] = successor
            _, batch = batch_for(next_obs=values["next_obs"], cut=flags((2, 0)), terminated=terminated)
            policy.load_state_dict(start)
            losses[end, successor] = policy.learn_mode.forward(batch).metrics["value_loss"]
    assert losses["terminated", 0.0] == losses["terminated", 5.0]
    assert abs(losses["truncated", 0.0] - losses["truncated", 5.0]) > 1e-3


def test_nothing_is_learned_from_a_reset_row(policy, batch_for):
    start = copy.deepcopy(policy.state_dict())
    results = []
    for number in (0.0, 3.0):
        policy.load_state_dict(start)
        values, _ = batch_for()
        row = 3 * N + 1
        for name in ("obs", "next_obs", "reward", "log_prob"):
            values[name][row] = number
        fields = {name: values[name] for name in ("obs", "next_obs", "reward", "log_prob")}
        _, batch = batch_for(**fields, valid=1 - flags((3, 1)), cut=flags((2, 1), (3, 1)))
        metrics = policy.learn_mode.forward(batch).metrics
        state = policy.state_dict()
        assert state["moments"]
        results.append((metrics, fingerprint(state)))
    assert results[0] == results[1]


def test_the_learned_policy_comes_closer_to_actions_that_did_well(policy, batch_for):
    chosen = batch_for()[0]["action"] == 1
    values, batch = batch_for(reward=chosen.astype(np.float32), cut=np.ones(ROWS), terminated=np.ones(ROWS))

    def probability():
        logits = policy.actors["eval"].outputs(values["obs"])[1]
        return (np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1))[chosen].mean()

    before = probability()
    for _ in range(20):
        policy.learn_mode.forward(batch)
    assert probability() > before + 0.1


@pytest.mark.parametrize(("progress", "rate"), [(0.0, 0.01), (0.25, 0.0075), (1.0, 0.0)])
def test_the_learning_rate_falls_to_zero_over_the_run(policy, batch_for, progress, rate):
    _, batch = batch_for()
    before = policy.state_dict()["params"]["net.value.bias"]
    metrics = policy.learn_mode.forward(batch, progress=progress).metrics
    assert metrics["learning_rate"] == pytest.approx(rate)
    assert np.array_equal(policy.state_dict()["params"]["net.value.bias"], before) == (rate == 0.0)


def test_the_values_of_the_acting_policy_are_not_recorded(built):
    assert built.collect_mode.record_fields == ("log_prob",)
    record = built.collect_mode.forward(np.zeros((2, *VECTOR["shape"]), np.float32))
    assert set(record) == {"action", "log_prob"}
