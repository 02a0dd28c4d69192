"""AIRL: rewards and loss against NumPy in float64, and the reward that it recovers on a small decision process."""

import numpy as np
import pytest
import recordings
from fakes import discrete
from float64_networks import params

from minding.engine.data.rollout import Rollout
from minding.engine.errors import ChainError
from minding.policies.rewards.airl import AIRL

STATES, ACTIONS, GAMMA, ROWS = 5, 3, 0.8, 400
AFTER = np.array([[0, 1, 3], [0, 2, 4], [1, 2, 3], [2, 0, 4], [3, 1, 4]])
"""A deterministic process: the state after each action in each state."""
TRUE = np.array([0.0, -1.0, 1.0, 0.5, -0.5])
"""The reward of each state."""
SETTINGS = {
    "policy.learn.gamma": GAMMA,
    "policy.other.airl.hidden": [32],
    "policy.other.airl.batch_size": 128,
    "policy.other.airl.n_update": 20,
    "policy.other.airl.learning_rate": 0.01,
}


def soft_policy(advantages_of):
    """The soft-optimal policy, log pi (S, A), and its soft values, for rewards (S, A) of a step without shaping."""
    value = np.zeros(STATES)
    for _ in range(200):
        q = advantages_of + GAMMA * value[AFTER]
        value = np.log(np.exp(q).sum(axis=1))
    return q - value[:, None], value


def steps(rng, log_pi, count):
    """Steps of a policy in the process, from one long stream: states and actions, and the state after the last one."""
    states, actions, state = np.zeros(count + 1, int), np.zeros(count, int), 0
    for t in range(count):
        states[t] = state
        actions[t] = rng.choice(ACTIONS, p=np.exp(log_pi[state]))
        state = AFTER[state, actions[t]]
    states[count] = state
    return states, actions


def rollout(states, actions, log_prob, terminated=None):
    none, ends = np.zeros((len(actions), 1), bool), np.zeros((0, 2), np.int64)
    end = none if terminated is None else terminated
    record = {"log_prob": log_prob[:, None].astype(np.float32)}
    zeros = np.zeros(none.shape, np.float32)
    return Rollout(states[:-1, None], states[-1:], None, ends, actions[:, None], zeros, end, none, None, record)


@pytest.fixture(scope="module")
def make(tiny_config):
    def made(log_pi, **settings):
        cfg = tiny_config("airl", discrete(STATES), discrete(ACTIONS), **{**SETTINGS, **settings})
        expert, _ = soft_policy(np.tile(TRUE[:, None], ACTIONS))
        states, actions = steps(np.random.default_rng(1), expert, 4 * ROWS)
        episode = recordings.log(len(actions), actions, obs=states, terminated=False)
        data = recordings.dataset([episode], discrete(STATES), recordings.choices(ACTIONS))
        return AIRL(cfg, data, lambda obs, action: log_pi[obs, action].astype(np.float32))

    return made


def table(p, part, rows):
    """g or h of one-hot rows, float64."""
    name = {"g": "", "h": "shaping_"}[part]
    hidden = np.tanh(rows @ p[f"net.{name}body.layers.0.weight"].T + p[f"net.{name}body.layers.0.bias"])
    return hidden @ p[f"net.{name}head.weight"][0] + p[f"net.{name}head.bias"][0]


@pytest.mark.parametrize("state_only", [True, False])
def test_rewards_and_loss_are_those_of_the_formula(make, state_only, monkeypatch):
    log_pi = np.log(np.random.default_rng(3).dirichlet(np.ones(ACTIONS), STATES))
    airl = make(log_pi, **{"policy.other.airl.state_only": state_only, "policy.other.airl.n_update": 1})
    p, told, update = params(airl), [], airl._update
    monkeypatch.setattr(airl, "_update", lambda *args: (told.append(args), update(*args))[1])
    states, actions = steps(np.random.default_rng(2), log_pi, 12)
    end = np.zeros((12, 1), bool)
    end[4, 0] = True
    given = rollout(states, actions, log_pi[states[:-1], actions], end)
    found = airl.estimate(given)

    def f(state, action, after, ended):
        seen = np.eye(STATES)[state]
        judged = seen if state_only else np.concatenate([seen, np.eye(ACTIONS)[action]], axis=1)
        ahead = GAMMA * (1.0 - ended) * table(p, "h", np.eye(STATES)[after])
        return table(p, "g", judged) + ahead - table(p, "h", seen)

    wanted = f(states[:-1], actions, states[1:], end[:, 0]) - log_pi[states[:-1], actions]
    np.testing.assert_allclose(found.reward[:, 0], wanted, rtol=2e-4, atol=2e-5)
    (batch, _), data = told[0], airl._dataset
    expert, agent = batch.index[0, :128], batch.index[0, 128:] - len(data)
    pairs = []
    for state, action, after, ended in (
        (data.obs[""][expert], data.action[expert], np.append(data.obs[""], data.final_obs[""])[expert + 1], 0.0),
        (states[agent], actions[agent], states[agent + 1], end[agent, 0]),
    ):
        pairs.append(f(state, action, after, ended) - log_pi[state, action])
    loss = np.logaddexp(0.0, -pairs[0]).mean() + np.logaddexp(0.0, pairs[1]).mean()
    assert found.metrics["airl_loss"] == pytest.approx(loss, rel=1e-4)
    assert found.metrics["airl_expert"] == pytest.approx((pairs[0] > 0).mean())
    del given.record["log_prob"]
    with pytest.raises(ChainError, match=r"airl: .* no log-probabilities"):
        airl.estimate(given)


def test_a_small_processs_reward_is_recovered_up_to_shaping(make):
    """The agent is soft-optimal for f after each rollout: exact in place of PPO."""
    log_pi = np.full((STATES, ACTIONS), -np.log(ACTIONS))
    airl, rng, every = make(log_pi), np.random.default_rng(0), np.eye(STATES)
    for _ in range(120):
        states, actions = steps(rng, log_pi, ROWS)
        airl.estimate(rollout(states, actions, log_pi[states[:-1], actions]))
        p = params(airl)
        g, h = table(p, "g", every), table(p, "h", every)
        # Rewards of shaped f have the same soft-optimal policy as g.
        log_pi[:] = soft_policy(g[:, None] + GAMMA * h[AFTER] - h[:, None])[0]
    expert, value = soft_policy(np.tile(TRUE[:, None], ACTIONS))
    assert np.abs(np.exp(log_pi) - np.exp(expert)).max() < 0.1
    f = g[:, None] + GAMMA * h[AFTER] - h[:, None]
    np.testing.assert_allclose(f, expert, atol=0.35)
    # The same rewards and soft values, each up to a constant.
    np.testing.assert_allclose(g - g.mean(), TRUE - TRUE.mean(), atol=0.3)
    np.testing.assert_allclose(h - h.mean(), value - value.mean(), atol=0.3)
