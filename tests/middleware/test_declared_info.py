"""Masks and declared info on their way from the environments through collector, buffer, evaluator and log."""

import numpy as np
import pytest

from minding.engine.chain.context import OnlineRLContext
from minding.envs import make_env_manager
from minding.middleware import EpisodeCollector, StepCollector, gae_estimator
from minding.middleware.data_pusher import transitions

ENV = {"env_id": "minding/MaskedGrid-v0", "env_kwargs": {"side": 4}, "info_keys": ["action_mask", "success"]}


class FirstLegal:
    """Takes the first legal action, and values a state at the number of cells that were not visited."""

    record_fields, memory = ("value",), None

    def forward(self, obs, **collect_kwargs):
        action = np.asarray(obs.action_mask).argmax(axis=1)
        return {"action": action, "value": self.value(obs)} if "random" in collect_kwargs else action

    def value(self, obs, memory=None):
        return 16 - obs.observation[:, :16].sum(axis=1)

    def reset(self, env_ids=None): ...


@pytest.fixture
def env():
    manager = make_env_manager(ENV, 2, 0)
    yield manager
    manager.close()


@pytest.fixture
def cfg(counting_config):
    return counting_config("ppo", **{"policy.collect.n_sample": 80, "policy.eval.freq": 1, "policy.eval.n_episode": 8})


def test_a_rollout_holds_masks_and_info_with_its_steps(cfg, env):
    ctx = OnlineRLContext()
    StepCollector(cfg, FirstLegal(), env)(ctx)
    rollout = ctx.trajectories
    mask, successor = rollout.obs.action_mask, rollout.next_obs().action_mask
    assert mask.shape == (40, 2, 16)
    assert np.take_along_axis(mask, rollout.action[..., None], 2).all()
    assert np.array_equal(successor.any(axis=2), ~rollout.terminated)
    going = ~rollout.terminated[:-1]
    assert np.array_equal(successor[:-1][going], mask[1:][going])
    visited = rollout.next_obs().observation[..., :16].sum(axis=2)
    assert rollout.info["success"].dtype == bool
    assert np.array_equal(rollout.info["success"], visited == 16)
    assert [end.info["success"] for end in ctx.episode_stats] == [
        float(rollout.info["success"][t, n]) for t, n in rollout.ends
    ]
    # On to the rows that are learned from.
    flat = transitions(rollout)
    assert np.array_equal(flat["obs.action_mask"].reshape(mask.shape), mask)
    assert np.array_equal(flat["next_obs.action_mask"].reshape(mask.shape), successor)
    gae_estimator(cfg, FirstLegal())(ctx)
    for data in (flat, ctx.train_data):
        assert np.array_equal(data["info.success"].reshape(40, 2), rollout.info["success"])


def test_whole_episodes_hold_them_too(cfg, env):
    ctx = OnlineRLContext()
    EpisodeCollector(cfg, FirstLegal(), env, n_episode=4)(ctx)
    for episode in ctx.episodes:
        assert episode["info.success"].shape == episode["reward"].shape
        assert episode["obs"].action_mask.any(axis=1).all()
        assert not episode["final_obs"].action_mask.any()
