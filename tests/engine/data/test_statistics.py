"""Running mean and variance."""

import numpy as np

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
