"""From rollout to transitions to buffer."""

import dataclasses

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv
from treevalue import FastTreeValue

from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.batch import Field
from minding.middleware import StepCollector, data_pusher, nstep_reward_enhancer
from minding.middleware.data_pusher import transitions


def context(cfg, env):
    ctx = OnlineRLContext()
    StepCollector(cfg, AgePolicy(value=False).collect_mode, env)(ctx)
    return ctx


def test_transitions_are_ordered_by_time_then_environment_with_true_successors(counting_config):
    flat = transitions(context(counting_config(), CountingEnv(lengths=(3, 2))).trajectories)
    assert flat["obs"].tolist()[:4] == [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]]
    assert flat["next_obs"][:, 2].tolist() == [1, 1, 2, 2, 3, 1, 1, 2]
    assert flat["next_obs"][:, 1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert flat["reward"].tolist() == [1, 1, 2, 2, 3, 1, 1, 2]
    # A time limit is no end.
    assert flat["terminated"].tolist() == [False] * 4 + [True] + [False] * 3


def test_rows_of_resets_are_left_out(counting_config):
    flat = transitions(context(counting_config(), CountingEnv(lengths=(3, 2), reset_rows=True)).trajectories)
    assert flat["reward"].tolist() == [1, 1, 2, 2, 3, 1]
    assert flat["terminated"].tolist() == [False, False, False, False, True, False]
    assert (flat["obs"][:, 1] == flat["next_obs"][:, 1]).all()


def test_no_transition_joins_two_episodes(counting_config):
    for reset_rows in (False, True):
        cfg = counting_config(**{"policy.collect.n_sample": 200})
        flat = transitions(context(cfg, CountingEnv(lengths=(7, 3), reset_rows=reset_rows)).trajectories)
        assert (flat["next_obs"][:, :2] == flat["obs"][:, :2]).all()
        assert (flat["next_obs"][:, 2] == flat["obs"][:, 2] + 1).all()
        assert np.array_equal(flat["reward"], flat["next_obs"][:, 2])


def test_an_n_step_transition_takes_successor_end_and_discount_from_its_last_step(counting_config):
    cfg = counting_config(**{"policy.learn.nstep": 2, "policy.learn.gamma": 0.5})
    ctx = context(cfg, CountingEnv(lengths=(3, 2)))
    nstep_reward_enhancer(cfg)(ctx)
    flat = transitions(ctx.trajectories)
    # Environment 0: rewards 1, 2, 3 (true end), 1, which waits; environment 1: 1, 2 (time limit), 1, 2 (time limit).
    first, second = (flat["obs"][:, 0] == number for number in (0, 1))
    assert flat["reward"][first].tolist() == [2.0, 3.5, 3.0]
    assert flat["next_obs"][first][:, 2].tolist() == [2, 3, 3]
    assert flat["terminated"][first].tolist() == [False, True, True]
    assert flat["discount"][first].tolist() == [0.25, 0.25, 0.5]
    assert flat["reward"][second].tolist() == [2.0, 2.0, 2.0, 2.0]
    assert flat["next_obs"][second].tolist() == [[1, 0, 2], [1, 0, 2], [1, 1, 2], [1, 1, 2]]
    assert flat["terminated"][second].tolist() == [False] * 4


@pytest.mark.parametrize("reset_rows", [False, True])
def test_the_buffer_holds_what_was_pushed(counting_config, reset_rows):
    cfg = counting_config()
    ctx, buffer = context(cfg, CountingEnv(reset_rows=reset_rows)), ReplayBuffer(20, COUNTING_FIELDS)
    data_pusher(cfg, buffer)(ctx)
    flat = transitions(ctx.trajectories)
    assert len(buffer) == len(flat["reward"]) == (6 if reset_rows else 8)
    for name, value in flat.items():
        assert np.array_equal(buffer.ring.read(name, np.arange(len(buffer))), value)
    assert buffer.ring.read("discount", np.arange(2)).tolist() == pytest.approx([0.9, 0.9])


def test_a_rollout_of_resets_only_pushes_nothing(counting_config):
    cfg = counting_config()
    ctx, buffer = context(cfg, CountingEnv()), ReplayBuffer(20, COUNTING_FIELDS)
    ctx.trajectories.valid = np.zeros((4, 2), bool)
    data_pusher(cfg, buffer)(ctx)
    assert len(buffer) == 0


def test_nested_observations_become_one_column_a_leaf(counting_config):
    rollout = context(counting_config(), CountingEnv(lengths=(3, 2))).trajectories
    nested = dataclasses.replace(
        rollout,
        obs=FastTreeValue({"a": rollout.obs, "b": {"c": rollout.obs[..., 0]}}),
        last_obs=FastTreeValue({"a": rollout.last_obs, "b": {"c": rollout.last_obs[..., 0]}}),
        final_obs=FastTreeValue({"a": rollout.final_obs, "b": {"c": rollout.final_obs[..., 0]}}),
    )
    flat, plain = transitions(nested), transitions(rollout)
    assert np.array_equal(flat["next_obs.a"], plain["next_obs"])
    assert np.array_equal(flat["obs.b.c"], plain["obs"][:, 0])


@pytest.mark.parametrize(("save_buffer", "guarantee", "rows"), [(True, "exact", 8), (False, "without-buffer", 0)])
def test_the_buffer_is_saved_with_it_unless_it_is_left_out(counting_config, save_buffer, guarantee, rows):
    cfg = counting_config(**{"policy.other.save_buffer": save_buffer})
    pusher, fresh = data_pusher(cfg, ReplayBuffer(50, COUNTING_FIELDS)), ReplayBuffer(50, COUNTING_FIELDS)
    pusher(context(cfg, CountingEnv(lengths=(3, 2))))
    resumed = data_pusher(cfg, fresh)
    resumed.load_state_dict(pusher.state_dict())
    assert (pusher.resume_guarantee, len(fresh)) == (guarantee, rows)


@pytest.mark.parametrize("save_buffer", [True, False])
def test_beta_goes_on_from_the_minibatches_drawn_also_where_the_buffer_is_refilled(counting_config, save_buffer):
    cfg = counting_config(**{"policy.other.save_buffer": save_buffer})
    buffer, fresh = (ReplayBuffer(50, COUNTING_FIELDS, priority=Priority(beta=0.4, beta_steps=10)) for _ in range(2))
    pusher, resumed = data_pusher(cfg, buffer), data_pusher(cfg, fresh)
    pusher(context(cfg, CountingEnv(lengths=(3, 2))))
    buffer.sample(5, 4)
    resumed.load_state_dict(pusher.state_dict())
    assert buffer.beta == fresh.beta == pytest.approx(0.7)


# Buffers of sequences


@pytest.mark.parametrize("reset_rows", [False, True])
def test_a_buffer_of_sequences_gets_whole_episodes_over_the_borders_of_rollouts(counting_config, reset_rows):
    cfg = counting_config("dqn")
    env, lengths = CountingEnv(lengths=(3, 5), reset_rows=reset_rows), (3, 5)
    collector = StepCollector(cfg, AgePolicy(value=False).collect_mode, env)
    buffer = ReplayBuffer(40, {"obs": Field((3,)), "reward": Field()}, sequences=Sequences(5, whole=True))
    pusher = data_pusher(cfg, buffer)
    for _ in range(4):
        ctx = OnlineRLContext()
        collector(ctx)
        pusher(ctx)
    batch = buffer.sample(1, 100)
    drawn = set()
    for obs, filled in zip(batch.layout.read(batch.tables.host, "obs", batch.index[0].T), batch.filled[0].T):
        env_id, episode = obs[0, :2].astype(int)
        assert obs[filled].astype(int).tolist() == [[env_id, episode, age] for age in range(lengths[env_id])]
        drawn.add((env_id, episode))
    # 16 rows of time: with a step for each reset, episodes take one row more.
    assert len(buffer.ring.order.episodes()) == len(drawn) == ((4 + 2) if reset_rows else (5 + 3))
