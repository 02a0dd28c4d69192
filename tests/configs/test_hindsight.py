"""The chain `hindsight`: what it stores, and what it cannot run with."""

import numpy as np
import pytest

from minding import training
from minding.configs import compile_run
from minding.configs.chains import check_chain, hindsight
from minding.engine import Config, OnlineRLContext, Task
from minding.engine.errors import ConfigError


def settings(env_id, algorithm="dqn", *overrides):
    user = Config(chain="hindsight", env={"env_id": env_id}, policy={"type": algorithm})
    return compile_run(user, overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "override", "message"),
    [
        ("CartPole-v1", "dqn", "seed=0", "its observation has no entry 'achieved_goal'; use an environment with goals"),
        ("minding/BitFlip-v0", "ppo", "seed=0", r"policy\.type='ppo': .* reads policy\.other\.buffer_size, which"),
        ("minding/BitFlip-v0", "r2d2", "seed=0", r"policy\.type='r2d2': .* reads policy\.other\.hindsight\.k, which"),
        ("minding/BitFlip-v0", "dqn", "policy.learn.nstep=3", r"nstep=3 sums rewards of one goal"),
        ("minding/BitFlip-v0", "dqn", "env.normalize_reward=true", "env.reward_clip"),
    ],
)
def test_it_refuses_what_has_no_goals_or_no_replay_before_anything_is_built(env_id, algorithm, override, message):
    with pytest.raises(ConfigError, match=message):
        check_chain(settings(env_id, algorithm, override))


@pytest.mark.parametrize(
    ("env_id", "algorithm", "k"), [("minding/BitFlip-v0", "dqn", 4), ("minding/PointReach-v0", "td3", 2)]
)
def test_every_transition_is_stored_and_again_with_k_goals_when_its_episode_is_over(env_id, algorithm, k, monkeypatch):
    made = []
    make = hindsight.replay_buffer
    monkeypatch.setattr(hindsight, "replay_buffer", lambda *args, **kw: made.append(make(*args, **kw)) or made[-1])
    few = ("policy.model.hidden=[8]", "policy.collect.n_sample=16", f"policy.other.hindsight.k={k}")
    cfg = settings(env_id, algorithm, *few, "policy.learn.warmup=10000")
    running, stored = np.zeros(cfg.env.collector_env_num, int), []

    def watch(ctx):
        over = stored[-1][1] if stored else 0
        for ended in ctx.trajectories.terminated | ctx.trajectories.truncated:
            running[:] += 1
            over += running[ended].sum()
            running[ended] = 0
        stored.append((ctx.env_step, over, len(made[0])))

    task = Task()
    with task.start(ctx=OnlineRLContext()):
        training.build(task, cfg)
        task.use(watch)
        task.run(max_step=30)
    assert [rows for *_, rows in stored] == [collected + k * over for collected, over, _ in stored]
    assert 0 < stored[-1][1] < stored[-1][0] == 480
