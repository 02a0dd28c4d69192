"""Learning from trajectories: the rows, their order, and where trajectories are cut."""

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv, ReadingLearner

from minding.engine import OnlineRLContext
from minding.engine.data.batch import Field
from minding.middleware import StepCollector, trajectory_trainer

FLAGS = dict.fromkeys(("terminated", "cut", "valid"), Field())
FIELDS = {"obs": Field((3,)), "next_obs": Field((3,)), "action": Field((), "int32"), "reward": Field(), **FLAGS}


@pytest.fixture
def train(counting_config):
    """Two rollouts of four steps in two environments, the second one learned from; returns its rows by field."""

    def run(env, n_epoch=1):
        cfg = counting_config("impala", **{"policy.learn.n_epoch": n_epoch, "run.max_env_step": 100})
        learner, ctx = ReadingLearner(FIELDS), OnlineRLContext(env_step=34, train_iter=7)
        collector, middleware = StepCollector(cfg, AgePolicy().collect_mode, env), trajectory_trainer(cfg, learner)
        collector(ctx)
        ctx.begin_iteration()
        collector(ctx)
        middleware(ctx)
        return ctx, learner

    return run


def test_rows_are_in_order_of_time_with_true_successors(train):
    # Episodes of 3 steps that end, and of 2 that are cut by a time limit.
    ctx, learner = train(CountingEnv())
    (rows,) = learner.steps
    assert rows["obs"].shape == (4, 2, 3)
    assert rows["obs"][:, :, 2].tolist() == [[1, 0], [2, 1], [0, 0], [1, 1]]
    assert rows["next_obs"][:, :, 2].tolist() == [[2, 1], [3, 2], [1, 1], [2, 2]]
    assert rows["reward"].tolist() == [[2, 1], [3, 2], [1, 1], [2, 2]]
    assert rows["terminated"].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]
    assert rows["cut"].tolist() == [[0, 0], [1, 1], [0, 0], [0, 1]]
    assert rows["valid"].tolist() == [[1, 1]] * 4
    assert (ctx.train_iter, ctx.train_output["grad_steps"], learner.progress) == (8, 1, [0.42])


def test_rows_of_resets_are_marked_and_cut(train):
    _, learner = train(CountingEnv(reset_rows=True))
    (rows,) = learner.steps
    # Environment 0 is reset at step 3 of the run, environment 1 at 2 and 5; the rollout is of steps 4 to 7.
    assert rows["valid"].tolist() == [[1, 1], [1, 0], [1, 1], [0, 1]]
    assert rows["cut"].tolist() == [[0, 1], [0, 1], [1, 0], [1, 1]]


def test_minibatches_take_environments_in_a_new_order_each_pass(counting_config):
    cfg = counting_config("coma", **{"policy.learn.n_epoch": 3, "policy.learn.n_minibatch": 2})
    cfg.env.collector_env_num = 4
    learner, ctx = ReadingLearner(FIELDS), OnlineRLContext()
    StepCollector(cfg, AgePolicy().collect_mode, CountingEnv((3, 2) * 2, ("terminated", "truncated") * 2))(ctx)
    ctx.trajectories.reward[:] = 10 * np.arange(len(ctx.trajectories.reward))[:, None] + np.arange(4)
    middleware = trajectory_trainer(cfg, learner)
    middleware(ctx)
    parts = [step["reward"] for step in learner.steps]
    assert len(parts) == 6
    assert all(part.shape[1] == 2 and (part == part[:1] + 10 * np.arange(len(part))[:, None]).all() for part in parts)
    orders = [[*parts[k][0], *parts[k + 1][0]] for k in (0, 2, 4)]
    assert [sorted(order) for order in orders] == [[0, 1, 2, 3]] * 3
    assert orders[0] != orders[1] or orders[1] != orders[2]
    # From the same state of the random generator, the same order.
    state = middleware.state_dict()
    middleware(ctx)
    again = trajectory_trainer(cfg, learner)
    again.load_state_dict(state)
    again(ctx)
    found = [step["reward"].tolist() for step in learner.steps]
    assert found[6:12] == found[12:] != found[:6]
