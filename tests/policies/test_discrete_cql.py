"""Discrete CQL: one update against float64 NumPy, gradients by finite differences, and its bound on a solved MDP."""

import mindspore as ms
import numpy as np
import pytest
from action_values import (
    ACTIONS,
    MASKED,
    batches_of,
    check_gradients,
    disturbed,
    learn,
    linear,
    make_policy,
    np_features,
    np_huber,
    np_returns,
    params,
)
from fakes import Batches, discrete, draw_masks, space_of

from minding.engine.process.runtime import to_device
from minding.policies import get_policy_class

CONTRACT = {"discrete_cql": (MASKED, discrete(ACTIONS), {"policy.model.dueling": True})}
JUDGED = ("policy.other.holdout=0.3", "policy.eval.fqe=true", "policy.eval.fqe_steps=50", "policy.learn.gamma=0.0")
RESUMES = {"discrete CQL, judged by held-out episodes": ("CartPole-v1", JUDGED)}
"""What it keeps itself, DQN's case has."""
ALTERNATIVES = ("policy.learn.target.kind=periodic",)
ALPHA = 0.7


@pytest.fixture(scope="module")
def built(tiny_config):
    changes = {"policy.learn.alpha": ALPHA, "policy.learn.grad_norm": 0.0, "policy.learn.target.tau": 1e-9}
    return {"plain": make_policy(tiny_config, "discrete_cql", **changes)}


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def policy(built):
    for policies in disturbed(built):
        yield policies["plain"]


def values(p, part, obs):
    return linear(p, f"{part}.advantage", np_features(p, part, obs))


def log_sum_exp(q):
    return np.log(np.exp(q).sum(axis=1))


def loss_of(p, rows, target):
    q = values(p, "net", rows["obs"])
    chosen = q[np.arange(len(q)), rows["action"]]
    return np_huber(chosen - target).mean() + ALPHA * (log_sum_exp(q) - chosen).mean()


def target_of(p, rows):
    best = values(p, "net", rows["next_obs"]).argmax(axis=1)
    following = values(p, "target", rows["next_obs"])[np.arange(len(best)), best]
    return np_returns(rows, following[:, None])[:, 0]


def test_the_loss_and_its_gradient_are_those_of_the_formula(policy, batch_of):
    p = params(policy)
    rows, _, output = learn(policy, batch_of, "plain")
    target, q = target_of(p, rows), values(p, "net", rows["obs"])
    # What the formulas treat apart is in the batch: double Q-learning, true ends, errors beyond the threshold.
    best = [values(p, name, rows["next_obs"]).argmax(axis=1) for name in ("net", "target")]
    assert (best[0] != best[1]).any()
    assert {0.0, 1.0} < {*rows["terminated"]}
    chosen = q[np.arange(len(q)), rows["action"]]
    assert 0 < (np.abs(chosen - target) > 1.0).sum() < len(q)
    expected = {
        "loss": loss_of(p, rows, target),
        "q_value": chosen.mean(),
        "conservative_gap": (log_sum_exp(q) - chosen).mean(),
    }
    assert {name: output.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6)
    check_gradients(policy, lambda changed, _: loss_of(changed, rows, target), p)


def test_illegal_actions_are_neither_chosen_nor_in_the_sum(tiny_config):
    policy = make_policy(tiny_config, "discrete_cql", MASKED)
    rng = np.random.default_rng(5)
    obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
    action = mask.argmax(axis=1)
    plain = {"reward": 0.0, "terminated": 0.0, "discount": 1.0}
    batch = {name: to_device(np.full(30, number, np.float32)) for name, number in plain.items()}
    leaves = tuple(to_device(leaf) for leaf in (mask, obs))
    batch |= {"obs": leaves, "next_obs": leaves, "action": to_device(action.astype(np.int32))}
    q = np.where(mask, values(params(policy), "net", obs), -np.inf)
    assert np.isinf(q).any()
    np.testing.assert_allclose(policy.root.td_target(batch).asnumpy(), q.max(axis=1), rtol=1e-5, atol=1e-6)
    gap = (log_sum_exp(q) - q[np.arange(30), action]).mean()
    root = policy.root

    @ms.jit
    def gap_of(rows):
        return root.loss(rows)[1]["conservative_gap"]

    assert gap_of(batch).asnumpy() == pytest.approx(gap, rel=1e-5)


STATES, GAMMA = 4, 0.8
NEXT = np.array([[1, 0, 2], [2, 3, 0], [3, 1, 1], [0, 2, 3]])
REWARD = np.array([[0.0, 0.3, -0.2], [0.5, 0.0, 0.1], [-0.1, 0.2, 0.4], [0.3, -0.3, 0.0]])
ENDS = np.zeros((STATES, ACTIONS))
ENDS[1, 0] = 1.0


def solved(alpha):
    """Values (S, A) at which the gradient is zero, for data with all actions alike: CQL's backup, until it stands.

    Of the loss by Q(s, a): (Q - y) + alpha (p - b) / b = 0 with b = 1 / A, p the softmax of Q.
    """
    q = np.zeros((STATES, ACTIONS))
    for _ in range(3000):
        y = REWARD + GAMMA * (1.0 - ENDS) * q[NEXT].max(axis=-1)
        p = np.exp(q) / np.exp(q).sum(axis=1, keepdims=True)
        q += 0.2 * (y - alpha * (ACTIONS * p - 1.0) - q)
    return q


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_learned_values_are_below_the_true_ones(tiny_config, alpha):
    """Of a table of 4 states, in which every action was taken as often."""
    changes = {
        "policy.model.hidden": [],
        "policy.learn.alpha": alpha,
        "policy.learn.gamma": GAMMA,
        "policy.learn.learning_rate": 0.02,
        "policy.learn.target.tau": 0.1,
    }
    policy = get_policy_class("discrete_cql")(
        tiny_config("discrete_cql", space_of(STATES), discrete(ACTIONS), **changes)
    )
    state, action = (index.ravel() for index in np.indices((STATES, ACTIONS)))
    table = np.eye(STATES, dtype=np.float32)
    rows = {
        "obs": table[state],
        "next_obs": table[NEXT[state, action]],
        "action": action,
        "reward": REWARD[state, action].astype(np.float32),
        "terminated": ENDS[state, action].astype(np.float32),
        "discount": np.full(len(state), GAMMA, np.float32),
    }
    batch = Batches(policy, len(state))(rows, np.tile(np.arange(len(state)), (400, 1)))
    for _ in range(5):
        policy.learn_mode.forward(batch)
    found, true = policy.actors["eval"].outputs(table)[0].astype(np.float64), solved(0.0)
    np.testing.assert_allclose(found, solved(alpha), atol=2e-3)
    if alpha:
        # The bound: what the policy expects of itself is less than what even the best one gets.
        assert (found.max(axis=1) < true.max(axis=1) - 0.05).all()
        assert (found.argmax(axis=1) == true.argmax(axis=1)).all()
