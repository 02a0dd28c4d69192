"""With environments that fail, nothing is learned across a cut and nothing from garbage."""

import numpy as np
import pytest
from fakes import AgePolicy
from flaky import FAULTS, Flaky
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from minding.engine import EnvError, OnlineRLContext, Task
from minding.engine.buffers import BaseBuffer
from minding.envs import VectorEnvManager, make_env_manager
from minding.middleware import EpisodeCollector, StepCollector, data_pusher, eps_greedy_masker, gae_estimator

ENVS, STEPS = 3, 20


class Recorder(BaseBuffer):
    """A buffer's push, and a check of every transition pushed: within one episode, at most `nstep` steps ahead."""

    def __init__(self, nstep=1):
        self.nstep = nstep
        self.rows = 0

    def store(self, transitions):
        assert all(np.isfinite(value).all() for value in transitions.values())
        obs, next_obs = transitions["obs"], transitions["next_obs"]
        ahead = next_obs[:, 2] - obs[:, 2]
        assert (obs[:, :2] == next_obs[:, :2]).all()
        assert ((ahead >= 1) & (ahead <= self.nstep)).all()
        # Every reward is 1, without a discount.
        assert (transitions["reward"] == ahead).all()
        assert (transitions["terminated"] == (next_obs[:, 2] == 9)).all()
        self.rows += len(obs)


def flaky_envs(backend, kind, share=0.1):
    env = {"on_error": "restart", "env_kwargs": {"kind": kind, "share": share}}
    if backend == "vector":
        vector = SyncVectorEnv([lambda: Flaky(kind, share)] * ENVS, autoreset_mode=AutoresetMode.NEXT_STEP)
        return VectorEnvManager(vector, env)
    return make_env_manager({**env, "backend": backend, "workers": 2}, ENVS, 1, env_fn=Flaky)


def run(*chain, iterations=10):
    with Task().start(ctx=OnlineRLContext()) as task:
        for middleware in (eps_greedy_masker(), *chain):
            task.use(middleware)
        task.run(max_step=iterations)
        return task.ctx


CASES = [(backend, kind) for backend in ("sync", "vector") for kind in FAULTS if (backend, kind) != ("vector", "reset")]


@pytest.mark.slow
def test_a_killed_worker_cuts_its_trajectories(counting_config):
    cfg = counting_config(**{"policy.collect.n_sample": ENVS * STEPS})
    env, buffer = flaky_envs("subprocess", "die", share=0.03), Recorder()
    ctx = run(StepCollector(cfg, AgePolicy(value=False).collect_mode, env), data_pusher(cfg, buffer), iterations=2)
    assert env.fault_count >= 1
    assert buffer.rows == ctx.env_step < 2 * ENVS * STEPS


class ZeroValue(AgePolicy):
    def value(self, obs):
        return np.zeros(len(obs), np.float32)


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_returns_end_where_a_fault_cuts_the_episode(counting_config, backend, kind):
    cfg = counting_config(
        "ppo", **{"policy.collect.n_sample": ENVS * STEPS, "policy.learn.gamma": 1.0, "policy.learn.gae_lambda": 1.0}
    )
    policy, env, checked = ZeroValue(), flaky_envs(backend, kind), []

    def check(ctx):
        data = {name: array.reshape(STEPS, ENVS, *array.shape[1:]) for name, array in ctx.train_data.items()}
        for n in range(ENVS):
            left = 0
            # Without values a return is the number of transitions left in the episode: count them from the end.
            for t in reversed(range(STEPS)):
                if not data["valid"][t, n]:
                    left = 0
                    continue
                # An end that is no fault: the next row begins another episode.
                if t + 1 < STEPS and data["obs"][t + 1, n, 1] != data["obs"][t, n, 1]:
                    left = 0
                left += 1
                assert data["return"][t, n] == left
                checked.append(left)

    run(StepCollector(cfg, policy.collect_mode, env), gae_estimator(cfg, policy.collect_mode), check)
    assert env.fault_count > 5
    assert len(checked) > 200


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_whole_episodes_are_played_without_a_cut(counting_config, backend, kind):
    env, episodes = flaky_envs(backend, kind), []
    collector = EpisodeCollector(counting_config("ppo"), AgePolicy().collect_mode, env, n_episode=2 * ENVS)
    run(collector, lambda ctx: episodes.extend(ctx.episodes), iterations=3)
    assert env.fault_count >= 3
    assert len(episodes) == 6 * ENVS
    for episode in episodes:
        assert episode["obs"][:, 2].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        assert len({*episode["obs"][:, 1].tolist(), float(episode["final_obs"][1])}) == 1


@pytest.mark.parametrize("kind", FAULTS)
def test_without_restart_one_message_names_the_environment(counting_config, kind):
    cfg = counting_config(**{"policy.collect.n_sample": ENVS * STEPS})
    env = make_env_manager({"env_kwargs": {"kind": kind, "share": 0.2}}, ENVS, 0, env_fn=Flaky)
    buffer = Recorder()
    with pytest.raises(EnvError, match=r"environment \d \(Flaky\)(: failed in reset|, step \d+ of its episode): "):
        run(StepCollector(cfg, AgePolicy(value=False).collect_mode, env), data_pusher(cfg, buffer), iterations=100)
