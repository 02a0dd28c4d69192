"""TRPO: the step of the policy against the Fisher matrix in float64, its line search, NPG, and the value function."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, discrete, space_of
from float64_networks import categorical, finite_differences, normal, scores, state_value

from minding.policies.learning.trust_region import SHRINK, TRIES

pytestmark = pytest.mark.eager

CONTRACT = {
    "trpo": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True}),
    "trpo, composite": (VECTOR, composite(3, numbers=2), {"policy.model.normalize_obs": True}),
}
RESUMES = {}

COUNT, LIMIT, DAMPING = 12, 0.02, 0.1
LEARN = {
    "grad_norm": 0.0,
    "max_kl": LIMIT,
    "cg_damping": DAMPING,
    "cg_iterations": 40,
    "anneal_lr": False,
    "normalize_advantage": False,
}
KINDS = {
    "discrete": {"action": discrete(3)},
    "box": {"action": space_of(2)},
    "npg": {"action": space_of(2), "learn": {"line_search": False, "max_kl": 0.5}},
}
built, bench = kit.benches("trpo", count=COUNT, kinds=KINDS, learn=LEARN)


def names_of(p):
    return [name for name in p if name.startswith(("net.actor", "net.head"))]


def likelihood(p, rows):
    """Log-probabilities, and the parameters of the distributions, (B,) and (B, K)."""
    head = scores(p, "net.actor", rows["obs"])
    if "net.head.log_std" not in p:
        return categorical(head, rows["action"])[0], head
    log_std = p["net.head.log_std"]
    return normal(head, log_std, rows["action"])[0], np.concatenate([head, np.tile(log_std, (len(head), 1))], axis=1)


def divergence(p, old, new):
    if "net.head.log_std" not in p:
        log_p, log_q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (old, new))
        return (np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean()
    (m, s), (n, t) = np.split(old, 2, axis=1), np.split(new, 2, axis=1)
    return (t - s + (np.exp(2 * s) + (m - n) ** 2) / (2 * np.exp(2 * t)) - 0.5).sum(axis=1).mean()


def information(p, rows):
    """The Fisher matrix from the slopes of the distributions' parameters."""
    _, head = likelihood(p, rows)
    jacobian = np.stack([flat(slopes_of(p, rows, b, k)) for b in range(COUNT) for k in range(head.shape[1])])
    jacobian = jacobian.reshape(COUNT, head.shape[1], -1)
    if "net.head.log_std" in p:
        mean, log_std = np.split(head, 2, axis=1)
        metric = np.stack([np.diag(x) for x in np.concatenate([np.exp(-2 * log_std), 2 + 0 * mean], axis=1)])
    else:
        prob = np.exp(head) / np.exp(head).sum(axis=1, keepdims=True)
        metric = np.stack([np.diag(x) - np.outer(x, x) for x in prob])
    return np.einsum("bik,bij,bjl->kl", jacobian, metric, jacobian) / COUNT


def slopes_of(p, rows, b, k):
    row = {name: value[b : b + 1] for name, value in rows.items()}
    return [
        slope
        for part in ("net.actor", "net.head")
        for slope in finite_differences(lambda x: likelihood(x, row)[1][0, k], p, part)
    ]


def flat(values):
    return np.concatenate([np.ravel(value) for value in values])


def gain(p, rows):
    return (np.exp(likelihood(p, rows)[0] - rows["log_prob"]) * rows["advantage"]).mean()


def stepped(p, step):
    """The parameters after a step ``(n,)``."""
    names = names_of(p)
    stops = np.cumsum([p[name].size for name in names])
    parts = np.split(step, stops[:-1])
    return {**p, **{name: p[name] + part.reshape(p[name].shape) for name, part in zip(names, parts, strict=True)}}


def longest(p, rows, limit):
    """The whole step of the quadratic model, by a direct solution."""
    grad = flat(s for part in ("net.actor", "net.head") for s in finite_differences(lambda x: gain(x, rows), p, part))
    matrix = information(p, rows) + DAMPING * np.eye(len(grad))
    found = np.linalg.solve(matrix, grad)
    return np.sqrt(2 * limit / (found @ matrix @ found)) * found


def rows_for(bench):
    """Rows whose log-probabilities are those of the policy."""
    rows = bench.rows(action=3)
    return {**rows, "log_prob": likelihood(bench.params, rows)[0].astype(np.float32)}


@pytest.mark.parametrize("bench", KINDS, indirect=True)
def test_the_step_is_the_longest_that_the_search_accepts(bench):
    p, rows = bench.params, rows_for(bench)
    limit, searches = bench.settings.max_kl, bench.settings.line_search
    step = longest(p, rows, limit)
    old = likelihood(p, rows)[1]
    for k in range(TRIES):
        after = stepped(p, SHRINK**k * step)
        moved_by = divergence(p, old, likelihood(after, rows)[1])
        if not searches or (gain(after, rows) > gain(p, rows) and moved_by <= limit):
            break
    metrics = bench.learn(rows).metrics
    kit.check_metrics(metrics, {"policy_loss": -gain(p, rows), "step_share": SHRINK**k, "kl": moved_by}, rel=1e-3)
    for name in names_of(p):
        np.testing.assert_allclose(bench.params[name], after[name], rtol=1e-3, atol=2e-4, err_msg=name)
    assert not searches or metrics["kl"] <= limit


def test_the_value_function_takes_all_steps_and_the_policy_one(bench):
    rows = rows_for(bench)
    p, value_loss = bench.params, 0.5 * ((state_value(bench.params, rows["obs"]) - rows["return"]) ** 2).mean()
    once = bench.learn(rows)
    kit.check_metrics(once.metrics, {"value_loss": value_loss})
    one_step = bench.params
    bench.restore()
    thrice = bench.learn(rows, np.tile(np.arange(COUNT), (3, 1)))
    three_steps = bench.params
    for name in names_of(p):
        np.testing.assert_allclose(three_steps[name], one_step[name], atol=1e-5, err_msg=name)
    distances = [np.abs(x["net.value.bias"] - p["net.value.bias"]).max() for x in (one_step, three_steps)]
    assert distances[1] > 2 * distances[0] > 0
    for name in ("kl", "step_share", "policy_loss"):
        assert thrice.metrics[name] == pytest.approx(once.metrics[name], rel=1e-3, abs=1e-6)
    assert thrice.metrics["value_loss"] < once.metrics["value_loss"]


def test_without_advantages_the_policy_stays(bench):
    rows = {**rows_for(bench), "advantage": np.zeros(COUNT, np.float32)}
    p = bench.params
    metrics = bench.learn(rows).metrics
    assert (metrics["kl"], metrics["step_share"]) == (0.0, 0.0)
    kit.check_bits({name: bench.params[name] for name in names_of(p)}, {name: p[name] for name in names_of(p)})
