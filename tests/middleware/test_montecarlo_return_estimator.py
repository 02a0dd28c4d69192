"""Full returns: of whole episodes wherever the stream is cut into rollouts, or bootstrapped by a critic."""

import dataclasses

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv, tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import GAMMA, Stream

from minding.engine.chain.context import OnlineRLContext
from minding.middleware import StepCollector, montecarlo_return_estimator

CRITIC, NO_CRITIC = AgePolicy().collect_mode, AgePolicy(value=False).collect_mode


@pytest.fixture(scope="module")
def config_of():
    def make(gamma=GAMMA, **overrides):
        return tiny_config("pg", **{"policy.learn.gamma": gamma, "policy.collect.n_sample": 8, **overrides})

    return make


def estimated(estimator, rollout):
    ctx = OnlineRLContext()
    ctx.trajectories = rollout
    estimator(ctx)
    return ctx.train_data


def sums(stream, stop):
    """(environment, time) -> the return of each row whose episode is over before `stop`, by a loop in float64."""
    found = {}
    over = stream.terminated | stream.truncated
    for env in range(stream.envs):
        for start in range(stop):
            total = 0.0
            for t in range(start, stop):
                if not stream.valid[t, env]:
                    break
                total += GAMMA ** (t - start) * float(stream.reward[t, env])
                if over[t, env]:
                    found[env, start] = total
                    break
    return found


def check_rows(parts, expected):
    """Each row is there once, with the return of the loop; returns them as (environment, time)."""
    rows = {name: np.concatenate([part[name] for part in parts]) for name in ("obs", "action", "mark", "return")}
    keys = [(int(env), int(t)) for env, t in rows["obs"]]
    assert sorted(keys) == sorted(expected)
    np.testing.assert_allclose(rows["return"], [expected[key] for key in keys], rtol=1e-5, atol=1e-5)
    assert rows["action"].tolist() == [t * 100 + env for env, t in keys]
    return keys


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    resets=st.booleans(),
    saved=st.booleans(),
)
def test_any_partition_gives_the_returns_of_the_whole(config_of, seed, lengths, resets, saved):
    stream = Stream(seed, sum(lengths), resets=resets)
    estimator, parts, start = montecarlo_return_estimator(config_of(), NO_CRITIC), [], 0
    for length in lengths:
        data = estimated(estimator, stream.rollout(start, start + length))
        start += length
        count, valid = length * stream.envs, data.pop("valid")
        assert {len(values) for values in data.values()} == {count}
        assert valid.tolist() in ([True] * count, [False] * count)
        if valid.all():
            parts.append(data)
        state = estimator.state_dict()
        # Whenever there are enough, they are handed on: what waits does not pile up.
        assert len(state["known"]["0"]["return"]) < count or valid.all()
        if saved:
            estimator = montecarlo_return_estimator(config_of(), NO_CRITIC)
            estimator.load_state_dict(state)
    check_rows([*parts, estimator.state_dict()["known"]["0"]], sums(stream, start))


def test_rows_come_in_the_order_in_which_their_episodes_end(config_of):
    ctx, cfg = OnlineRLContext(), config_of(gamma=0.5)
    collector = StepCollector(cfg, NO_CRITIC, CountingEnv(lengths=(6, 2)))
    estimator, made = montecarlo_return_estimator(cfg, NO_CRITIC), []
    for _ in range(3):
        collector(ctx)
        estimator(ctx)
        made.append(ctx.train_data)
    # Rewards are 1, 2, 3, ... within an episode. After the first four steps only four returns are known.
    assert not made[0]["valid"].any()
    assert made[0]["return"].tolist() == [0.0] * 8
    assert made[1]["obs"][:4].tolist() == [[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    assert made[1]["obs"][4:].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]]
    # A time limit ends the sum: 1 + 0.5 * 2 and 2; the other one from behind is 6, 5 + 3, 4 + 4, 3 + 4, ...
    assert made[1]["return"].tolist() == [2.0, 2.0, 2.0, 2.0, 3.75, 5.5, 7.0, 8.0]
    assert made[2]["obs"][:4].tolist() == [[0, 0, 4], [1, 2, 0], [0, 0, 5], [1, 2, 1]]
    assert made[2]["return"][:4].tolist() == [8.0, 2.0, 6.0, 2.0]


def test_nothing_is_learned_of_an_abandoned_episode(config_of):
    cfg, env, ctx = config_of(gamma=0.5), CountingEnv(lengths=(9, 4)), OnlineRLContext()
    collector, estimator = StepCollector(cfg, NO_CRITIC, env), montecarlo_return_estimator(cfg, NO_CRITIC)
    collector(ctx)
    estimator(ctx)
    assert estimator.state_dict()["tails"]["0"]["ready"].tolist() == [[True, False]] * 4
    # Environments that cannot be restored begin anew.
    env.reset()
    for _ in range(3):
        collector(ctx)
        estimator(ctx)
    seen = estimator.state_dict()["known"]["0"]["obs"].tolist() + ctx.train_data["obs"].tolist()
    assert [0, 0, 3] not in seen
    assert [0, 1, 3] in seen


def test_collectors_that_take_turns_keep_their_rows_apart(config_of):
    streams, estimator = [Stream(seed, 24) for seed in (1, 2)], montecarlo_return_estimator(config_of(), NO_CRITIC)
    parts = ([], [])
    for start in range(0, 24, 4):
        for number, stream in enumerate(streams):
            rollout = stream.rollout(start, start + 4)
            rollout.collector = number
            data = estimated(estimator, rollout)
            if data["valid"].all():
                parts[number].append(data)
    for number, stream in enumerate(streams):
        check_rows([*parts[number], estimator.state_dict()["known"][str(number)]], sums(stream, 24))


def with_values(rollout, rng):
    """The rollout of a policy with a critic that knows nothing."""
    steps, envs = rollout.shape
    value = rng.standard_normal((steps + 1, envs)).astype(np.float32)
    final = rng.standard_normal(len(rollout.ends)).astype(np.float32) if len(rollout.ends) else None
    record = {**rollout.record, "value": value[:-1], "log_prob": value[:-1] - 1.0}
    return dataclasses.replace(rollout, record=record, last_value=value[-1], final_value=final)


def bootstrapped(rollout):
    """The return of each valid row by a loop in float64: to the end of its trajectory or of the rollout."""
    steps, envs = rollout.shape
    final = {tuple(end): k for k, end in enumerate(rollout.ends)}
    valid = np.ones((steps, envs), bool) if rollout.valid is None else rollout.valid
    found = np.full((steps, envs), np.nan)
    for t, n in np.argwhere(valid):
        total, discount = 0.0, 1.0
        for later in range(t, steps):
            total += discount * float(rollout.reward[later, n])
            discount *= GAMMA
            if (later, n) in final:
                bootstrap = 0.0 if rollout.terminated[later, n] else float(rollout.final_value[final[later, n]])
                break
            if later == steps - 1:
                bootstrap = float(rollout.last_value[n])
                break
            if not valid[later + 1, n]:
                # Given up; the value of what was seen last.
                bootstrap = float(rollout.record["value"][later + 1, n])
                break
        found[t, n] = total + discount * bootstrap
    return found.reshape(-1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 12), resets=st.booleans())
def test_time_limits_and_borders_bootstrap_with_a_critic(config_of, seed, steps, resets):
    rollout = with_values(Stream(seed, 20, resets=resets).rollout(3, 3 + steps), np.random.default_rng(seed))
    data = estimated(montecarlo_return_estimator(config_of(), CRITIC), rollout)
    expected, valid = bootstrapped(rollout), data["valid"]
    assert np.array_equal(valid, ~np.isnan(expected))
    np.testing.assert_allclose(data["return"][valid], expected[valid], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(data["advantage"], data["return"] - data["value"], atol=1e-5)
