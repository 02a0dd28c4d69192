"""Collectors: what they record of deterministic environments."""

import functools
import signal

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv, CountingPolicy, collected

from minding.engine import ChainError, OnlineRLContext, Task
from minding.engine.process import signals
from minding.engine.types import EpisodeEnd
from minding.middleware import EpisodeCollector, StepCollector, eps_greedy_handler, eps_greedy_masker


@pytest.fixture
def collect(counting_config):
    """Runs a StepCollector of four steps in two environments; returns (collector, policy, context)."""

    def run(env, iterations=1, random_steps=None, **overrides):
        policy = AgePolicy()
        cfg = counting_config("ppo", **overrides)
        if random_steps is not None:
            cfg.policy.collect.random_steps = random_steps
        collector = StepCollector(cfg, policy.collect_mode, env)
        ctx = OnlineRLContext(collect_kwargs={"eps": 0.5})
        for _ in range(iterations):
            collector(ctx)
        return collector, policy, ctx

    return run


def test_every_observation_action_and_reward_stands_in_its_row(collect):
    env = CountingEnv(lengths=(9, 9))
    _, policy, ctx = collect(env)
    rollout = ctx.trajectories
    assert rollout.obs[:, 1].tolist() == [[1, 0, 0], [1, 0, 1], [1, 0, 2], [1, 0, 3]]
    assert rollout.action.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert rollout.reward.tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert rollout.record["value"][:, 0].tolist() == [0.0, 10.0, 20.0, 30.0]
    assert rollout.last_obs.tolist() == [[0, 0, 4], [1, 0, 4]]
    assert np.array_equal(np.stack(env.actions), rollout.action)
    assert policy.kwargs == [{"random": False, "eps": 0.5}] * 4
    assert (rollout.valid, rollout.final_obs, ctx.trajectory_end_idx.tolist()) == (None, None, [6, 7])
    assert (ctx.env_step, ctx.env_episode, ctx.episode_stats) == (8, 0, [])


def test_ends_keep_their_kind_and_their_true_final_observation(collect):
    _, _, ctx = collect(CountingEnv(lengths=(3, 2)))
    rollout = ctx.trajectories
    assert rollout.terminated.tolist() == [[False, False], [False, False], [True, False], [False, False]]
    assert rollout.truncated.tolist() == [[False, False], [False, True], [False, False], [False, True]]
    assert rollout.ends.tolist() == [[1, 1], [2, 0], [3, 1]]
    assert rollout.final_obs.tolist() == [[1, 0, 2], [0, 0, 3], [1, 1, 2]]
    assert rollout.obs[3].tolist() == [[0, 1, 0], [1, 1, 1]]
    assert rollout.next_obs()[:, 1].tolist() == [[1, 0, 1], [1, 0, 2], [1, 1, 1], [1, 1, 2]]
    assert ctx.trajectory_end_idx.tolist() == [3, 4, 6, 7]
    assert ctx.episode_stats == [EpisodeEnd(1, 3.0, 2), EpisodeEnd(0, 6.0, 3), EpisodeEnd(1, 3.0, 2)]
    assert (ctx.env_step, ctx.env_episode) == (8, 3)


def test_reset_rows_are_marked_and_not_counted(collect):
    _, _, ctx = collect(CountingEnv(lengths=(3, 2), reset_rows=True))
    rollout = ctx.trajectories
    assert rollout.valid.tolist() == [[True, True], [True, True], [True, False], [False, True]]
    assert rollout.terminated[:, 0].tolist() == [False, False, True, False]
    assert rollout.truncated[:, 1].tolist() == [False, True, False, False]
    assert rollout.ends.tolist() == [[1, 1], [2, 0]]
    assert rollout.final_obs.tolist() == [[1, 0, 2], [0, 0, 3]]
    assert (ctx.env_step, ctx.env_episode) == (6, 2)


def test_an_earlier_rollout_is_not_overwritten(counting_config):
    collector = StepCollector(counting_config("ppo"), AgePolicy().collect_mode, CountingEnv(lengths=(9, 9)))
    first, second = OnlineRLContext(), OnlineRLContext()
    collector(first)
    kept = first.trajectories.obs.copy(), first.trajectories.reward.copy()
    collector(second)
    assert np.array_equal(first.trajectories.obs, kept[0])
    assert np.array_equal(first.trajectories.reward, kept[1])


def test_the_first_steps_are_random_as_configured(collect):
    _, policy, _ = collect(CountingEnv(), iterations=3, random_steps=9)
    assert [kwargs["random"] for kwargs in policy.kwargs] == [True] * 8 + [False] * 4


def test_a_rollout_that_does_not_divide_is_refused_first(counting_config):
    env = CountingEnv()
    collector = StepCollector(counting_config(**{"policy.collect.n_sample": 7}), AgePolicy().collect_mode, env)
    with Task().start(ctx=OnlineRLContext()) as task:
        task.use(collector)
        with pytest.raises(ChainError, match=r"n_sample=7 does not divide by num_envs=2: use .*=8"):
            task.run(max_step=1)
    assert env.actions == []


@pytest.mark.parametrize("collector_class", [StepCollector, functools.partial(EpisodeCollector, n_episode=2)])
def test_exploration_that_nothing_sets_is_refused(collector_class, counting_config):
    def problems(algorithm, *before, **settings):
        cfg = counting_config(algorithm, **settings)
        collector = collector_class(cfg, AgePolicy().collect_mode, CountingEnv())
        return list(collector.clashes([*(make(cfg) for make in before), collector]))

    (problem,) = problems("dqn")
    assert "eps_greedy_handler" in problem
    for setter in (eps_greedy_handler, lambda cfg: eps_greedy_masker(), lambda cfg: print):
        assert problems("dqn", setter) == []
    assert problems("ppo") == problems("rainbow") == []


def test_the_environments_are_part_of_the_state(collect):
    env = CountingEnv(lengths=(9, 9))
    collector, _, _ = collect(env)
    restored = CountingEnv(lengths=(9, 9))
    other, _, _ = collect(restored, iterations=0)
    other.load_state_dict(collector.state_dict())
    assert restored.obs.tolist() == [[0, 0, 4], [1, 0, 4]]
    collector.close()
    assert env.closed


# Memory: the policy counts the observations of an episode, which is their age.


@pytest.mark.parametrize("reset_rows", [False, True])
def test_a_memory_begins_anew_after_an_end(counting_config, reset_rows):
    env, policy = CountingEnv(lengths=(3, 2), reset_rows=reset_rows), CountingPolicy()
    collector = StepCollector(counting_config("ppo"), policy.collect_mode, env)
    for _ in range(4):
        ctx = OnlineRLContext()
        collector(ctx)
        rollout = ctx.trajectories
        # While a row only resets, the final observation of the old episode is there.
        valid = np.ones((4, 2), bool) if rollout.valid is None else rollout.valid
        assert np.array_equal(rollout.record["memory"][..., 0][valid], rollout.obs[..., 2][valid])
        # What a learner unrolls from the first row and `begun` is what acted.
        remembered = rollout.record["memory"][0, :, 0]
        for t, begun in enumerate(rollout.begun()):
            remembered = np.where(begun, 0, remembered)
            assert np.array_equal(remembered, rollout.record["memory"][t, :, 0])
            remembered = remembered + 1


def test_bootstrap_values_use_the_memory_at_the_time(counting_config):
    rollout = collected(counting_config("ppo"), CountingEnv(lengths=(3, 2)), CountingPolicy().collect_mode).trajectories
    # Final observations of ages 2, 3 and 2 with as much remembered; the first one of a new episode in environment 1.
    assert rollout.final_value.tolist() == [220.0, 330.0, 220.0]
    assert rollout.last_value.tolist() == [110.0, 0.0]
    assert rollout.next_value().T.tolist() == [[110.0, 220.0, 330.0, 110.0], [110.0, 220.0, 110.0, 220.0]]


def test_restarted_environments_are_forgotten_on_resume(counting_config):
    env, policy = CountingEnv(lengths=(9, 9)), CountingPolicy()
    collector = StepCollector(counting_config("ppo"), policy.collect_mode, env)
    collector(OnlineRLContext())
    env.load_state_dict({"episode": np.array([0, 1]), "age": np.array([4, 0])})
    ctx = OnlineRLContext()
    collector(ctx)
    assert ctx.trajectories.record["memory"][..., 0].T.tolist() == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_an_episode_may_begin_with_a_rollout_or_go_on(counting_config):
    collector = StepCollector(counting_config("ppo"), AgePolicy().collect_mode, CountingEnv(lengths=(4, 3)))
    begun = []
    for _ in range(2):
        ctx = OnlineRLContext()
        collector(ctx)
        begun.append(ctx.trajectories.begun().T.tolist())
    # The first environment's second episode begins with the second rollout, the other one's went on from the first.
    assert begun[0] == [[True, False, False, False], [True, False, False, True]]
    assert begun[1] == [[True, False, False, False], [False, False, True, False]]


def test_a_policy_without_values_records_none(counting_config):
    ctx = collected(counting_config("ppo"), CountingEnv())
    assert (ctx.trajectories.last_value, ctx.trajectories.final_value) == (None, None)
    with pytest.raises(ChainError, match=r"ctx.trajectories has no values: the collector's policy does not record any"):
        ctx.trajectories.next_value()


# A signal while it collects


class Signalled(CountingEnv):
    """Sends a signal in its third step."""

    def step(self, action):
        if len(self.actions) == 2:
            signal.raise_signal(signal.SIGTERM)
        return super().step(action)


@pytest.mark.parametrize(("patience", "steps", "guarantee"), [(0.0, 3, "mid-iteration"), (60.0, 4, "exact")])
@pytest.mark.parametrize("whole", [False, True])
def test_a_signal_lets_only_a_short_rollout_end(counting_config, monkeypatch, whole, patience, steps, guarantee):
    monkeypatch.setattr(signals, "PATIENCE", patience)
    env, cfg, collect = Signalled((4, 4)), counting_config("ppo"), AgePolicy().collect_mode
    collector = EpisodeCollector(cfg, collect, env, n_episode=2) if whole else StepCollector(cfg, collect, env)
    with pytest.raises(SystemExit), Task().start() as task:
        task.use(collector).run()
    assert (len(env.actions), task.stop_reason, task.resume_guarantee) == (steps, "SIGTERM", guarantee)
    # The next run is not in a hurry.
    with Task().start() as task:
        task.use(StepCollector(cfg, collect, CountingEnv())).run(max_step=1)
    assert task.stop_reason == "max_step"


# Whole episodes


@pytest.mark.parametrize(("reset_rows", "order"), [(False, [1, 1, 0, 0]), (True, [1, 0, 1, 0])])
def test_each_environment_plays_its_share_of_whole_episodes(counting_config, reset_rows, order):
    env, policy = CountingEnv(lengths=(3, 1), reset_rows=reset_rows), AgePolicy()
    collector = EpisodeCollector(counting_config("ppo"), policy.collect_mode, env, n_episode=4)
    ctx = OnlineRLContext()
    collector(ctx)
    assert [end.env_id for end in ctx.episode_stats] == order
    assert [len(episode["reward"]) for episode in ctx.episodes] == [3 - 2 * env_id for env_id in order]
    longest = ctx.episodes[order.index(0)]
    assert longest["obs"].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
    assert longest["final_obs"].tolist() == [0, 0, 3]
    assert longest["action"].tolist() == [0, 1, 2]
    assert longest["reward"].tolist() == [1, 2, 3]
    assert longest["value"].tolist() == [0, 10, 20]
    assert longest["terminated"].tolist() == [False, False, True]
    assert ctx.episodes[0]["truncated"].tolist() == [True]
    assert (ctx.env_step, ctx.env_episode, policy.resets) == (8, 4, 1)
    collector(ctx)
    assert (ctx.env_step, ctx.env_episode, env.resets) == (16, 8, 2)


def test_the_share_of_whole_episodes_stays_if_divided(counting_config):
    collector = EpisodeCollector(counting_config("ppo"), AgePolicy().collect_mode, CountingEnv((3, 1, 2)), n_episode=6)
    # As a shard of an asynchronous run gets it.
    collector._env = CountingEnv((4,), ("terminated",))
    ctx = OnlineRLContext()
    collector(ctx)
    assert [len(episode["reward"]) for episode in ctx.episodes] == [4, 4]
