"""Learning from a rollout in several iterations."""

import numpy as np
import pytest
from streams import Stream

from benchmarks.fingerprint import fingerprint
from minding import training
from minding.configs import compile_run
from minding.engine import OnlineRLContext, RunDir
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.middleware import rollout_queue

pytestmark = pytest.mark.eager

STEPS, ENVS = 4, 2


def iterations(queue, stream, numbers, lag=None):
    """The contexts of these iterations, each with its rollout of the stream."""
    made = []
    for k in numbers:
        ctx = OnlineRLContext()
        ctx.trajectories = stream.rollout(k * STEPS, (k + 1) * STEPS)
        ctx.policy_lag = lag
        queue(ctx)
        made.append(ctx)
    return made


def counted(ctx):
    """The rewards of each of the rollouts beside one another; None for one whose rows do not count."""
    rollout = ctx.trajectories
    valid = np.ones(rollout.shape, bool) if rollout.valid is None else rollout.valid
    return [
        rollout.reward[:, k : k + ENVS].tolist() if valid[:, k : k + ENVS].any() else None
        for k in range(0, rollout.shape[1], ENVS)
    ]


@pytest.fixture
def stream():
    return Stream(0, 6 * STEPS, envs=ENVS)


def test_each_rollout_is_sampled_as_often_as_stated(stream):
    found = [counted(ctx) for ctx in iterations(rollout_queue(3), stream, range(5))]
    own = [stream.rollout(k * STEPS, (k + 1) * STEPS).reward.tolist() for k in range(5)]
    assert found[0] == [own[0], None, None]
    assert found[1] == [own[1], own[0], None]
    assert found[2:] == [[own[k], own[k - 1], own[k - 2]] for k in (2, 3, 4)]


def test_the_age_of_rollouts_is_part_of_the_lag(stream):
    queue = rollout_queue(3)
    lags = [ctx.policy_lag for ctx in iterations(queue, stream, range(3))]
    assert lags[0] == {"min": 0, "mean": 0.0, "max": 0}
    assert lags[2] == {"min": 0, "mean": 1.0, "max": 2}
    # A rollout of a lane may be old when it arrives.
    (late,) = iterations(queue, stream, [3], {"min": 4, "mean": 4.0, "max": 4})
    assert late.policy_lag == {"min": 1, "mean": (4 + 1 + 2) / 3, "max": 4}


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_a_run_in_two_parts_is_the_run_in_one(name, tmp_path):
    def run(exp_name, parts):
        settings = ["policy.learn.max_times_sampled=2", "policy.collect.n_sample=32", "env.collector_env_num=2"]
        settings += ["env.env_id=CartPole-v1", "run.max_env_step=128", "policy.eval.freq=1000", "run.final_episodes=1"]
        settings += ["policy.learn.n_epoch=1", "policy.learn.n_minibatch=2"] if name == "ppo" else []
        run_dir = None
        for end in parts:
            own = [f"run.out_dir={tmp_path}", f"exp_name={exp_name}", f"run.max_step={end}"]
            cfg = compile_run(name, [*settings, *own])
            resume = None if run_dir is None else "latest"
            run_dir = run_dir or RunDir.create(cfg)
            training.train(cfg, run_dir, progress=False, resume=resume)
        state = load_checkpoint(newest_checkpoint(run_dir.checkpoints))[0]
        return {key: value for key, value in fingerprint(state).items() if not key.startswith("config/")}

    assert run("whole", [4]) == run("parts", [2, 4])
