"""IMPALA: one update against NumPy, what a trajectory's ends mean, reset rows."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, space_of
from float64_networks import categorical, scores, state_value

from benchmarks.fingerprint import fingerprint

pytestmark = pytest.mark.eager

CONTRACT = {"impala": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {"policy.model.normalize_obs": True})}
LEARNS = {"policy.collect.n_sample": 16, "policy.learn.learning_rate": 0.01}
RESUMES = {"IMPALA, observations normalized": ("CartPole-v1", ("policy.model.normalize_obs=true",))}

STEPS, T, N = 2, 6, 2
ROWS = T * N
INDEX = np.tile(np.arange(ROWS).reshape(T, N), (STEPS, 1, 1))
"""The same block of trajectories, in the order of time, in every step."""
LEARN = {"learning_rate": 0.01, "gamma": 0.9, "vtrace_lambda": 0.8, "rho_bar": 1.5, "c_bar": 0.75}
built, bench = kit.benches(
    "impala", action=discrete(3), count=ROWS, learn=LEARN, **{"policy.model.normalize_obs": True}
)


def blocks(bench, **changes):
    """Rows without ends, but for `changes`."""
    rows = bench.rows(action=3)
    rows.update(log_prob=np.log(np.random.default_rng(1).uniform(0.1, 0.6, ROWS)).astype(np.float32))
    rows.update({name: np.zeros(ROWS, np.float32) for name in ("terminated", "cut")}, valid=np.ones(ROWS))
    return {**rows, **changes}


def flags(*rows):
    """Float32 (T * N,), 1 at the given (t, n)."""
    table = np.zeros((T, N), np.float32)
    for row in rows:
        table[row] = 1.0
    return table.reshape(-1)


def expected_metrics(p, values):
    """The formula in float64, environment by environment."""
    value, next_value = (state_value(p, values[name].astype(np.float64)) for name in ("obs", "next_obs"))
    log_prob, entropy = categorical(scores(p, "net.actor", values["obs"]), values["action"])
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
    entropy = entropy[keep].mean()
    return {
        "loss": policy_loss + 0.5 * value_loss - 0.01 * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - np.log(ratio))[keep].mean(),
        "rho": np.minimum(ratio, 1.5)[keep].mean(),
    }


def test_the_update_computes_the_loss_of_its_formula(bench):
    bench.hold_still()
    cut, terminated = flags((1, 0), (2, 1), (3, 1), (4, 0)), flags((1, 0), (2, 1))
    rows = blocks(bench, cut=cut, terminated=terminated, valid=1 - flags((3, 1)))
    expected = expected_metrics(bench.params, rows)
    output = bench.learn(rows, INDEX)
    assert output.steps == STEPS
    kit.check_metrics(output.metrics, expected, rel=1e-4, abs=1e-5)


def test_only_a_time_limit_bootstraps_from_the_successor(built):
    losses = {}
    for end in ("terminated", "truncated"):
        for successor in (0.0, 5.0):
            bench = built()
            bench.hold_still()
            rows = blocks(bench, cut=flags((2, 0)), terminated=flags(*[(2, 0)] * (end == "terminated")))
            rows["next_obs"][2 * N] = successor
            losses[end, successor] = bench.learn(rows, INDEX).metrics["value_loss"]
    assert losses["terminated", 0.0] == losses["terminated", 5.0]
    assert abs(losses["truncated", 0.0] - losses["truncated", 5.0]) > 1e-3


def test_nothing_is_learned_from_a_reset_row(built):
    results = []
    for number in (0.0, 3.0):
        bench = built()
        rows = blocks(bench, valid=1 - flags((3, 1)), cut=flags((2, 1), (3, 1)))
        for name in ("obs", "next_obs", "reward", "log_prob"):
            rows[name][3 * N + 1] = number
        metrics, state = bench.learn(rows, INDEX).metrics, bench.policy.state_dict()
        assert state["moments"]
        results.append((metrics, fingerprint(state)))
    assert results[0] == results[1]
