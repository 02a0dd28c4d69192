"""What is logged of gradients, weights and steps, against NumPy; looking changes nothing."""

import numpy as np
import pytest
from fakes import VECTOR, Batches, action_of, rows_of, set_rate
from float64_networks import gradients, params
from of_algorithms import constant

from benchmarks.fingerprint import fingerprint
from minding.engine.errors import NonFiniteError
from minding.policies import get_algorithm, get_policy_class, kernels
from minding.policies.learning.optim import STATISTICS

pytestmark = pytest.mark.eager

ROWS = 8
PARTS = {"actor": "net.", "critics": "critics.", "alpha": "log_alpha"}


@pytest.fixture(params=["kernels", pytest.param("plain", marks=pytest.mark.slow)])
def form(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(kernels, "compiled", lambda: False)


@pytest.fixture
def built(tiny_config):
    def build(algorithm, watch=True, **settings):
        action = action_of(get_algorithm(algorithm).actions)
        settings = {**constant(algorithm, "MOVES", {}), "run.gradient_stats": watch, **settings}
        policy = get_policy_class(algorithm)(tiny_config(algorithm, VECTOR, action, **settings))
        set_rate(policy, 0.01)
        batches = Batches(policy, ROWS)
        return policy, batches, rows_of(batches.layout, ROWS, np.random.default_rng(0), {"action": 3, **batches.sizes})

    return build


def part(p, group):
    return np.concatenate([p[name].ravel() for name in p if name.startswith(PARTS[group])])


def norm(x):
    return np.sqrt((np.asarray(x, np.float64) ** 2).sum())


@pytest.mark.shared_graphs
def test_they_are_those_of_gradients_and_steps(built, form):
    policy, batches, rows = built("discrete_sac", **{"policy.learn.alpha": 0.5})
    # Units that never fire: their weights have no gradient.
    policy.net.torso.layers[0].bias.asnumpy()[:3] = -1e6
    before = params(policy)
    metrics = policy.learn_mode.forward(batches(rows, [range(ROWS)])).metrics
    after = params(policy)
    for group in PARTS:
        grads = np.concatenate([g.ravel() for g in gradients(policy, group)])
        old, new = part(before, group), part(after, group)
        expected = [norm(grads), (grads == 0.0).mean(), 0.0, norm(old), norm(new - old) / norm(old)]
        assert [metrics[f"{name}_{group}"] for name in STATISTICS] == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert 0.02 < metrics["grad_zero_actor"] < 0.9
    rows["reward"][0] = np.inf
    with pytest.raises(NonFiniteError) as error:
        policy.learn_mode.forward(batches(rows, [range(ROWS)]))
    # The error says how much of which gradient.
    assert error.value.metrics["grad_nonfinite_critics"] > 0.5
    assert error.value.metrics["grad_nonfinite_actor"] == 0.0


def test_they_are_means_over_the_steps_that_a_group_had(built):
    policy, batches, rows = built("td3", **{"policy.model.normalize_obs": False, "policy.learn.policy_delay": 2})
    index = np.stack([(np.arange(ROWS) * k) % ROWS for k in (1, 3, 5, 7)])
    start = policy.state_dict()
    single = [policy.learn_mode.forward(batches(rows, each[None])).metrics for each in index]
    assert [f"grad_norm_{group}" in single[0] for group in ("critics", "actor")] == [True, False]
    policy.load_state_dict(start)
    together = policy.learn_mode.forward(batches(rows, index)).metrics
    # The first step alone has the exact optimizer state of a call of its own; noise differs between the calls.
    for group, count in (("critics", 4), ("actor", 2)):
        found = [m[f"weight_norm_{group}"] for m in single if f"weight_norm_{group}" in m]
        assert len(found) == count
        assert together[f"weight_norm_{group}"] == pytest.approx(np.mean(found), rel=1e-3)


def test_the_norm_of_gradients_is_that_before_they_are_scaled(built):
    policy, batches, rows = built("ppo", **{"policy.learn.grad_norm": 1e-3})
    metrics = policy.learn_mode.forward(batches(rows, [range(ROWS)])).metrics
    assert metrics["grad_norm_net"] == pytest.approx(metrics["grad_norm"], rel=1e-5)
    assert metrics["grad_norm_net"] > 1e-2


@pytest.mark.shared_graphs
def test_looking_changes_no_bit_and_nothing_that_is_saved(built):
    prints, names = [], []
    for watch in (False, True):
        policy, batches, rows = built("ppo", watch)
        index = np.stack([np.arange(ROWS), np.arange(ROWS) // 2])
        for _ in range(3):
            metrics = policy.learn_mode.forward(batches(rows, index)).metrics
        prints.append(fingerprint(policy.state_dict()))
        names.append({name for name in metrics if name.startswith(STATISTICS) and name != "grad_norm"})
    assert prints[0] == prints[1]
    assert names[0] == set()
    groups = policy.root.optim.names
    assert names[1] == {f"{name}_{group}" for name in STATISTICS for group in groups}
