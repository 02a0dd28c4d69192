"""IMPALA: one update against NumPy, with ends of each kind and reset rows."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, space_of
from float64_networks import categorical, gradients, scores, state_value

from benchmarks.fingerprint import fingerprint

pytestmark = pytest.mark.eager

CONTRACT = {"impala": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {"policy.model.normalize_obs": True})}
LEARNS = {"policy.collect.n_sample": 16, "policy.learn.learning_rate": 0.01}
RESUMES = {"IMPALA, observations normalized": ("CartPole-v1", ("policy.model.normalize_obs=true",))}

STEPS, T, N = 2, 6, 2
ROWS = T * N
INDEX = np.tile(np.arange(ROWS).reshape(T, N), (STEPS, 1, 1))
"""The same block of trajectories, in the order of time, in every step."""
LEARN = {"learning_rate": 0.01, "gamma": 0.9, "vtrace_lambda": 0.8, "rho_bar": 1.5, "c_bar": 0.75, "grad_norm": 0.0}
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


def outputs_of(p, values):
    """Log-probabilities, entropies and values."""
    log_prob, entropy = categorical(scores(p, "net.actor", values["obs"]), values["action"])
    return log_prob, entropy, state_value(p, values["obs"])


def expected_metrics(p, values, fixed):
    """The formula in float64, environment by environment; `fixed`: the parameters of targets and advantages."""
    log_prob, _, value = outputs_of(fixed, values)
    ratio, next_value = np.exp(log_prob - values["log_prob"]), state_value(fixed, values["next_obs"])
    correction, advantage = np.zeros(ROWS), np.zeros(ROWS)
    for i in reversed(range(ROWS)):
        rho, c = min(1.5, ratio[i]), min(0.75, ratio[i])
        error = values["reward"][i] + 0.9 * (1 - values["terminated"][i]) * next_value[i] - value[i]
        later = 0.9 * 0.8 * correction[i + N] if i + N < ROWS and not values["cut"][i] else 0.0
        correction[i], advantage[i] = rho * error + c * later, rho * (error + later)
    keep, target = values["valid"] > 0, value + correction
    log_prob, entropy, value = outputs_of(p, values)
    policy_loss = -(advantage * log_prob)[keep].mean()
    value_loss = 0.5 * ((value - target) ** 2)[keep].mean()
    entropy = entropy[keep].mean()
    return {
        "loss": policy_loss + 0.5 * value_loss - 0.01 * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - np.log(ratio))[keep].mean(),
        "rho": np.minimum(ratio, 1.5)[keep].mean(),
    }


def test_the_update_has_the_loss_and_gradient_of_its_formula(bench):
    bench.hold_still()
    cut, terminated = flags((1, 0), (2, 1), (3, 1), (4, 0)), flags((1, 0), (2, 1))
    rows = blocks(bench, cut=cut, terminated=terminated, valid=1 - flags((3, 1)))
    p, output = bench.params, bench.learn(rows, INDEX)
    assert output.steps == STEPS
    kit.check_metrics(output.metrics, expected_metrics(p, rows, p), rel=1e-4, abs=1e-5)
    # Adam's first moment after two steps with the same gradient.
    found = [0.1 / 0.19 * gradient for gradient in gradients(bench.policy, "net")]
    names = [name for name in p if name.startswith(("net.actor", "net.critic", "net.head", "net.value"))]
    kit.check_slopes(lambda x: expected_metrics(x, rows, p)["loss"], p, names, found)


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
