"""Iterations that several collectors share: the same on every transport, whoever dies, and from every checkpoint."""

import dataclasses

import numpy as np
import pytest
from lane_toys import ToyMode, plain

from minding.configs import compile_run, load_preset
from minding.engine import OnlineRLContext, Task, declare
from minding.engine.data.rollout_joins import join_shards
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.seeding import SeedStreams
from minding.engine.types import LaneContext
from minding.envs import make_collector_env
from minding.middleware import StepCollector, gae_estimator

SHARDS = {"shards": 4, "max_staleness": 0, "transport": "threads"}
AHEAD = {"shards": 2, "collectors": 4, "max_staleness": 1, "transport": "threads"}


@pytest.fixture(scope="module")
def cfg():
    settings = ("env.collector_env_num=8", "policy.collect.n_sample=64")
    return compile_run(load_preset("cartpole_ppo"), settings)


class Mode(ToyMode):
    """Pushes the cart by the sign of a product with two weights and noise; values a state at another one."""

    record_fields = ("value", "noise")
    memory = None

    def forward(self, obs, random=False):
        noise = self.rng.standard_normal(len(obs)).astype(np.float32)
        action = (obs @ self.arrays["w"] + noise > 0).astype(np.int64)
        return {"action": action, "value": self.value(obs), "noise": noise}

    def value(self, obs, memory=None):
        return (obs @ self.arrays["v"]).astype(np.float32)

    def reset(self, env_ids=None): ...


def new_mode():
    arrays = {"w": np.array([0.1, 0.5, -0.2, 0.3]), "v": np.zeros(4)}
    return Mode(arrays, SeedStreams(0).generator("act.0"), 0)


@declare(role="learn", reads=("trajectories", "train_data", "train_iter"), writes=("train_iter",))
def learner(mode):
    def learn(ctx):
        data = ctx.train_data
        mode.arrays["w"] += 0.01 * (data["obs"] * data["advantage"][:, None]).mean(0)
        mode.arrays["v"] += 0.01 * (data["obs"] * data["return"][:, None]).mean(0)
        ctx.train_iter += 1

    return learn


def told(ctx):
    """What an iteration came to, comparable."""
    rollout = {field.name: getattr(ctx.trajectories, field.name) for field in dataclasses.fields(ctx.trajectories)}
    names = ("env_step", "env_episode", "train_iter", "trajectory_end_idx", "train_data", "policy_lag")
    stats = [dataclasses.astuple(end) for end in ctx.episode_stats]
    return plain({**{name: getattr(ctx, name) for name in names}, "rollout": rollout, "stats": stats})


def chain(task, cfg, mode, rows, *extra):
    collector = StepCollector(cfg, mode, make_collector_env(cfg))
    task.use(collector).use(gae_estimator(cfg, mode))
    for middleware in extra:
        task.use(middleware)
    return task.use(learner(mode)).use(lambda ctx: rows.append(told(ctx)))


def run(cfg, iterations, lanes, *extra, state=None):
    """What each iteration came to, and the state at the end."""
    mode, task, rows = new_mode(), Task(), []
    with task.start(True, OnlineRLContext(), lanes=lanes):
        chain(task, cfg, mode, rows, *extra)
        if state is not None:
            task.load_state_dict(state[0])
            for name, array in state[1].items():
                mode.arrays[name][...] = array
            mode.load_state_dict(state[2])
        task.run(max_step=iterations)
        weights = {name: array.copy() for name, array in mode.arrays.items()}
        saved = (task.state_dict(), weights, mode.state_dict())
        restarts = task.lanes.restarts
    return rows, saved, restarts


def one_after_the_other(cfg, iterations, shards):
    """The same run without lanes: each shard's members take their turn, and their answers are joined."""
    mode, rows, context = new_mode(), [], OnlineRLContext()
    env = make_collector_env(cfg)
    pickled = PickledMembers([StepCollector(cfg, mode, env), gae_estimator(cfg, mode)], "collect")
    workers = [pickled.rebuild(LaneContext(k, mode.arrays, shards=shards))[0] for k in range(shards)]
    learn = learner(mode)
    for _ in range(iterations):
        answers = []
        for members in workers:
            ctx = OnlineRLContext(env_step=context.env_step, env_episode=context.env_episode)
            for member in members:
                member(ctx)
            answers.append(ctx)
        for name in ("trajectories", "trajectory_end_idx", "train_data", "episode_stats"):
            setattr(context, name, join_shards(name, [getattr(ctx, name) for ctx in answers], env.num_envs // shards))
        for name in ("env_step", "env_episode"):
            start = getattr(context, name)
            setattr(context, name, start + sum(getattr(ctx, name) - start for ctx in answers))
        context.policy_lag = {"min": 0, "mean": 0.0, "max": 0}
        learn(context)
        rows.append(told(context))
        context = context.renew()
    return rows


def test_shards_give_their_members_results_one_by_one(cfg):
    rows, state, _ = run(cfg, 6, SHARDS)
    assert rows == one_after_the_other(cfg, 6, 4)
    assert state[0]["division"] == {"lanes.collectors": 4, "lanes.shards": 4}
    # Episodes ended in environments of every shard.
    assert {env_id // 2 for row in rows for env_id, *_ in row["stats"]} == {0, 1, 2, 3}


def test_rows_of_collectors_take_turns_and_are_numbered(cfg):
    rows, state, _ = run(cfg, 6, AHEAD)
    assert [row["rollout"]["collector"] for row in rows] == [0, 1] * 3
    assert [row["policy_lag"]["max"] for row in rows] == [0] + [1] * 5
    # Four workers, of which the first continues the state of a synchronous run.
    assert sorted(state[0]["middleware"]["0:StepCollector"]["workers"]) == ["1", "2", "3"]


@pytest.mark.parametrize("lanes", [SHARDS, AHEAD], ids=["exact", "ahead"])
def test_a_resumed_run_continues_every_shard_where_it_was(lanes, cfg):
    whole, end, _ = run(cfg, 8, lanes)
    first, state, _ = run(cfg, 4, lanes)
    assert whole[:4] == first
    rest, last, _ = run(cfg, 8, lanes, state=state)
    if lanes is SHARDS:
        assert rest == whole[4:]
        assert plain(last) == plain(end)
        return
    # What was under way is collected again with newer weights, and from where its collectors were.
    assert [row["env_step"] for row in rest] == [row["env_step"] for row in whole[4:]]
    assert [row["rollout"]["collector"] for row in rest] == [0, 1, 0, 1]


def test_ends_and_events_of_a_shard_reach_the_main_process(cfg):
    heard = []
    mode, task = new_mode(), Task()

    def end(ctx):
        from minding.engine import task

        task.emit("seen", ctx.trajectories.shape[1])
        if ctx.env_step >= 64 + 16 and ctx.trajectories.obs[0, 0, 0] > 0:
            task.finish = True

    with task.start(True, OnlineRLContext(), lanes=SHARDS):
        task.use(StepCollector(cfg, mode, make_collector_env(cfg))).use(declared(end)).use(lambda ctx: None)
        task.on("seen", heard.append)
        task.run(max_step=50)
        assert task.stop_reason == "finish"
    assert set(heard) == {2}
    assert len(heard) % 4 == 0


def declared(fn):
    return declare(role="collect", reads=("trajectories", "env_step"), writes=())(lambda: fn)()
