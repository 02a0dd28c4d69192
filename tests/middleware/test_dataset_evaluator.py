"""What recorded data say of a policy: numbers by hand, and the values of a solved MDP."""

import types

import numpy as np
import pytest
from fakes import discrete, space_of, tiny_config
from recordings import choices, dataset, log

from minding.engine import OfflineRLContext, Task
from minding.engine.data.holdout import first_steps, hold_out
from minding.engine.data.rewards import RewardScale
from minding.engine.process.runtime import ms
from minding.middleware import dataset_evaluator
from minding.policies import get_policy_class

STATES, ACTIONS, GAMMA = 5, 2, 0.9


class Judged:
    """A policy of two functions: what it does, and what it thinks that is worth."""

    def __init__(self, act, value=None, scale="raw", fitted=None):
        self.eval_mode = types.SimpleNamespace(forward=act)
        self.reward_scale, self.value, self.fitted = RewardScale(scale), value, fitted

    def action_values(self, obs, action):
        return None if self.value is None else self.value(obs[""], action)

    def fitted_q(self, gamma, limits):
        return self.fitted(gamma, limits)


# A random MDP, solved.


def random_mdp(rng):
    """Transition probabilities (S, A, S), of which the last state is a true end, and rewards (S, A)."""
    return rng.dirichlet(np.ones(STATES), (STATES, ACTIONS)), rng.normal(size=(STATES, ACTIONS))


def exact_values(transitions, rewards, policy):
    """V of a deterministic policy: what follows the last state counts for nothing."""
    states = np.arange(STATES)
    following = transitions[states, policy] * (states != STATES - 1)
    return np.linalg.solve(np.eye(STATES) - GAMMA * following, rewards[states, policy])


def played(transitions, rewards, count, rng):
    """Episodes of random actions, of 20 steps at most."""
    episodes = []
    for _ in range(count):
        states, actions = [int(rng.integers(STATES - 1))], []
        while states[-1] != STATES - 1 and len(actions) < 20:
            actions.append(int(rng.integers(ACTIONS)))
            states.append(int(rng.choice(STATES, p=transitions[states[-1], actions[-1]])))
        ended = states[-1] == STATES - 1
        reward = rewards[states[:-1], actions].astype(np.float32)
        obs = np.eye(STATES, dtype=np.float32)[states]
        episodes.append(
            {"obs": obs, "action": np.array(actions), "reward": reward, "terminated": ended, "truncated": not ended}
        )
    return episodes


def mdp_setup(**settings):
    rng = np.random.default_rng(3)
    transitions, rewards = random_mdp(rng)
    observation = space_of(STATES)
    data = dataset(played(transitions, rewards, 300, rng), observation, choices(ACTIONS))
    cfg = tiny_config(
        "discrete_cql",
        observation,
        discrete(ACTIONS),
        **{
            "policy.model.hidden": [32],
            "policy.learn.gamma": GAMMA,
            "policy.learn.batch_size": 64,
            "policy.eval.fqe": True,
            "policy.eval.fqe_steps": 2400,
            "policy.other.holdout": 0.2,
            **settings,
        },
    )
    return transitions, rewards, data, cfg


def counted(learned):
    """The transition probabilities (S, A, S) that the data show."""
    rows = learned.rows(["obs", "action", "next_obs"], np.arange(len(learned)))
    counts = np.zeros((STATES, ACTIONS, STATES))
    np.add.at(counts, (rows["obs"].argmax(axis=1), rows["action"], rows["next_obs"].argmax(axis=1)), 1.0)
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)


def test_fitted_q_evaluation_finds_the_values_of_an_mdp():
    transitions, rewards, data, cfg = mdp_setup()
    real = get_policy_class("discrete_cql")(cfg)
    learned, held = hold_out(data, 0.2, cfg.seed)
    first = held.rows(["obs"], np.concatenate([[0], held.end[:-1] + 1]))["obs"].argmax(axis=1)
    policy = np.zeros(STATES, np.int64)
    judge = dataset_evaluator(cfg, Judged(lambda obs: policy[obs.argmax(axis=1)], fitted=real.fitted_q), data)
    values = []
    for choice in ([1, 1, 1, 1, 1], [1, 0, 1, 0, 0]):
        policy[:] = choice
        values.append(judge.judge(0)["fqe_value"])
        # What the data show is all that a fit can know; then the truth, which they show with an error of theirs.
        assert values[-1] == pytest.approx(exact_values(counted(learned), rewards, policy)[first].mean(), abs=0.03)
        assert values[-1] == pytest.approx(exact_values(transitions, rewards, policy)[first].mean(), abs=0.25)
    # From the beginning each time: by the seed and the number of the step alone.
    policy[:] = 1
    assert judge.judge(0)["fqe_value"] == values[0]
    assert judge.judge(64)["fqe_value"] != values[0]


# Values that travel further than any recorded episode, and values that end within them.


def endless(length, steps=2000):
    """Episodes of the same reward, -1, that only a time limit ends."""
    rng = np.random.default_rng(0)
    return [
        log(
            length,
            rng.integers(2, size=length),
            obs=rng.normal(size=(length + 1, 3)).astype(np.float32),
            reward=-np.ones(length),
            terminated=False,
            truncated=True,
        )
        for _ in range(steps // length)
    ]


def corridor(count, limit, cells=10):
    """Random walks of at most `limit` steps: action 1 leads to the end on the right, each step costs 1."""
    rng, episodes = np.random.default_rng(1), []
    for _ in range(count):
        cell, actions = [int(rng.integers(cells))], []
        while cell[-1] < cells and len(actions) < limit:
            actions.append(int(rng.integers(2)))
            cell.append(max(0, cell[-1] + 2 * actions[-1] - 1))
        x, ended = np.array(cell, np.float32), cell[-1] == cells
        obs, cost = np.stack([x / cells, np.sin(x), np.cos(x)], axis=1), -np.ones(len(actions))
        ends = {"terminated": ended, "truncated": not ended}
        episodes.append(log(len(actions), np.array(actions), obs=obs, reward=cost, **ends))
    return episodes


def small_fit(episodes, gamma, steps):
    changes = {
        "policy.model.hidden": [32],
        "policy.learn.gamma": gamma,
        "policy.learn.batch_size": 64,
        "policy.learn.steps_per_call": 200,
        "policy.eval.fqe": True,
        "policy.eval.fqe_steps": steps,
        "policy.other.holdout": 0.2,
    }
    cfg = tiny_config("discrete_cql", space_of(3), discrete(2), **changes)
    return cfg, dataset(episodes, space_of(3), choices(2))


def test_values_travel_further_than_a_recorded_episode():
    gamma = 0.99
    cfg, data = small_fit(endless(10), gamma, 5000)
    one = Judged(lambda obs: np.ones(len(obs), np.int64), fitted=get_policy_class("discrete_cql")(cfg).fitted_q)
    judge = dataset_evaluator(cfg, one, data)
    assert judge.requirements() == []
    assert judge.judge(0)["fqe_value"] == pytest.approx(-1 / (1 - gamma), rel=0.02)


@pytest.mark.parametrize(("limit", "gamma", "steps"), [(10, 0.98, 4000), (10_000, 1.0, 6000)])
def test_values_end_with_an_episode_or_go_on_if_it_never_ends(limit, gamma, steps):
    cfg, data = small_fit(corridor(600, limit), gamma, steps)
    act = [1]
    one = Judged(lambda obs: np.full(len(obs), act[0]), fitted=get_policy_class("discrete_cql")(cfg).fitted_q)
    judge = dataset_evaluator(cfg, one, data)
    assert judge.requirements() == []
    _, held = hold_out(data, 0.2, cfg.seed)
    away = 10 - np.rint(10 * held.rows(["obs"], first_steps(held))["obs"][:, 0])
    returns = away if gamma == 1 else (1 - gamma**away) / (1 - gamma)
    assert judge.judge(0)["fqe_value"] == pytest.approx(-returns.mean(), rel=0.05)
    if gamma < 1:
        act[0] = 0
        assert judge.judge(0)["fqe_value"] == pytest.approx(-1 / (1 - gamma), rel=0.02)


# By hand: observations count the steps, actions are halves of them.


def counting(episodes, length, terminated=True):
    obs = np.arange(length + 1, dtype=np.float32)[:, None]
    one = log(length, obs[:-1] / 10, obs=obs, terminated=terminated, truncated=not terminated)
    return dataset([one] * episodes, space_of(1, low=0.0, high=9.0))


def evaluator(policy, data, **settings):
    cfg = tiny_config(
        "td3_bc",
        space_of(1),
        space_of(1),
        **{"policy.learn.gamma": 0.5, "policy.other.holdout": 0.5, "policy.eval.freq": 10, **settings},
    )
    return dataset_evaluator(cfg, policy, data)


@pytest.mark.parametrize(
    ("terminated", "scale", "td_error"),
    [
        # Q = s + a, the policy does 0.5: |0 - 1 - 0.5 (1 + 0.5)|, |1.1 - 1 - 0.5 (2 + 0.5)|, |2.2 - 1|
        (True, "raw", (1.75 + 1.15 + 1.2) / 3),
        # ... |2.2 - 1 - 0.5 (3 + 0.5)|
        (False, "raw", (1.75 + 1.15 + 0.55) / 3),
        # A reward of 0.
        (True, "shift", (0.75 + 0.15 + 2.2) / 3),
    ],
)
def test_distance_td_error_and_first_value_by_hand(terminated, scale, td_error):
    half = Judged(
        lambda obs: np.full((len(obs), 1), 0.5, np.float32), lambda obs, action: obs[:, 0] + action[:, 0], scale
    )
    found = evaluator(half, counting(4, 3, terminated)).judge(0)
    expected = {"action_distance": 0.4, "td_error": td_error, "first_value": 0.5}
    assert found == pytest.approx(expected, rel=1e-6)


def test_discrete_actions_are_compared_by_their_share():
    one = log(4, [0, 1, 1, 2], obs=np.zeros((5, 1)))
    data = dataset([one, one], space_of(1), choices(3))
    cfg = tiny_config("bc", space_of(1), discrete(3), **{"policy.other.holdout": 0.5})
    assert dataset_evaluator(cfg, Judged(lambda obs: np.ones(len(obs), np.int64)), data).judge(0) == {
        "other_actions": 0.5
    }


@pytest.mark.parametrize(("last", "judged"), [(0, []), (15, [15]), (12, [])])
def test_the_last_policy_is_judged_once_and_what_is_due_stays(last, judged):
    still = Judged(lambda obs: np.zeros((len(obs), 1), np.float32))
    judge, ctx = evaluator(still, counting(2, 3)), OfflineRLContext()
    for ctx.train_iter in {12, last} if last else ():
        judge(ctx)
        ctx = ctx.renew()
    before = ctx.last_data_eval_iter
    judge.finish(ctx)
    assert [ctx.train_iter] * (ctx.data_eval is not None) == judged
    assert ctx.last_data_eval_iter == before


def test_an_error_judges_nothing_and_a_signal_aborts_the_fit():
    _, _, data, cfg = mdp_setup(**{"policy.eval.freq": 10})
    endless = types.SimpleNamespace(restart=lambda: None, learn=lambda *_: task.interrupt("SIGTERM"))
    one, task = Judged(lambda obs: np.ones(len(obs), np.int64), fitted=lambda *_: endless), Task()
    judge, ctx = dataset_evaluator(cfg, one, data, task=task), OfflineRLContext(train_iter=10)
    judge(ctx)
    assert (ctx.data_eval, ctx.last_data_eval_iter, judge.resume_guarantee) == (None, -1, "mid-iteration")
    judge.finish(ctx)
    assert ctx.data_eval is not None
    assert list(ctx.data_eval) == ["other_actions"]
    failed = types.SimpleNamespace(error=ValueError(), interrupted_by=None)
    judge, ctx = dataset_evaluator(cfg, one, data, task=failed), OfflineRLContext(train_iter=10)
    judge.finish(ctx)
    assert ctx.data_eval is None


@pytest.mark.parametrize("algorithm", ["td3_bc", "iql", "awac", "cql", "discrete_cql"])
def test_action_values_are_the_critics_for_any_number_of_rows(algorithm):
    policy, rng = get_policy_class(algorithm)(tiny_config(algorithm)), np.random.default_rng(0)
    obs = rng.normal(size=(1030, 4)).astype(np.float32)
    of_discrete = policy.spec["action"]["kind"] == "discrete"
    action = rng.integers(0, 3, 1030) if of_discrete else rng.uniform(-1, 1, (1030, 2)).astype(np.float32)
    found, leaves = policy.action_values({"": obs}, action), (ms.Tensor(obs),)
    if of_discrete:
        expected = policy.root.net(leaves)[0].asnumpy()[np.arange(1030), action]
    else:
        expected = np.minimum(*(q.asnumpy() for q in policy.root.critics(ms.Tensor(action), leaves)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
