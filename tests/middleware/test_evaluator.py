"""Evaluation: when, with which quotas, and what is written."""

import dataclasses

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv, CountingPolicy

from minding.engine import OnlineRLContext, Task
from minding.engine.types import EpisodeEnd
from minding.middleware import interaction_evaluator
from minding.middleware.evaluator import play_episodes


@pytest.fixture
def evaluator(counting_config):
    def make(env, n_episode=4, freq=100, **options):
        cfg = counting_config(**{"policy.eval.freq": freq, "policy.eval.n_episode": n_episode})
        policy = AgePolicy()
        return interaction_evaluator(cfg, policy.eval_mode, env, **options), policy

    return make


@pytest.mark.parametrize("reset_rows", [False, True])
def test_every_environment_plays_its_quota(evaluator, reset_rows):
    middleware, policy = evaluator(CountingEnv(lengths=(3, 1), reset_rows=reset_rows))
    ctx = OnlineRLContext(env_step=100, train_iter=5)
    middleware(ctx)
    short, long = EpisodeEnd(1, 1.0, 1), EpisodeEnd(0, 6.0, 3)
    # With a step spent on each reset, the second short episode ends together with the first long one.
    assert ctx.eval_output == ([short, long, short, long] if reset_rows else [short, short, long, long])
    assert ctx.eval_value == ctx.last_eval_value == 3.5
    assert (ctx.last_eval_iter, ctx.last_eval_clock, policy.resets) == (5, 100, 1)


@pytest.mark.parametrize(("n_episode", "quotas"), [(1, [1, 0]), (2, [1, 1]), (5, [3, 2])])
def test_quotas_that_do_not_divide_differ_by_one(n_episode, quotas):
    episodes = play_episodes(AgePolicy().eval_mode, CountingEnv(lengths=(2, 3)), n_episode, max_steps=100)
    assert [sum(end.env_id == n for end in episodes) for n in range(2)] == quotas


@pytest.mark.parametrize("reset_rows", [False, True])
def test_an_environment_is_forgotten_at_the_end_of_its_episode(reset_rows):
    class Checking(CountingPolicy):
        def _act(self, obs):
            action = super()._act(obs)
            # While a row only resets, the final observation of the old episode is there.
            over = obs[:, 2] == (2, 3)
            assert np.array_equal(self.before[~over, 0], obs[~over, 2])
            assert reset_rows or not over.any()
            return action

    env = CountingEnv(lengths=(2, 3), reset_rows=reset_rows)
    for _ in range(2):
        assert len(play_episodes(Checking().eval_mode, env, 6, max_steps=100)) == 6


def test_a_policy_is_told_rewards_before_it_forgets():
    told = []

    class Told:
        def forward(self, obs):
            return AgePolicy().eval_mode.forward(obs)

        def reset(self, env_ids=None):
            told.append(None if env_ids is None else env_ids.tolist())

        def take_reward(self, reward):
            told.append(reward.tolist())

    play_episodes(Told(), CountingEnv(lengths=(2, 2)), 2, max_steps=100)
    assert told == [None, [1.0, 1.0], [2.0, 2.0], [0, 1]]


def test_it_is_due_once_every_freq_environment_steps(evaluator):
    middleware, _ = evaluator(CountingEnv())
    ctx, evaluated = OnlineRLContext(), []
    for step in range(0, 400, 40):
        ctx = ctx.renew()
        ctx.env_step, ctx.train_iter = step, step
        middleware(ctx)
        if ctx.eval_value is not None:
            evaluated.append(step)
    # The ends of rollouts of 40 steps after 100, 200 and 300.
    assert evaluated == [120, 200, 320]


def test_it_does_not_repeat_while_no_gradient_step_is_made(evaluator):
    middleware, policy = evaluator(CountingEnv())
    ctx = OnlineRLContext(env_step=100, train_iter=5)
    middleware(ctx)
    calls = policy.calls
    for step in (200, 300, 400):
        ctx = ctx.renew()
        ctx.env_step = step
        middleware(ctx)
        assert (ctx.eval_value, ctx.last_eval_clock, policy.calls) == (None, 100, calls)
    ctx.train_iter = 6
    middleware(ctx)
    assert (ctx.eval_value, ctx.last_eval_clock) == (4.5, 400)


def test_its_environments_are_closed_and_part_of_the_state(evaluator):
    env = CountingEnv()
    middleware, _ = evaluator(env)
    middleware(OnlineRLContext(env_step=100, train_iter=1))
    other_env = CountingEnv()
    evaluator(other_env)[0].load_state_dict(middleware.state_dict())
    assert other_env.episode.tolist() == env.episode.tolist()
    middleware.close()
    assert env.closed


class Signalled(CountingEnv):
    """A signal comes in the second step after `begin`."""

    def __init__(self, task):
        super().__init__()
        self.task, self.left = task, -1

    def begin(self):
        self.left = 2

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            self.task.interrupt("SIGTERM")
        return super().step(action)


def test_a_signal_aborts_an_evaluation_without_a_trace(evaluator):
    task = Task().start()
    env = Signalled(task)
    middleware, policy = evaluator(env, task=task)
    middleware(OnlineRLContext(env_step=100, train_iter=1))
    state, calls = middleware.state_dict()["env"]["episode"].tolist(), policy.calls
    env.begin()
    ctx = OnlineRLContext(env_step=300, train_iter=5, last_eval_iter=1, last_eval_clock=100)
    middleware(ctx)
    assert (policy.calls - calls, ctx.eval_value, ctx.eval_output) == (2, None, None)
    assert (ctx.last_eval_iter, ctx.last_eval_clock) == (1, 100)
    assert middleware.state_dict()["env"]["episode"].tolist() == state
    # It will come an iteration later, with another policy: the run is not resumed exactly.
    assert middleware.resume_guarantee == "mid-iteration"


def test_a_task_that_ends_lets_the_evaluation_end_first(evaluator):
    task, values = Task().start(ctx=OnlineRLContext(env_step=100, train_iter=1)), []
    middleware, _ = evaluator(CountingEnv(), task=task)
    task.use(lambda ctx: setattr(task, "finish", True)).use(middleware).use(lambda ctx: values.append(ctx.eval_value))
    task.run()
    assert (values, middleware.resume_guarantee) == ([4.5], "exact")


def test_endless_episodes_are_cut_off_with_their_returns(caplog):
    env = CountingEnv(lengths=(3, 10**9))
    episodes = play_episodes(AgePolicy().eval_mode, env, 4, max_steps=5)
    assert [(end.env_id, end.episode_length) for end in episodes] == [(0, 3), (1, 5), (0, 3), (1, 5)]
    assert "2 of 4 evaluation episodes were cut off after 5 steps (policy.eval.max_episode_steps)" in caplog.text


def test_an_evaluation_without_an_end_of_an_episode_says_so(caplog, monkeypatch):
    monkeypatch.setattr("minding.middleware.evaluator._SILENT_SECONDS", 0.0)
    play_episodes(AgePolicy().eval_mode, CountingEnv(lengths=(10**9, 10**9)), 4, max_steps=5)
    assert caplog.text.count("no episode of 4 has ended in 1 steps; each is cut off after 5") == 1
    caplog.clear()
    play_episodes(AgePolicy().eval_mode, CountingEnv(lengths=(1, 1)), 4, max_steps=5)
    assert caplog.text == ""


class Broken(CountingEnv):
    """Each episode is lost to a fault in its third step, as with ``env.on_error=restart``."""

    steps = 0

    def play(self, action):
        step = super().play(action)
        Broken.steps += 1
        lost = Broken.steps % 3 == 0
        never = np.zeros_like(step.terminated)
        return dataclasses.replace(
            step, terminated=never, truncated=never, episodes=[], valid=np.full(len(never), False) if lost else None
        )
