"""Rainbow: one update against NumPy, with all parts and without some; without any it is DQN."""

import copy

import numpy as np
import pytest
from action_values import (
    ACTIONS,
    AT,
    INDEX,
    LEARNS,
    MASKED,
    ROWS,
    SIGNATURES,
    STEPS,
    batches_of,
    best_actions,
    check_gradients,
    disturbed,
    learn,
    make_policy,
    np_atoms,
    np_huber,
    np_log_softmax,
    np_project,
    np_returns,
    params,
    random_rows,
)
from fakes import VECTOR, Batches, discrete

from minding.policies.acting.sampling import weight_noise

ATOMS = 7
SUPPORT = np.linspace(-2.0, 1.0, ATOMS)
SMALL = {"policy.model.n_atoms": ATOMS, "policy.model.v_min": -2.0, "policy.model.v_max": 1.0}
EXPECTED = {"policy.model.distributional": False}
OFF = {
    **EXPECTED,
    "policy.model.noisy": False,
    "policy.model.dueling": False,
    "policy.learn.double": False,
    "policy.learn.nstep": 1,
    "policy.other.replay": "uniform",
}
"""Everything that can be turned off."""
CONTRACT = {
    "rainbow": (VECTOR, discrete(ACTIONS), {**SMALL, "policy.learn.target.freq": 4}),
    "rainbow of expected values, masked": (MASKED, discrete(ACTIONS), {**EXPECTED, "policy.other.replay": "uniform"}),
}
LEARNS = {**LEARNS, "policy.model.n_atoms": 21, "policy.learn.nstep": 1}
RESUMES = {"Rainbow": ("CartPole-v1", ("policy.model.n_atoms=7", "policy.learn.target.freq=5"))}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.model.noisy=false")
__all__ = ["SIGNATURES"]


@pytest.fixture(scope="module")
def built(tiny_config):
    """With all parts; without the distribution and double; without dueling, priorities and noise."""
    kinds = {
        "all": SMALL,
        "expected": {**EXPECTED, "policy.learn.double": False},
        "plain": {
            **SMALL,
            "policy.model.noisy": False,
            "policy.model.dueling": False,
            "policy.other.replay": "uniform",
        },
    }
    return {
        kind: make_policy(tiny_config, "rainbow", **{"policy.learn.grad_norm": 0.0}, **changes)
        for kind, changes in kinds.items()
    }


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def policies(built):
    yield from disturbed(built)


def drawn_noise(policy):
    """The noise of the next learn call, (networks, steps, 1, S): online, target and, if it is double, choice."""
    if not policy.net.noise_size:
        return [[None] * STEPS] * 3
    count = 3 if policy.cfg.learn.double else 2
    return weight_noise((count, STEPS, 1, policy.net.noise_size), copy.deepcopy(policy.learn_rng))


def distribution(p, part, obs, noise):
    return np.exp(np_log_softmax(np_atoms(p, part, obs, ATOMS, noise)))


def distributional_loss(p, rows, noise, double):
    """Loss of each row, values of the chosen actions, and priorities."""
    next_probability = distribution(p, "target", rows["next_obs"], noise[1])
    choosing = distribution(p, "net", rows["next_obs"], noise[2]) if double else next_probability
    best = best_actions(choosing @ SUPPORT, next_probability @ SUPPORT, double)
    m = np_project(next_probability[AT, best], np_returns(rows, SUPPORT), SUPPORT)
    log_p = np_log_softmax(np_atoms(p, "net", rows["obs"], ATOMS, noise[0]))[AT, rows["action"]]
    loss = -(m * log_p).sum(axis=1)
    excess = loss + np.where(m > 0.0, m * np.log(np.maximum(m, 1e-300)), 0.0).sum(axis=1)
    return loss, np.exp(log_p) @ SUPPORT, excess


def expected_loss(p, rows, noise):
    next_q = np_atoms(p, "target", rows["next_obs"], 1, noise[1])[:, :, 0]
    y = np_returns(rows, next_q.max(axis=1, keepdims=True))[:, 0]
    q = np_atoms(p, "net", rows["obs"], 1, noise[0])[AT, rows["action"], 0]
    return np_huber(q - y), q, np.abs(q - y)


@pytest.mark.parametrize(
    "kind", ["all", pytest.param("expected", marks=pytest.mark.slow), pytest.param("plain", marks=pytest.mark.slow)]
)
def test_the_update_computes_the_loss_of_its_formula_and_its_gradient(policies, batch_of, kind):
    policy = policies[kind]
    p, noise = params(policy), drawn_noise(policy)
    rows, weight, output = learn(policy, batch_of, kind)

    def step(p, k):
        numbers = [each[k] for each in noise]
        if kind == "expected":
            return expected_loss(p, rows, numbers)
        return distributional_loss(p, rows, numbers, double=True)

    steps = [step(p, k) for k in range(STEPS)]
    assert (steps[0][0] == steps[1][0]).all() == (kind == "plain")
    assert output.metrics["loss"] == pytest.approx(np.mean([(weight * each[0]).mean() for each in steps]), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx(np.mean([each[1].mean() for each in steps]), rel=1e-5, abs=1e-6)
    if kind != "plain":
        np.testing.assert_allclose(output.priorities, [each[2] for each in steps], rtol=1e-4, atol=1e-5)
    check_gradients(policy, lambda p, k: (weight * step(p, k)[0]).mean(), p)


@pytest.mark.slow
def test_with_everything_off_it_is_dqn(tiny_config):
    off = make_policy(tiny_config, "rainbow", **OFF)
    dqn = make_policy(tiny_config, "dqn", **{"policy.learn.double": False})
    assert off.net.noise_size == 0
    batches = [Batches(policy, ROWS)(random_rows(policy), INDEX) for policy in (off, dqn)]
    for _ in range(2):
        ours, theirs = (policy.learn_mode.forward(batch) for policy, batch in zip((off, dqn), batches))
        assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-6)
    for name, array in dqn.state_dict()["params"].items():
        np.testing.assert_allclose(off.state_dict()["params"][name], array, rtol=1e-5, atol=1e-7, err_msg=name)
