"""n-step returns on rollouts: the same rows wherever the stream is cut into rollouts."""

import dataclasses

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import GAMMA, Stream
from treevalue import FastTreeValue

from minding.engine import OnlineRLContext, Task
from minding.engine.checkpoint import load_checkpoint, save_checkpoint
from minding.middleware import StepCollector, nstep_reward_enhancer
from minding.middleware.data_pusher import sequence_columns, transitions


@pytest.fixture(scope="module")
def config_of():
    from fakes import tiny_config

    return lambda n, gamma=GAMMA: tiny_config("dqn", **{"policy.learn.nstep": n, "policy.learn.gamma": gamma})


def handed_on(enhancer, rollout):
    ctx = OnlineRLContext()
    ctx.trajectories = rollout
    enhancer(ctx)
    assert np.array_equal(ctx.trajectory_end_idx, ctx.trajectories.end_idx())
    return {**transitions(ctx.trajectories), **sequence_columns(ctx.trajectories)}


def check_rows(parts, expected):
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = [(int(env), int(t)) for env, t in rows["obs"]]
    assert sorted(keys) == sorted(expected)
    for k, key in enumerate(keys):
        total, discount, successor, terminated = expected[key]
        np.testing.assert_allclose(rows["reward"][k], total, rtol=1e-5, atol=1e-6)
        assert rows["discount"][k] == pytest.approx(discount, rel=1e-6)
        assert tuple(rows["next_obs"][k]) == successor
        assert rows["terminated"][k] == terminated
        assert rows["action"][k] == key[1] * 100 + key[0]
    return keys


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    n=st.integers(1, 5),
    agents=st.sampled_from([0, 2]),
    resets=st.booleans(),
    saved=st.booleans(),
)
def test_any_partition_gives_the_rows_of_the_whole(config_of, seed, lengths, n, agents, resets, saved):
    stream = Stream(seed, sum(lengths), agents=agents, resets=resets)
    enhancer, parts, start = nstep_reward_enhancer(config_of(n)), [], 0
    for length in lengths:
        parts.append(handed_on(enhancer, stream.rollout(start, start + length)))
        start += length
        if saved:
            state, enhancer = enhancer.state_dict(), nstep_reward_enhancer(config_of(n))
            enhancer.load_state_dict(state)
    keys = check_rows(parts, stream.expected(n))
    for env in range(stream.envs):
        times = [t for number, t in keys if number == env]
        assert times == sorted(times)
        # A row begins an episode where none, or the end of one, is before it.
        for k, (t, begun) in enumerate(
            zip(times, (b for part in parts for b in part["begun"][part["sequence"] == env]), strict=True)
        ):
            before = t and stream.valid[t - 1, env] and not (stream.terminated | stream.truncated)[t - 1, env]
            assert begun == (not before), (k, t)


def test_collectors_that_take_turns_keep_their_rows_apart(config_of):
    streams, enhancer = [Stream(seed, 24) for seed in (1, 2)], nstep_reward_enhancer(config_of(3))
    parts = ([], [])
    for start in range(0, 24, 4):
        for number, stream in enumerate(streams):
            rollout = stream.rollout(start, start + 4)
            rollout.collector = number
            rows = handed_on(enhancer, rollout)
            assert set(rows["sequence"]) <= {number * 3 + env for env in range(3)}
            parts[number].append(rows)
    for stream, rows in zip(streams, parts):
        check_rows(rows, stream.expected(3))


def test_waiting_rows_survive_a_checkpoint(config_of, tmp_path):
    def nested(rollout):
        trees = {
            name: FastTreeValue({"a": value, "b": {"c": value[..., 0]}})
            for name in ("obs", "last_obs", "final_obs")
            if (value := getattr(rollout, name)) is not None
        }
        return dataclasses.replace(rollout, **trees)

    stream = Stream(5, 20, resets=True)
    enhancer, resumed = (nstep_reward_enhancer(config_of(4)) for _ in range(2))
    handed_on(enhancer, nested(stream.rollout(0, 13)))
    save_checkpoint(tmp_path / "iter_1", enhancer.state_dict(), {})
    resumed.load_state_dict(load_checkpoint(tmp_path / "iter_1")[0])
    one, two = (handed_on(each, nested(stream.rollout(13, 20))) for each in (enhancer, resumed))
    assert one.keys() == two.keys() >= {"obs.a", "next_obs.b.c"}
    for name, values in one.items():
        assert values.tobytes() == two[name].tobytes()


def test_an_abandoned_episode_ends_with_what_was_seen_last(config_of):
    cfg = config_of(3, gamma=0.5)
    ctx, enhancer = OnlineRLContext(), nstep_reward_enhancer(cfg)
    env = CountingEnv(lengths=(9, 9))
    collector = StepCollector(_four_steps(cfg), AgePolicy(value=False).collect_mode, env)
    collector(ctx)
    assert transitions_of(enhancer, ctx)["reward"].tolist() == [2.75, 2.75, 4.5, 4.5]
    # Environments that cannot be restored begin anew.
    env.reset()
    collector(ctx)
    rows = transitions_of(enhancer, ctx)
    assert rows["obs"][:4].tolist() == [[0, 0, 2], [1, 0, 2], [0, 0, 3], [1, 0, 3]]
    assert rows["next_obs"][:4].tolist() == [[0, 0, 4], [1, 0, 4]] * 2
    assert rows["reward"].tolist() == [5.0, 5.0, 4.0, 4.0, 2.75, 2.75, 4.5, 4.5]
    assert rows["discount"].tolist() == [0.25, 0.25, 0.5, 0.5] + [0.125] * 4
    assert not rows["terminated"].any()


def transitions_of(enhancer, ctx):
    enhancer(ctx)
    return transitions(ctx.trajectories)


def _four_steps(cfg):
    cfg.policy.collect.n_sample = 8
    return cfg


def rows_by_collector(cfg, iterations, **lanes):
    """What a data_pusher would push, by collector; with `lanes` they collect in lanes."""
    found = {}

    def note(ctx):
        rows = {**transitions(ctx.trajectories), **sequence_columns(ctx.trajectories)}
        found.setdefault(ctx.trajectories.collector, []).append(rows)

    task = Task()
    with task.start(bool(lanes), OnlineRLContext(), lanes=lanes or None):
        task.use(StepCollector(cfg, AgePolicy(value=False).collect_mode, CountingEnv(lengths=(5, 7))))
        task.use(nstep_reward_enhancer(cfg)).use(note)
        task.run(max_step=iterations)
    return {
        number: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for number, parts in found.items()
    }


def test_in_lanes_each_collector_hands_on_its_own_rows(config_of):
    cfg = _four_steps(config_of(3))
    (sync,) = rows_by_collector(cfg, 5).values()
    lanes = rows_by_collector(cfg, 10, collectors=2, max_staleness=1, transport="threads")
    assert sorted(lanes) == [0, 1]
    for number, rows in lanes.items():
        assert np.array_equal(rows.pop("sequence"), sync["sequence"] + 2 * number)
        for name, values in rows.items():
            assert np.array_equal(values, sync[name]), name
