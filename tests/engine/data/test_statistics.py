"""Running mean and variance, and the normalization that keeps zero at zero."""

import numpy as np
import pytest

from minding.engine.data.statistics import RunningMoments


def test_batches_of_any_size_give_the_moments_of_all_samples():
    samples = np.random.default_rng(0).normal(1e4, 1.0, (1000, 3)).astype(np.float32)
    moments = RunningMoments((3,))
    for batch in np.split(samples, [1, 1, 4, 100, 900]):
        moments.update(batch)
    assert moments.count == 1000
    np.testing.assert_allclose(moments.mean, samples.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(moments.var, samples.var(0, dtype=np.float64), rtol=1e-9)
    moments = RunningMoments((2,))
    moments.update(np.zeros((0, 2)))
    assert (moments.mean.tolist(), moments.var.tolist(), moments.count) == ([0.0, 0.0], [1.0, 1.0], 0)


def test_state_round_trips_and_shares_nothing():
    moments = RunningMoments((1,))
    moments.update(np.array([[1.0], [2.0], [4.0]]))
    state = moments.state_dict()
    other = RunningMoments((1,))
    other.load_state_dict(state)
    for each in (moments, other):
        each.update(np.array([[3.0]]))
    assert (other.mean.tolist(), other.var.tolist(), other.count) == (moments.mean.tolist(), moments.var.tolist(), 4)
    assert state["count"] == 3
    assert state["mean"].tolist() == [7.0 / 3.0]


def test_images_give_the_moments_of_their_pixels():
    samples = np.random.default_rng(0).integers(0, 256, (600, 2, 3)).astype(np.uint8)
    samples[:, 0, 0], samples[:, 1, 2] = 199, 255
    samples[7, 0, 1] = 0
    moments = RunningMoments((2, 3))
    for batch in np.split(samples, [1, 1, 4, 30]):
        moments.update(batch)
    assert moments.count == 600
    np.testing.assert_allclose(moments.mean, samples.mean(0, dtype=np.float64), rtol=1e-13)
    np.testing.assert_allclose(moments.var, samples.var(0, dtype=np.float64), rtol=1e-12)
    assert (moments.mean[0, 0], moments.var[0, 0], moments.mean[1, 2], moments.var[1, 2]) == (199.0, 0.0, 255.0, 0.0)


@pytest.mark.parametrize(
    ("samples", "center", "square"),
    [
        ([0.0, 2.0], 0.0, 2.0),
        ([-1.0, -3.0], 0.0, 5.0),
        ([2.0, 4.0], 1.5, 3.25),
        ([-2.5, -4.5], -2.625, 1.765625),
        ([9.0, 11.0], 10.0, 1.0),
        ([0.0] * 9 + [30.0], 0.0, 90.0),
        ([0.0], 0.0, 0.0),
        ([7.0], 7.0, 0.0),
    ],
)
def test_zero_stays_zero_unless_the_mean_is_deviations_away(samples, center, square):
    found = RunningMoments.of(np.array(samples)).zero_keeping()
    assert [x.dtype for x in found] == [np.float64, np.float64]
    np.testing.assert_allclose(found, (center, 1 / np.sqrt(square + 1e-8)), rtol=1e-7)


def test_a_range_that_reaches_zero_late_moves_no_input_by_a_jump():
    samples = np.random.default_rng(0).uniform([1, 2, -9], [9, 4, -7], (10_000, 3))
    moments = RunningMoments.of(samples)
    before = moments.zero_keeping()
    moments.update(np.zeros((1, 3)))
    (center, scale), (moved, rescaled) = before, moments.zero_keeping()
    assert moved.all()
    assert np.abs((samples - moved) * rescaled - (samples - center) * scale).max() < 0.05


def test_the_normalization_of_merged_shards_is_that_of_all_rows():
    samples = np.random.default_rng(0).normal([0.0, 3.0, 50.0], 1.0, (999, 3))
    shards = [RunningMoments.of(part) for part in np.split(samples, [10, 700])]
    for shard in shards[1:]:
        shards[0].merge(shard)
    np.testing.assert_allclose(shards[0].zero_keeping(), RunningMoments.of(samples).zero_keeping(), rtol=1e-12)
