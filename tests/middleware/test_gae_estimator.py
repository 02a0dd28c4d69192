"""Advantages of rollouts, with numbers worked out by hand. The policy values a state at 10 times its age."""

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv

from minding.engine.chain.context import OnlineRLContext
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


def test_ends_do_not_bootstrap_and_time_limits_do_from_the_final_observation(estimate):
    data = estimate(CountingEnv(lengths=(3, 2))).train_data
    # lambda 0: r + 0.5 V(s') - V(s). True end at age 3; the rollout's end bootstraps from the last observation.
    assert by_env(data, "advantage", 0) == [1 + 5 - 0, 2 + 10 - 10, 3 + 0 - 20, 1 + 5 - 0]
    # Time limits at age 2 bootstrap from V = 20 and not from the new episode's V = 0.
    assert by_env(data, "advantage", 1) == [1 + 5 - 0, 2 + 10 - 10, 1 + 5 - 0, 2 + 10 - 10]
    assert by_env(data, "return", 0) == [6, 12, 3, 6]


def test_advantages_do_not_cross_an_end(estimate):
    data = estimate(CountingEnv(lengths=(3, 2)), gae_lambda=1.0).train_data
    # delta 6, 2, -17 | 6 and 6, 2 | 6, 2; A_t = delta_t + 0.5 A_{t+1} within an episode.
    assert by_env(data, "advantage", 0) == [6 + 0.5 * (2 - 8.5), 2 - 8.5, -17, 6]
    assert by_env(data, "advantage", 1) == [7, 2, 7, 2]


def test_reset_rows_are_marked_and_change_no_advantage_of_the_others(estimate):
    plain = estimate(CountingEnv(lengths=(3, 2)), gae_lambda=1.0).train_data
    data = estimate(CountingEnv(lengths=(3, 2), reset_rows=True), gae_lambda=1.0).train_data
    assert by_env(data, "valid", 0) == [True, True, True, False]
    assert by_env(data, "valid", 1) == [True, True, False, True]
    assert by_env(data, "advantage", 0)[:3] == by_env(plain, "advantage", 0)[:3]
    assert by_env(data, "advantage", 1)[:2] == by_env(plain, "advantage", 1)[:2]
    # The new episode's first step, at the rollout's end.
    assert by_env(data, "advantage", 1)[3] == 1 + 5 - 0


def test_two_rollouts_keep_their_ends(estimate):
    first, second = estimate(CountingEnv(lengths=(9, 9)), iterations=2, gae_lambda=1.0)
    # delta_t = (t + 1) + 5 (t + 1) - 10 t = 6 - 4 t; the first rollout stops at t = 3 and knows nothing of the second.
    expected = [6 + 0.5 * (2 + 0.5 * (-2 + 0.5 * -6)), 2 + 0.5 * (-2 + 0.5 * -6), -2 + 0.5 * -6, -6]
    assert by_env(first.train_data, "advantage", 0) == expected
    assert by_env(second.train_data, "advantage", 0)[-1] == 6 - 4 * 7
    assert (first.trajectory_end_idx.tolist(), second.trajectory_end_idx.tolist()) == ([6, 7], [6, 7])


def test_all_rows_of_the_rollout_are_flat_in_one_order(estimate):
    ctx = estimate(CountingEnv(lengths=(3, 2)))
    data = ctx.train_data
    assert set(data) == {"obs", "action", "value", "advantage", "return", "valid"}
    assert data["obs"].tolist()[2:4] == [[0, 0, 1], [1, 0, 1]]
    assert {len(value) for value in data.values()} == {8}
    assert np.array_equal(data["value"], 10 * data["obs"][:, 2])
    assert data["advantage"].dtype == data["return"].dtype == np.float32


def test_a_policy_without_a_state_value_is_refused(counting_config):
    cfg = counting_config("ppo")
    assert gae_estimator(cfg, AgePolicy().collect_mode).requirements() == []
    (problem,) = gae_estimator(cfg, AgePolicy(value=False).collect_mode).requirements()
    assert problem == "the policy records no state value: use an actor-critic policy such as PPO"
