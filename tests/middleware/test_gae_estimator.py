"""Advantages of rollouts, with numbers worked out by hand. The policy values a state at 10 times its age."""

import dataclasses

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv

from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.obs_trees import unflatten
from minding.engine.data.rollout import Rollout
from minding.middleware import StepCollector, gae_estimator


@pytest.fixture
def estimate(counting_config):
    def run(env, iterations=1, gae_lambda=0.0, **overrides):
        cfg = counting_config("ppo", **{"policy.learn.gamma": 0.5, "policy.learn.gae_lambda": gae_lambda, **overrides})
        policy = AgePolicy().collect_mode
        collector, estimator = StepCollector(cfg, policy, env), gae_estimator(cfg, policy)
        made = []
        for _ in range(iterations):
            ctx = OnlineRLContext()
            collector(ctx)
            estimator(ctx)
            made.append(ctx)
        return made if iterations > 1 else made[0]

    return run


def by_env(data, name, env):
    return data[name].reshape(4, 2, -1)[:, env, 0].tolist()


def test_reset_rows_change_no_advantage_of_the_others(estimate):
    plain = estimate(CountingEnv(lengths=(3, 2)), gae_lambda=1.0).train_data
    data = estimate(CountingEnv(lengths=(3, 2), reset_rows=True), gae_lambda=1.0).train_data
    assert by_env(data, "valid", 0) == [True, True, True, False]
    assert by_env(data, "valid", 1) == [True, True, False, True]
    assert by_env(data, "advantage", 0)[:3] == by_env(plain, "advantage", 0)[:3]
    assert by_env(data, "advantage", 1)[:2] == by_env(plain, "advantage", 1)[:2]
    # The new episode's first step, at the rollout's end.
    assert by_env(data, "advantage", 1)[3] == 1 + 5 - 0


def test_all_rows_of_the_rollout_are_flat_in_one_order(estimate):
    ctx = estimate(CountingEnv(lengths=(3, 2)))
    data = ctx.train_data
    assert set(data) == {"obs", "action", "value", "advantage", "return", "valid"}
    assert data["obs"].tolist()[2:4] == [[0, 0, 1], [1, 0, 1]]
    assert {len(value) for value in data.values()} == {8}
    assert np.array_equal(data["value"], 10 * data["obs"][:, 2])
    assert data["advantage"].dtype == data["return"].dtype == np.float32


def agents_rollout(reward, alive, last_alive, final_alive=None, ends=(), truncated=False, valid=None):
    """Steps of one environment with two agents, whose values are 10 and 20 everywhere."""
    steps = len(reward)
    flags = np.zeros((2, steps, 1), bool)
    for t, n in ends:
        flags[int(truncated), t, n] = True
    seen = np.arange(steps * 2, dtype=np.float32).reshape(steps, 1, 2, 1)
    values = np.array([10.0, 20.0], np.float32)

    def obs(seen, alive):
        return unflatten(
            {"observation": seen, "alive": np.array(alive, bool), "state": np.zeros((*seen.shape[:-2], 3))}
        )

    return Rollout(
        obs=obs(seen, [[row] for row in alive]),
        last_obs=obs(seen[0], [last_alive]),
        final_obs=None if final_alive is None else obs(seen[0], [final_alive]),
        ends=np.array(ends, np.int64).reshape(-1, 2),
        action=np.zeros((steps, 1, 2), np.int64),
        reward=np.array(reward, np.float32)[:, None],
        terminated=flags[0],
        truncated=flags[1],
        valid=valid,
        record={"value": np.broadcast_to(values, (steps, 1, 2)).copy(), "log_prob": np.zeros((steps, 1, 2))},
        last_value=values[None],
        final_value=None if final_alive is None else values[None] * 2,
    )


@pytest.fixture
def estimate_agents(counting_config):
    def run(rollout, gae_lambda=0.0):
        cfg = counting_config("ppo", **{"policy.learn.gamma": 0.5, "policy.learn.gae_lambda": gae_lambda})
        ctx = OnlineRLContext()
        ctx.trajectories = rollout
        gae_estimator(cfg, AgePolicy().collect_mode)(ctx)
        return ctx.train_data

    return run


BOTH = (True, True)


def test_each_agent_has_its_own_advantages_and_rows(estimate_agents):
    data = estimate_agents(agents_rollout([[1, 2], [3, 4]], [BOTH, BOTH], BOTH), gae_lambda=1.0)
    # delta = r + 0.5 V - V: -4 and -2 for the first agent, -8 and -6 for the second; A_0 = delta_0 + 0.5 A_1.
    assert data["advantage"].tolist() == [-5, -11, -2, -6]
    assert data["return"].tolist() == [5, 9, 8, 14]
    assert data["obs.observation"].tolist() == [[0], [1], [2], [3]]
    assert data["action"].shape == data["log_prob"].shape == data["valid"].shape == (4,)
    assert data["valid"].all()
    # What is not the single agent's is no part of its rows.
    assert not {"obs.alive", "obs.state"} & set(data)


def test_an_agent_that_leaves_has_no_future_and_no_rows(estimate_agents):
    alive = [BOTH, (True, False), (True, False)]
    data = estimate_agents(agents_rollout([[1, 2], [3, 0], [5, 0]], alive, (True, False)), gae_lambda=1.0)
    assert data["valid"].reshape(3, 2).tolist() == [[True, True], [True, False], [True, False]]
    # The other one: deltas -4, -2, 0.
    assert data["advantage"].reshape(3, 2)[:, 0].tolist() == [-4 - 0.5 * 2, -2, 0]
    assert data["advantage"][1] == 2 - 20


def test_at_a_time_limit_only_present_agents_bootstrap(estimate_agents):
    rollout = agents_rollout([[1, 2], [3, 4]], [BOTH, BOTH], BOTH, (True, False), [(0, 0)], truncated=True)
    data = estimate_agents(rollout, gae_lambda=1.0)
    assert data["advantage"].tolist() == [1 + 0.5 * 20 - 10, 2 - 20, -2, -6]


def test_a_true_end_and_a_reset_are_those_of_all_agents(estimate_agents):
    gone = (False, False)
    valid = np.array([[True], [True], [False]])
    rollout = agents_rollout([[1, 2]] * 3, [BOTH] * 3, BOTH, gone, [(0, 0)], valid=valid)
    data = estimate_agents(rollout, gae_lambda=1.0)
    assert data["advantage"].reshape(3, 2)[0].tolist() == [1 - 10, 2 - 20]
    assert data["valid"].reshape(3, 2).tolist() == [[True] * 2, [True] * 2, [False] * 2]
    assert data["advantage"].reshape(3, 2)[1].tolist() == [1 + 5 - 10, 2 + 10 - 20]


def test_a_reward_for_the_team_is_each_agent_s(estimate_agents):
    rollout = agents_rollout([[1, 1], [3, 3]], [BOTH, BOTH], BOTH)
    expected = estimate_agents(rollout, gae_lambda=1.0)
    shared = estimate_agents(dataclasses.replace(rollout, reward=rollout.reward[..., 0]), gae_lambda=1.0)
    assert shared["advantage"].tolist() == expected["advantage"].tolist()
