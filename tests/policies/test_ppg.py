"""PPG: both phases against float64 NumPy, the rollouts that an auxiliary phase learns from, and what moves in it."""

import kit
import numpy as np
import pytest
from action_values import linear
from fakes import VECTOR, composite, discrete
from float64_networks import categorical, finite_differences, gradients

pytestmark = pytest.mark.eager

CONTRACT = {
    "ppg": (VECTOR, discrete(3), {"policy.learn.aux_freq": 2}),
    "ppg, composite": (VECTOR, composite(3, numbers=2), kit.RAW),
}
ALTERNATIVES = ("policy.learn.aux_freq=1",)
RESUMES = {"PPG between two auxiliary phases": ("CartPole-v1", ("policy.learn.aux_freq=3",))}

BATCH, ENTROPY = 16, 0.01
LEARN = {
    "learning_rate": 0.01,
    "n_minibatch": 1,
    "aux_freq": 1,
    "aux_epoch": 1,
    "entropy_weight": ENTROPY,
    "grad_norm": 0.0,
    "anneal_lr": False,
    "normalize_advantage": False,
}
KINDS = {
    "each": {},
    "more": {"learn": {"aux_freq": 3, "aux_epoch": 2}},
    "free": {"learn": {"aux_epoch": 20, "clone_weight": 0.01}},
    "cloned": {"learn": {"aux_epoch": 20, "clone_weight": 10.0}},
}
built, bench = kit.benches("ppg", action=discrete(3), count=BATCH, kinds=KINDS, learn=LEARN, **kit.RAW)


def features(p, part, obs):
    return np.tanh(obs @ p[f"{part}.torso.layers.0.weight"].T + p[f"{part}.torso.layers.0.bias"])


def logits(p, rows):
    return linear(p, "net.policy.head.linear", features(p, "net.policy", rows["obs"]))


def surrogate(p, rows):
    """-mean[ A r ]: no ratio is clipped."""
    log_prob, _ = categorical(logits(p, rows), rows["action"])
    return -(np.exp(log_prob - rows["log_prob"]) * rows["advantage"]).mean()


def entropy(p, rows):
    return categorical(logits(p, rows), rows["action"])[1].mean()


def value_loss(p, rows):
    value = linear(p, "net.critic.value", features(p, "net.critic", rows["obs"]))[:, 0]
    return 0.5 * ((value - rows["return"]) ** 2).mean()


def head_loss(p, rows):
    value = linear(p, "net.auxiliary", features(p, "net.policy", rows["obs"]))[:, 0]
    return 0.5 * ((value - rows["return"]) ** 2).mean()


def rows_for(bench, seed=0):
    """Rows that the policy has acted in."""
    rows = bench.rows(seed, action=3)
    log_prob, _ = categorical(logits(bench.params, rows), rows["action"])
    return {**rows, "log_prob": log_prob.astype(np.float32)}


def test_both_phases_have_the_losses_of_their_formulas(bench):
    bench.hold_still()
    rows, p = rows_for(bench), bench.params
    output = bench.learn(rows)
    expected = {
        "policy_loss": surrogate(p, rows),
        "value_loss": value_loss(p, rows),
        "entropy": entropy(p, rows),
        "loss": surrogate(p, rows) + value_loss(p, rows) - ENTROPY * entropy(p, rows),
        "auxiliary_loss": head_loss(p, rows),
        "divergence": 0.0,
    }
    assert output.steps == 2
    kit.check_metrics(output.metrics, expected, rel=1e-4)
    # Adam's average has the gradients of two steps, of the auxiliary head of one.
    losses = {
        "policy": lambda q: 0.9 * (surrogate(q, rows) - ENTROPY * entropy(q, rows)) + head_loss(q, rows),
        "critic": lambda q: 1.9 * value_loss(q, rows),
        "auxiliary": lambda q: head_loss(q, rows),
    }
    for group, loss in losses.items():
        slopes = finite_differences(loss, p, f"net.{group}")
        for found, slope in zip(gradients(bench.policy, group), slopes, strict=True):
            np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-5, err_msg=group)


def test_an_auxiliary_phase_learns_from_all_its_rollouts(built):
    bench = built("more")
    bench.hold_still()
    rollouts = [rows_for(bench, seed) for seed in range(6)]
    for k, rows in enumerate(rollouts):
        output = bench.learn(rows)
        assert ("auxiliary_loss" in output.metrics, output.steps) == ((True, 7) if k % 3 == 2 else (False, 1))
        if k % 3 == 2:
            found = [head_loss(bench.params, each) for each in rollouts[k - 2 : k + 1]]
            kit.check_metrics(output.metrics, {"auxiliary_loss": np.mean(found)}, rel=1e-4)


def test_the_policy_moves_only_within_an_auxiliary_phase(built):
    bench = built("more")
    rows = rows_for(bench)
    for k in range(3):
        before = bench.params
        metrics = bench.learn(rows).metrics
        moved = [name for name, x in bench.params.items() if (x != before[name]).any()]
        assert any(name.startswith("net.policy") for name in moved)
        assert any(name.startswith("net.auxiliary") for name in moved) == (k == 2)
    assert metrics["divergence"] > 1e-6


def test_the_divergence_holds_the_policy_of_the_phases_start(built):
    free, cloned = (built(kind).learn(rows_for(built(kind))).metrics["divergence"] for kind in ("free", "cloned"))
    assert 0.0 < cloned < 0.3 * free
