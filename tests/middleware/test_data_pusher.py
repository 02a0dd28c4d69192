"""From rollout to transitions to buffer."""

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv, collected

from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.batch import Field
from minding.middleware import StepCollector, data_pusher
from minding.middleware.data_pusher import transitions


def test_transitions_are_ordered_by_time_then_environment(counting_config):
    flat = transitions(collected(counting_config(), CountingEnv(lengths=(3, 2))).trajectories)
    assert flat["obs"].tolist()[:4] == [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]]
    assert flat["next_obs"][:, 2].tolist() == [1, 1, 2, 2, 3, 1, 1, 2]
    assert flat["next_obs"][:, 1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert flat["reward"].tolist() == [1, 1, 2, 2, 3, 1, 1, 2]
    # A time limit is no end.
    assert flat["terminated"].tolist() == [False] * 4 + [True] + [False] * 3


def test_no_transition_joins_two_episodes(counting_config):
    for reset_rows in (False, True):
        cfg = counting_config(**{"policy.collect.n_sample": 200})
        flat = transitions(collected(cfg, CountingEnv(lengths=(7, 3), reset_rows=reset_rows)).trajectories)
        assert (flat["next_obs"][:, :2] == flat["obs"][:, :2]).all()
        assert (flat["next_obs"][:, 2] == flat["obs"][:, 2] + 1).all()
        assert np.array_equal(flat["reward"], flat["next_obs"][:, 2])


@pytest.mark.parametrize(("save_buffer", "guarantee", "rows"), [(True, "exact", 8), (False, "without-buffer", 0)])
def test_the_buffer_is_saved_with_it_unless_it_is_left_out(counting_config, save_buffer, guarantee, rows):
    cfg = counting_config(**{"policy.other.save_buffer": save_buffer})
    pusher, fresh = data_pusher(cfg, ReplayBuffer(50, COUNTING_FIELDS)), ReplayBuffer(50, COUNTING_FIELDS)
    pusher(collected(cfg, CountingEnv(lengths=(3, 2))))
    resumed = data_pusher(cfg, fresh)
    resumed.load_state_dict(pusher.state_dict())
    assert (pusher.resume_guarantee, len(fresh)) == (guarantee, rows)


@pytest.mark.parametrize("save_buffer", [True, False])
def test_beta_continues_from_the_minibatches_drawn(counting_config, save_buffer):
    cfg = counting_config(**{"policy.other.save_buffer": save_buffer})
    buffer, fresh = (ReplayBuffer(50, COUNTING_FIELDS, priority=Priority(beta=0.4, beta_steps=10)) for _ in range(2))
    pusher, resumed = data_pusher(cfg, buffer), data_pusher(cfg, fresh)
    pusher(collected(cfg, CountingEnv(lengths=(3, 2))))
    buffer.sample(5, 4)
    resumed.load_state_dict(pusher.state_dict())
    assert buffer.beta == fresh.beta == pytest.approx(0.7)


# Buffers of sequences


@pytest.mark.parametrize("reset_rows", [False, True])
def test_a_buffer_of_sequences_gets_whole_episodes(counting_config, reset_rows):
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
