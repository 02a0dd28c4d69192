"""n-step returns on rollouts."""

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv

from minding.engine.chain.context import OnlineRLContext
from minding.middleware import StepCollector, nstep_reward_enhancer


def enhanced(cfg, env):
    ctx = OnlineRLContext()
    StepCollector(cfg, AgePolicy().collect_mode, env)(ctx)
    before = ctx.trajectories
    nstep_reward_enhancer(cfg)(ctx)
    return before, ctx.trajectories


def test_returns_stay_within_their_episode_and_environment(counting_config):
    cfg = counting_config(**{"policy.learn.nstep": 3, "policy.learn.gamma": 0.5})
    before, after = enhanced(cfg, CountingEnv(lengths=(3, 9)))
    # Environment 0: 1, 2, 3 (end), 1; environment 1: 1, 2, 3, 4.
    assert after.reward.tolist() == [[2.75, 2.75], [3.5, 4.5], [3.0, 5.0], [1.0, 4.0]]
    assert after.bootstrap_row.tolist() == [[2, 2], [2, 3], [2, 3], [3, 3]]
    assert after.record["discount"].tolist() == [[0.125, 0.125], [0.25, 0.125], [0.5, 0.25], [0.5, 0.5]]
    assert before.reward.tolist() == [[1, 1], [2, 2], [3, 3], [1, 4]]
    assert "discount" not in before.record


def test_reset_rows_end_the_sum(counting_config):
    cfg = counting_config(**{"policy.learn.nstep": 4, "policy.learn.gamma": 1.0})
    _, after = enhanced(cfg, CountingEnv(lengths=(2, 9), reset_rows=True))
    # Environment 0: 1, 2 (end), reset, 1.
    assert after.reward[:, 0][after.valid[:, 0]].tolist() == [3.0, 2.0, 1.0]
    assert after.bootstrap_row[:, 0].tolist() == [1, 1, 2, 3]


@pytest.mark.parametrize(("nstep", "problems"), [(4, 0), (5, 1)])
def test_a_horizon_longer_than_the_rollout_is_refused(counting_config, nstep, problems):
    enhancer = nstep_reward_enhancer(counting_config(**{"policy.learn.nstep": nstep}))
    assert len(enhancer.requirements()) == problems
    assert all("has only 4 steps per environment" in text for text in enhancer.requirements())


def test_everything_else_of_the_rollout_stays(counting_config):
    before, after = enhanced(counting_config(**{"policy.learn.nstep": 2}), CountingEnv())
    for name in ("obs", "last_obs", "final_obs", "ends", "action", "terminated", "truncated", "valid"):
        assert getattr(after, name) is getattr(before, name)
    assert np.array_equal(after.record["value"], before.record["value"])
