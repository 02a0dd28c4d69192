"""Normalizers of policies that learn from recorded data: moments of all data, before the first step, for good."""

import copy

import numpy as np
import pytest
import recordings
from fakes import dict_of, discrete, space_of, tiny_config

from minding.engine.buffers import DatasetTables
from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

OBSERVATION = dict_of(a=space_of(3), b=space_of(2, dtype="uint8", low=0, high=255))
STEPS = 50


def policy_of(algorithm="bc", **settings):
    cfg = tiny_config(algorithm, OBSERVATION, discrete(2), **{"policy.model.normalize_obs": True, **settings})
    return get_policy_class(algorithm)(cfg)


def recorded(seed=0):
    rng, made = np.random.default_rng(seed), []
    for steps in (STEPS - 20, 20):
        # Far from zero, so centred: squares of float32 would lose all digits. No step was acted on at the end.
        obs = {"a": 1e4 + rng.standard_normal((steps + 1, 3)), "b": rng.integers(0, 256, (steps + 1, 2), np.uint8)}
        obs["a"][-1] = 0.0
        made.append(recordings.log(steps, rng.integers(0, 2, steps), obs=obs))
    return recordings.dataset(made, OBSERVATION, recordings.choices(2))


def moments(policy):
    return {name: (n.center.asnumpy().copy(), n.scale.asnumpy().copy()) for name, (_, n) in policy.normalizers.items()}


def same(first, second):
    return first.keys() == second.keys() and all(
        np.array_equal(a, b) for name in first for a, b in zip(first[name], second[name])
    )


@pytest.fixture
def blocks(monkeypatch):
    monkeypatch.setattr("minding.policies.core.weights._BLOCK", 7)


def test_they_are_the_datas_in_float64_at_the_first_step(blocks):
    data, policy = recorded(), policy_of()
    tables = DatasetTables(data, policy.learn_mode.fields)
    first = np.arange(4).reshape(1, 4)
    policy.learn_mode.forward(tables.batch(first))
    found = moments(policy)
    assert len(found) == 2
    a, b = (values.astype(np.float64) for values in data.obs.values())
    expected = [(a.mean(axis=0), 1 / np.sqrt(a.var(axis=0) + 1e-8)), (0 * b[0], 1 / np.sqrt((b**2).mean(axis=0)))]
    for (center, scale), (offset, factor) in zip(found.values(), expected):
        np.testing.assert_array_equal(center, offset.astype(np.float32))
        np.testing.assert_allclose(scale, factor, rtol=1e-6)
    assert [n.moments.count for _, n in policy.normalizers.values()] == [STEPS, STEPS]
    policy.learn_mode.forward(tables.batch(first + 4))
    assert same(moments(policy), found)


def test_the_first_step_sees_them(blocks):
    policy = policy_of(**{"policy.learn.learning_rate": 1e-30})
    tables = DatasetTables(recorded(), policy.learn_mode.fields)
    losses = [policy.learn_mode.forward(tables.batch(np.arange(8)[None])).metrics["loss"] for _ in range(2)]
    assert losses[0] == losses[1]


def test_resumed_and_further_trained_policies_keep_theirs():
    policy = policy_of()
    policy.learn_mode.forward(DatasetTables(recorded(), policy.learn_mode.fields).batch(np.arange(8)[None]))
    found = moments(policy)
    fresh = policy_of(seed=1)
    fresh.load_state_dict(copy.deepcopy(policy.state_dict()))
    # Other data, as where a policy goes on with those of another task.
    fresh.learn_mode.forward(DatasetTables(recorded(seed=5), fresh.learn_mode.fields).batch(np.arange(8)[None]))
    assert same(moments(fresh), found)
