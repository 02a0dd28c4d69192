"""The chain `hindsight`: what it stores, and what it cannot run with."""

import pytest
from easydict import EasyDict

from minding import training
from minding.configs import compile_run
from minding.configs.chains import check_chain, hindsight
from minding.engine import OnlineRLContext, Task
from minding.engine.errors import ConfigError


def settings(env_id, algorithm="dqn", *overrides):
    user = EasyDict(chain="hindsight", env={"env_id": env_id}, policy={"type": algorithm})
    return compile_run(user, overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "override", "message"),
    [
        ("CartPole-v1", "dqn", "seed=0", "its observation has no entry 'achieved_goal'; use an environment with goals"),
        ("minding/BitFlip-v0", "ppo", "seed=0", r"policy\.type='ppo': .* reads policy\.other\.buffer_size, which"),
        ("minding/BitFlip-v0", "dqn", "policy.learn.nstep=3", r"nstep=3 sums rewards of one goal"),
    ],
)
def test_it_refuses_what_has_no_goals_or_no_replay_before_anything_is_built(env_id, algorithm, override, message):
    with pytest.raises(ConfigError, match=message):
        check_chain(settings(env_id, algorithm, override))


@pytest.mark.parametrize(("env_id", "algorithm"), [("minding/BitFlip-v0", "dqn"), ("minding/PointReach-v0", "td3")])
def test_every_transition_is_stored_as_it_was_and_with_four_other_goals(env_id, algorithm, monkeypatch):
    made = []
    make = hindsight.replay_buffer
    monkeypatch.setattr(hindsight, "replay_buffer", lambda *args: made.append(make(*args)) or made[-1])
    few = ("policy.model.hidden=[8]", "policy.collect.n_sample=64", "policy.learn.update_per_collect=2")
    cfg = settings(env_id, algorithm, *few, "policy.learn.warmup=400", "policy.learn.batch_size=32")
    task = Task()
    with task.start(ctx=OnlineRLContext()):
        training.build(task, cfg)
        task.run(max_step=1)
        assert (len(made[0]), task.ctx.train_iter) == (5 * 64, 0)
        task.run(max_step=2)
        assert (len(made[0]), task.ctx.train_iter) == (5 * 128, 2)
