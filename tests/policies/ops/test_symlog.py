"""symlog, its inverse, and two-hot targets: by hand and against NumPy in float64."""

import numpy as np
from numeric import assert_gradient, t, value

from minding.engine.process.runtime import ms, ops, to_device
from minding.policies.acting.numpy_world_model import symlog as numpy_symlog
from minding.policies.ops.imagination import symexp, symlog, two_hot

PLACES = np.arange(41, dtype=np.float32)


def np_symlog(x):
    return np.sign(x) * np.log1p(np.abs(x))


def test_symlog_and_its_inverse_by_hand_and_in_float64():
    np.testing.assert_allclose(value(symlog(t(0.0, np.e - 1, 1 - np.e))), [0.0, 1.0, -1.0], rtol=1e-6)
    x = np.concatenate([-np.logspace(-3, 6, 40), np.logspace(-3, 6, 40)])
    squeezed = value(symlog(to_device(x.astype(np.float32))))
    np.testing.assert_allclose(squeezed, np_symlog(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(numpy_symlog(x), np_symlog(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(symexp(to_device(squeezed))), x, rtol=1e-5, atol=1e-6)
    assert_gradient(lambda x: ops.ReduceSum()(symlog(x)), lambda x: np_symlog(x).sum(), [0.5, -2.0, 30.0])


def test_a_number_lies_between_its_two_bins_by_hand():
    # Bins -2, -1, 0, 1, 2; beyond them it counts as the last one.
    found = value(two_hot(t(0.25, -1.0, 7.0), -2.0, 1.0, t(*range(5))))
    assert found.tolist() == [[0, 0, 0.75, 0.25, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_the_mean_of_the_bins_is_the_number():
    rng = np.random.default_rng(0)
    x = rng.uniform(-20, 20, 200)
    low, spacing = -20.0, 1.0
    found = value(two_hot(to_device(x.astype(np.float32)), low, spacing, to_device(PLACES)))
    expected = np.zeros((200, 41))
    below = np.floor(x - low).astype(int)
    expected[np.arange(200), below] = 1.0 - (x - low - below)
    expected[np.arange(200), below + 1] = x - low - below
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(found @ (low + spacing * PLACES), x, rtol=1e-5, atol=1e-5)
    assert (found > 1e-4).sum(axis=1).max() <= 2


def test_a_number_that_is_not_finite_shows():
    found = value(two_hot(t(np.nan, np.inf, 1.0), -2.0, 1.0, t(*range(5))))
    assert np.isnan(found[:2]).all()
    assert not np.isfinite(value(symlog(t(np.nan, np.inf, -np.inf)))).any()
    assert np.isfinite(found[2]).all()


def test_no_gradient_is_needed_of_a_target():
    loss = ms.value_and_grad(lambda x: ops.ReduceSum()(ops.Square()(two_hot(x, -2.0, 1.0, t(*range(5))))))
    np.testing.assert_allclose(value(loss(t(0.25))[1]), [2 * (-0.75 + 0.25)], rtol=1e-5)
