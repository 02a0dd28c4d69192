"""HAPPO: an update of all agents against float64 NumPy, with masks and deaths; the turns; the steps of HATRPO."""

import kit
import numpy as np
import pytest
from action_values import linear, np_huber, np_log_softmax
from fakes import VECTOR, dict_of, discrete, draw_masks, mask_of, space_of, tiny_config
from float64_networks import finite_differences, gradients

from minding.policies.happo import HAPPO

pytestmark = pytest.mark.eager

SEEN = dict_of(action_mask=mask_of(3), observation=space_of(4))
CONTRACT = {
    "happo": (SEEN, discrete(3), {"policy.model.normalize_obs": True}),
    "happo, box": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {}),
}
RESUMES = {}
ALTERNATIVES = ("policy.learn.trust_region=true",)

AGENTS, TEAMS = 3, 8
ROWS = AGENTS * TEAMS
EACH = np.arange(ROWS)[None]
RATE, LIMIT, ENTROPY = 0.01, 0.02, 0.05
STILL = 1e-12
LEARN = {
    "policy.learn.learning_rate": RATE,
    # The critic is the same in all turns.
    "policy.learn.critic_learning_rate": STILL,
    "policy.learn.entropy_weight": ENTROPY,
    "policy.learn.normalize_advantage": False,
    "policy.learn.value_norm": False,
    "policy.learn.grad_norm": 0.0,
    "policy.learn.anneal_lr": False,
    "policy.learn.max_kl": LIMIT,
}


def make(**learn):
    cfg = tiny_config("happo", SEEN, discrete(3), **LEARN, **{f"policy.learn.{key}": x for key, x in learn.items()})
    cfg.env.spec["agents"]["state"] = space_of(5)
    return kit.Bench(HAPPO(cfg, modes=("learn",)), ROWS)


@pytest.fixture(scope="module")
def made():
    return {"clipped": make(), "trust region": make(trust_region=True)}


@pytest.fixture
def clipped(made):
    return made["clipped"].restore()


def log_p(p, m, rows):
    """Log-probabilities of all actions of an agent, (B, 3)."""
    net = f"net.actors.nets.{m}"
    hidden = np.tanh(linear(p, f"{net}.torso.layers.0", rows["obs.observation"].astype(np.float64)))
    return np_log_softmax(np.where(rows["obs.action_mask"], linear(p, f"{net}.head.linear", hidden), -1e30))


def log_prob(p, m, rows):
    return log_p(p, m, rows)[np.arange(len(rows["action"])), rows["action"]]


def entropies(p, m, rows):
    found = log_p(p, m, rows)
    return -(np.exp(found) * np.where(np.exp(found) > 0, found, 0.0)).sum(axis=1)


def value_loss(p, rows):
    alive = rows["central.alive"][:, None]
    seen = [rows["obs.observation"] * alive, rows["central.state"] * alive, np.eye(AGENTS)[rows["central.agent_id"]]]
    torso = np.tanh(linear(p, "net.critic.torso.layers.0", np.concatenate(seen, axis=-1).astype(np.float64)))
    value = linear(p, "net.critic.value.linear", torso)[:, 0]
    clipped = rows["value"] + np.clip(value - rows["value"], -0.2, 0.2)
    errors = np.maximum(np_huber(value - rows["return"], 10.0), np_huber(clipped - rows["return"], 10.0))
    return errors.mean()


def rows_for(bench):
    """Rows that the policy has acted in, with agents that are not there."""
    rng, rows = np.random.default_rng(0), bench.rows(action=3)
    rows["central.agent_id"] = np.tile(np.arange(AGENTS), TEAMS)
    rows["central.alive"] = (rng.random(ROWS) < 0.7).astype(np.float32)
    rows["obs.action_mask"] = draw_masks([3], ROWS, rng)
    rows["action"] = rows["obs.action_mask"].argmax(axis=1)
    for m in range(AGENTS):
        rows["log_prob"][m::AGENTS] = log_prob(bench.params, m, own(rows, m))
    return rows


def own(rows, m):
    return {name: values[m::AGENTS] for name, values in rows.items()}


def turns(bench, rows, learn):
    """The metrics of a call, and for each agent in order: its number, its rows, and F by the weights before and after
    the call, as those of the agents before it are after their turns."""
    order, before = bench.upcoming().permutation(AGENTS), bench.params
    metrics, found = learn().metrics, []
    log_ratio = np.zeros(TEAMS)
    for m in order:
        seen = own(rows, m)
        found.append((m, seen, np.exp(log_ratio)))
        log_ratio = log_ratio + seen["central.alive"] * (log_prob(bench.params, m, seen) - log_prob(before, m, seen))
    return metrics, before, found


def mean(x, rows):
    return (x * rows["central.alive"]).sum() / rows["central.alive"].sum()


def gain(p, m, rows, old, factor):
    ratio = np.exp(log_prob(p, m, rows) - log_prob(old, m, rows))
    return mean(factor * ratio * rows["advantage"] + ENTROPY * entropies(p, m, rows), rows)


def test_each_agent_learns_with_earlier_agents_ratios(clipped):
    rows = rows_for(clipped)
    metrics, p, found = turns(clipped, rows, lambda: clipped.learn(rows, EACH))
    assert np.abs(found[2][2] - 1.0).max() > 0.05
    kept = [m.asnumpy() for m in clipped.root.kept][: len(clipped.root.weights(0))]
    critics = [value_loss(p, seen) for _, seen, _ in found]
    expected = {
        "policy_loss": np.mean([-mean(factor * seen["advantage"], seen) for _, seen, factor in found]),
        "entropy": np.mean([mean(entropies(p, m, seen), seen) for m, seen, _ in found]),
        "factor": np.mean([mean(factor, seen) for _, seen, factor in found]),
        "value_loss": np.mean(critics),
        "approx_kl": 0.0,
        "clip_fraction": 0.0,
    }
    kit.check_metrics(metrics, expected, rel=1e-4)
    after = clipped.params
    for m, seen, factor in found:
        part = f"net.actors.nets.{m}"
        slopes = finite_differences(lambda q: -gain(q, m, seen, p, factor), p, part)  # noqa: B023
        names = [name for name in p if name.startswith(part)]
        for name, first, slope in zip(names, kept, slopes, strict=True):
            np.testing.assert_allclose(first[m] / 0.1, slope, rtol=1e-3, atol=2e-5)
            # Adam's first step.
            expected = p[name] - RATE * slope / (np.abs(slope) + 1e-5)
            np.testing.assert_allclose(after[name], expected, rtol=1e-3, atol=5e-4)
    weights = (0.81, 0.9, 1.0)
    slopes = finite_differences(
        lambda q: sum(w * value_loss(q, seen) for w, (_, seen, _) in zip(weights, found)), p, "net.critic"
    )
    trained = iter(gradients(clipped.policy, "critic"))
    for name, slope in zip([name for name in p if name.startswith("net.critic")], slopes, strict=True):
        if clipped.policy.params[name].requires_grad:
            np.testing.assert_allclose(next(trained), slope, rtol=1e-3, atol=2e-5, err_msg=name)


def test_the_order_is_drawn_anew_and_goes_on_from_a_loaded_state(clipped, monkeypatch):
    begun, begin, rows = [], clipped.root.begin, rows_for(clipped)
    monkeypatch.setattr(clipped.root, "begin", lambda m, before: begun.append((m, *before)) or begin(m, before))
    state = clipped.policy.state_dict()
    metrics = [clipped.learn(rows, EACH).metrics for _ in range(4)]
    calls = [tuple(each[0] for each in begun[k : k + AGENTS]) for k in range(0, len(begun), AGENTS)]
    assert len(set(calls)) > 1
    for k, call in enumerate(calls):
        assert sorted(call) == list(range(AGENTS))
        assert [each[1:] for each in begun[k * AGENTS : (k + 1) * AGENTS]] == [call[:j] for j in range(AGENTS)]
    after = clipped.policy.state_dict()["params"]
    clipped.policy.load_state_dict(state)
    assert [clipped.learn(rows, EACH).metrics for _ in range(4)] == metrics
    kit.check_bits(clipped.policy.state_dict()["params"], after)


def test_an_agent_without_rows_has_no_turn(clipped):
    rows, p = rows_for(clipped), clipped.params
    output = clipped.learn(rows, np.arange(1, ROWS, AGENTS)[None])
    assert output.metrics["factor"] == 1.0
    moved = {name for name, x in clipped.params.items() if name.startswith("net.actors") and (x != p[name]).any()}
    assert {name.split(".")[3] for name in moved} == {"1"}


def test_each_step_of_hatrpo_raises_its_objective(made):
    bench = made["trust region"].restore()
    rows = rows_for(bench)
    metrics, p, found = turns(bench, rows, lambda: bench.learn(rows, EACH))
    after, divergences = bench.params, []
    assert np.abs(found[2][2] - 1.0).max() > 0.02
    for m, seen, factor in found:
        old, new = log_p(p, m, seen), log_p(after, m, seen)
        kl = (np.exp(old) * np.where(np.exp(old) > 0, old - new, 0.0)).sum(axis=1)
        divergences.append(mean(kl, seen))
        assert gain(after, m, seen, p, factor) > gain(p, m, seen, p, factor)
        assert 0.2 * LIMIT < divergences[-1] <= LIMIT
    expected = {
        "kl": np.mean(divergences),
        "policy_loss": -np.mean([gain(p, m, seen, p, factor) for m, seen, factor in found]),
        "factor": np.mean([mean(factor, seen) for _, seen, factor in found]),
        "value_loss": np.mean([value_loss(p, seen) for _, seen, _ in found]),
    }
    kit.check_metrics(metrics, expected, rel=1e-3)
