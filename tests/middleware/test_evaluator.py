"""Evaluation: when, with which quotas, and what is written."""

import pytest
from fakes import AgePolicy, CountingEnv

from minding.engine.context import OnlineRLContext
from minding.engine.types import EpisodeEnd
from minding.middleware import interaction_evaluator
from minding.middleware.evaluator import play_episodes


@pytest.fixture
def evaluator(counting_config):
    def make(env, n_episode=4, freq=100):
        cfg = counting_config(**{"policy.eval.freq": freq, "policy.eval.n_episode": n_episode})
        policy = AgePolicy()
        return interaction_evaluator(cfg, policy.eval_mode, env), policy

    return make


@pytest.mark.parametrize("reset_rows", [False, True])
def test_every_environment_plays_its_quota_although_short_episodes_end_first(evaluator, reset_rows):
    middleware, policy = evaluator(CountingEnv(lengths=(3, 1), reset_rows=reset_rows))
    ctx = OnlineRLContext(env_step=100, train_iter=5)
    middleware(ctx)
    short, long = EpisodeEnd(1, 1.0, 1), EpisodeEnd(0, 6.0, 3)
    # With a step spent on each reset, the second short episode ends together with the first long one.
    assert ctx.eval_output == ([short, long, short, long] if reset_rows else [short, short, long, long])
    assert ctx.eval_value == ctx.last_eval_value == 3.5
    assert (ctx.last_eval_iter, ctx.last_eval_env_step, policy.resets) == (5, 100, 1)


@pytest.mark.parametrize(("n_episode", "quotas"), [(1, [1, 0]), (2, [1, 1]), (5, [3, 2])])
def test_quotas_that_do_not_divide_differ_by_one(n_episode, quotas):
    episodes = play_episodes(AgePolicy().eval_mode, CountingEnv(lengths=(2, 3)), n_episode)
    assert [sum(end.env_id == n for end in episodes) for n in range(2)] == quotas


def test_every_evaluation_begins_with_fresh_episodes(evaluator):
    env = CountingEnv(lengths=(3, 1))
    middleware, _ = evaluator(env, n_episode=2)
    for turn in (1, 2):
        ctx = OnlineRLContext(env_step=1000 * turn, train_iter=turn)
        middleware(ctx)
        assert (env.resets, ctx.eval_value) == (turn, 3.5)


def test_it_is_due_once_every_freq_environment_steps(evaluator):
    middleware, _ = evaluator(CountingEnv())
    ctx, evaluated = OnlineRLContext(), []
    for step in range(0, 400, 40):
        ctx = ctx.renew()
        ctx.env_step, ctx.train_iter = step, step
        middleware(ctx)
        if ctx.eval_value is not None:
            evaluated.append(step)
    assert evaluated == [120, 240, 360]


def test_it_does_not_repeat_while_no_gradient_step_is_made(evaluator):
    middleware, policy = evaluator(CountingEnv())
    ctx = OnlineRLContext(env_step=100, train_iter=5)
    middleware(ctx)
    calls = policy.calls
    for step in (200, 300, 400):
        ctx = ctx.renew()
        ctx.env_step = step
        middleware(ctx)
        assert (ctx.eval_value, ctx.last_eval_env_step, policy.calls) == (None, 100, calls)
    ctx.train_iter = 6
    middleware(ctx)
    assert (ctx.eval_value, ctx.last_eval_env_step) == (4.5, 400)


def test_before_the_first_interval_there_is_no_evaluation(evaluator):
    middleware, policy = evaluator(CountingEnv())
    middleware(OnlineRLContext(env_step=99, train_iter=5))
    assert policy.calls == 0


def test_its_environments_are_closed_at_the_end_and_part_of_the_state(evaluator):
    env = CountingEnv()
    middleware, _ = evaluator(env)
    middleware(OnlineRLContext(env_step=100, train_iter=1))
    other_env = CountingEnv()
    evaluator(other_env)[0].load_state_dict(middleware.state_dict())
    assert other_env.episode.tolist() == env.episode.tolist()
    middleware.close()
    assert env.closed
