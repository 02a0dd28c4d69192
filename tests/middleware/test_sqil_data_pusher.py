"""Rewards of imitation, from two collectors into the halves of minibatches."""

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv, collected

from minding.engine import OnlineRLContext, Task
from minding.engine.buffers import MixedBuffer, ReplayBuffer, Sequences
from minding.engine.types import LearnOutput
from minding.middleware import OffPolicyLearner, StepCollector, eps_greedy_masker, sqil_data_pusher
from minding.middleware.data_pusher import transitions


@pytest.fixture
def cfg(counting_config):
    return counting_config("dqn", **{"policy.learn.warmup": 4, "policy.learn.batch_size": 8})


@pytest.mark.parametrize(("expert", "reward"), [(True, 1.0), (False, 0.0)])
def test_only_the_rewards_of_what_is_pushed_are_replaced(cfg, expert, reward):
    ctx, buffer = collected(cfg, CountingEnv(lengths=(3, 2), reset_rows=True)), ReplayBuffer(20, COUNTING_FIELDS)
    before = ctx.trajectories.reward.copy()
    sqil_data_pusher(cfg, buffer, expert)(ctx)
    flat = transitions(ctx.trajectories)
    assert np.array_equal(ctx.trajectories.reward, before)
    assert before.any()
    rows = np.arange(len(flat["reward"]))
    assert len(buffer) == len(rows)
    for name in ("obs", "next_obs", "action", "terminated"):
        assert np.array_equal(buffer.ring.read(name, rows), flat[name])
    assert buffer.ring.read("reward", rows).tolist() == [reward] * len(rows)


def test_a_buffer_of_sequences_is_told_what_follows_what(cfg):
    buffer = ReplayBuffer(20, COUNTING_FIELDS, sequences=Sequences(3))
    sqil_data_pusher(cfg, buffer, True)(collected(cfg, CountingEnv(lengths=(3, 3))))
    assert len(buffer.ring.order.episodes()) == 2


class Halves:
    """A learner that looks at its minibatches: where each row is from, and its reward."""

    fields = COUNTING_FIELDS
    prioritized = False

    def __init__(self):
        self.seen = []

    def forward(self, batch, progress=0.0):
        rows = {name: batch.layout.read(batch.tables.host, name, batch.index) for name in ("obs", "reward")}
        self.seen.append((rows["obs"][..., 0] >= 2, rows["reward"]))
        return LearnOutput({}, len(batch.index), None)


def test_half_of_each_minibatch_is_the_experts(cfg):
    # As DI-engine writes it. The expert's environments are those from the second on.
    buffer, learner = MixedBuffer([(50, 0.5), (50, 0.5)], COUNTING_FIELDS), Halves()
    agent, expert = buffer.parts
    policy, expert_policy = AgePolicy(value=False), AgePolicy(value=False)
    with Task().start(ctx=OnlineRLContext()) as task:
        task.use(eps_greedy_masker())
        task.use(StepCollector(cfg, policy.collect_mode, CountingEnv(lengths=(3, 2))))
        task.use(sqil_data_pusher(cfg, agent, expert=False))
        task.use(StepCollector(cfg, expert_policy.collect_mode, ExpertEnv(lengths=(3, 2))))
        task.use(sqil_data_pusher(cfg, expert, expert=True))
        task.use(OffPolicyLearner(cfg, learner, buffer))
        task.run(max_step=3)
    assert len(learner.seen) == 3
    for is_expert, reward in learner.seen:
        assert is_expert.sum(axis=1).tolist() == [4] * len(is_expert)
        assert np.array_equal(reward, is_expert.astype(np.float32))


class ExpertEnv(CountingEnv):
    """Environments that call themselves 2 and 3."""

    def _observe(self):
        return super()._observe() + np.float32([2, 0, 0])
