"""RND: its rewards against NumPy in float64, what it learns, and what it saves."""

import copy
import dataclasses

import numpy as np
import pytest
from fakes import dict_of, discrete, space_of

from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout
from minding.policies.rewards.rnd import RND

STEPS, ENVS = 6, 2
SETTINGS = {
    "policy.other.rnd.weight": 1.0,
    "policy.other.rnd.hidden": [8],
    "policy.other.rnd.dim": 4,
    "policy.other.rnd.n_minibatch": 4,
    "policy.other.rnd.gamma": 0.5,
    "policy.other.rnd.learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def built(tiny_config):
    return RND(tiny_config("ppo", dict_of(a=space_of(3), b=discrete(2)), discrete(3), **SETTINGS))


@pytest.fixture
def rnd(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)


def rollout(seed=0, valid=None, value=None):
    """A rollout of random observations, or of one that all are."""
    rng = np.random.default_rng(seed)
    a = rng.normal(3.0, 2.0, (STEPS + 1, ENVS, 3)).astype(np.float32)
    b = rng.integers(0, 2, (STEPS + 1, ENVS))
    if value is not None:
        a[:], b[:] = value, 1
    none = np.zeros((STEPS, ENVS), bool)
    obs, last = (obs_trees.unflatten({"a": a[part], "b": b[part]}) for part in (slice(STEPS), STEPS))
    zeros = np.zeros((STEPS, ENVS), np.float32)
    return Rollout(obs, last, None, np.empty((0, 2), np.int64), zeros, zeros, none, none, valid, {})


def layer(params, name, x):
    return x @ params[f"{name}.weight"].T.astype(np.float64) + params[f"{name}.bias"]


def after_encoding(params, name, x):
    hidden = sorted(key.removesuffix(".weight") for key in params if key.startswith(f"{name}.body") and "weight" in key)
    for each in hidden:
        x = np.maximum(layer(params, each, x), 0.0)
    return layer(params, f"{name}.head", x)


def mlp(params, name, x):
    """A network of `Features` on two leaves, in float64."""
    parts = [np.tanh(layer(params, f"{name}.encoder.projections.{k}", leaf)) for k, leaf in enumerate(x)]
    return after_encoding(params, name, np.concatenate(parts, axis=1))


def test_rewards_are_errors_over_the_deviation_of_their_sums(rnd):
    before, given = rnd.state_dict()["params"], rollout()
    found = rnd.estimate(given)
    after = given.next_obs()
    a = after.a.reshape(STEPS * ENVS, 3).astype(np.float64)
    x = np.clip((a - a.mean(axis=0)) / np.sqrt(a.var(axis=0) + 1e-8), -5, 5), np.eye(2)[after.b.reshape(-1)]
    errors = np.square(mlp(before, "predictor", x) - mlp(before, "target", x)).mean(axis=1).reshape(STEPS, ENVS)
    sums, total = [np.zeros(ENVS)], np.zeros(ENVS)
    for step in errors:
        total = 0.5 * total + step
        sums.append(total)
    np.testing.assert_allclose(found.reward, errors / np.std(sums), rtol=2e-4)
    assert found.metrics["rnd_reward"] == pytest.approx(found.reward.mean())
    # A second rollout goes on with the sums.
    np.testing.assert_allclose(rnd.state_dict()["sums"]["0"], total, rtol=1e-4)


def test_only_what_predicts_learns_and_its_errors_fall(rnd):
    before = rnd.state_dict()["params"]
    losses = [rnd.estimate(rollout()).metrics["rnd_loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    after = rnd.state_dict()["params"]
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    learned = {name for name in before if name.startswith("predictor.")}
    assert learned <= moved
    assert not {name for name in moved if name.startswith("target.")}


def test_equal_first_errors_are_not_divided_by_their_spread(rnd):
    errors = np.full((1, ENVS), 0.25, np.float32)
    first = dataclasses.replace(rollout(), reward=errors, terminated=errors > 1)
    # Sums 0 and 0.25; without those of 0 the reward was 2,500.
    np.testing.assert_allclose(rnd._scaled(errors, first), 2.0)
    np.testing.assert_array_equal(rnd._scaled(np.zeros_like(errors), dataclasses.replace(first, collector=1)), 0.0)


def test_each_collector_has_discounted_sums_of_its_own(rnd):
    rnd.estimate(rollout())
    first = rnd.state_dict()["sums"]["0"]
    rnd.estimate(dataclasses.replace(rollout(1), collector=1))
    sums = rnd.state_dict()["sums"]
    np.testing.assert_array_equal(sums["0"], first)
    assert sums["1"].shape == (ENVS,)


def test_each_pass_takes_every_row_in_an_order_of_its_own(rnd):
    rows = np.array([0, 1, 3, 4, 6, 7, 8, 10])
    passes = [index for index, valid in (rnd._minibatches(rows, 8) for _ in range(3)) if valid is None]
    assert [each.shape for each in passes] == [(4, 2)] * 3
    orders = [each.ravel().tolist() for each in passes]
    assert [sorted(order) for order in orders] == [rows.tolist()] * 3
    assert len({tuple(order) for order in orders}) == 3
    # Places that are left are filled, and count for nothing.
    index, valid = rnd._minibatches(rows, 12)
    assert valid.tolist() == [[1, 1, 0]] * 4
    assert sorted(index[valid > 0].tolist()) == rows.tolist()


def test_reset_rows_are_neither_rewarded_nor_learned_from(rnd):
    valid = np.ones((STEPS, ENVS), bool)
    valid[2, 1] = valid[5, 0] = False
    reward = rnd.estimate(rollout(valid=valid)).reward
    assert (reward[~valid] == 0.0).all()
    assert (reward[valid] > 0.0).all()
    assert rnd.estimate(rollout(valid=np.zeros_like(valid))).metrics == {}


def test_rows_that_are_left_count_once_in_what_is_learned(rnd):
    """What fills up a minibatch changes neither the loss nor a weight."""
    valid = np.zeros((STEPS, ENVS), bool)
    valid[2:4] = True
    state, seen = copy.deepcopy(rnd.state_dict()), []
    # Four rows in four minibatches of three places: each is learned from alone.
    index, counts = rnd._minibatches(np.flatnonzero(valid.reshape(-1)), valid.size)
    rnd.load_state_dict(state)
    rnd._minibatches = lambda rows, count: (seen.append(rows), (index, counts))[1]
    try:
        filled = rnd.estimate(rollout(valid=valid)).metrics
        params = rnd.state_dict()["params"]
        rnd.load_state_dict(state)
        # Other rows in the places that are left change nothing.
        index = np.where(counts > 0, index, 0).astype(np.int32)
        assert rnd.estimate(rollout(valid=valid)).metrics["rnd_loss"] == filled["rnd_loss"]
    finally:
        del rnd._minibatches
    assert seen[0].tolist() == [4, 5, 6, 7]
    assert all(np.array_equal(values, params[name]) for name, values in rnd.state_dict()["params"].items())


# Images


@pytest.fixture(scope="module")
def built_for_images(tiny_config):
    image = {"kind": "box", "shape": [2, 5, 5], "dtype": "uint8", "low": 0, "high": 255}
    settings = {**SETTINGS, "policy.model.cnn": [[3, 3, 2]], "policy.model.cnn_dim": 4}
    return RND(tiny_config("ppo", image, discrete(3), **settings))


@pytest.fixture
def rnd_of_images(built_for_images):
    state = copy.deepcopy(built_for_images.state_dict())
    yield built_for_images
    built_for_images.load_state_dict(state)


def images(seed=0):
    """A rollout of faint images: pixel 0 never changes, and pixel 1 is bright in the last one alone."""
    pixels = np.random.default_rng(seed).integers(100, 104, (STEPS + 1, ENVS, 2, 5, 5)).astype(np.uint8)
    pixels[:, :, 0, 0, 0], pixels[:, :, 0, 0, 1] = 37, 0
    pixels[STEPS, 0, 0, 0, 1] = 255
    return dataclasses.replace(rollout(), obs=pixels[:STEPS], last_obs=pixels[STEPS])


def convolved(params, name, x):
    """A network of `Features` on whitened images ``(B, 2, 5, 5)``, in float64."""
    part = f"{name}.encoder.encoders.0"
    weight, bias = (params[f"{part}.convolutions.0.{each}"].astype(np.float64) for each in ("weight", "bias"))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    x = np.maximum(np.einsum("bchwij,fcij->bfhw", windows, weight) + bias[:, None, None], 0.0).reshape(len(x), -1)
    return after_encoding(params, name, np.maximum(layer(params, f"{part}.linear", x), 0.0))


def test_images_are_whitened_by_pixel_and_clipped(rnd_of_images):
    before, given = rnd_of_images.state_dict()["params"], images()
    found = rnd_of_images.estimate(given).reward
    seen = given.next_obs().reshape(STEPS * ENVS, 2, 5, 5).astype(np.float64)
    white = np.clip((seen - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8), -5, 5)
    assert (white[:, 0, 0, 0] == 0.0).all()
    errors = np.square(convolved(before, "predictor", white) - convolved(before, "target", white)).mean(axis=1)
    errors = errors.reshape(STEPS, ENVS)
    sums = [np.zeros(ENVS)]
    for step in errors:
        sums.append(0.5 * sums[-1] + step)
    np.testing.assert_allclose(found, errors / np.std(sums), rtol=2e-4)
    moments = rnd_of_images.state_dict()["observations"]["next_obs"]
    np.testing.assert_allclose(moments["mean"], seen.reshape(len(seen), -1).mean(axis=0))
    np.testing.assert_allclose(moments["var"], seen.reshape(len(seen), -1).var(axis=0), atol=1e-9)


def test_a_pixel_that_had_never_changed_is_5_deviations_away(rnd_of_images):
    rnd_of_images.estimate(images())
    changed = np.full((1, 2, 5, 5), 102, np.uint8)
    changed[0, 0, 0, :2] = 38, 255
    data = {"next_obs": changed}
    # No row is taken into the moments.
    rnd_of_images._whiten(data, np.zeros(0, np.int64))
    # Eleven images of 0 and one of 255: the deviation is 255 sqrt(11) / 12.
    np.testing.assert_allclose(data["next_obs"][0, 0, 0, :2], [5.0, np.sqrt(11)], rtol=1e-5)
    assert data["next_obs"].dtype == np.float32
