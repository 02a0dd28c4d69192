"""The library's kernels against float64 NumPy, called directly: no graph, no MindSpore."""

import numpy as np
import pytest
from fakes import needs_kernels
from kernel_calls import SLOPE, VALUE, WITH_ONEDNN, check_layer, close, doubles, draws, result, run

from minding.policies import kernels

pytestmark = needs_kernels
SIZES = (
    # batch, inputs, outputs: one of all, edges of tiles (6 x 16), of blocks (256), of vectors (8), usual networks.
    (1, 1, 1), (5, 3, 7), (6, 8, 16), (7, 9, 17), (13, 16, 15), (12, 255, 33), (3, 256, 5), (9, 257, 4),
    (33, 600, 18), (300, 1, 24), (600, 5, 3), (256, 4, 256), (256, 256, 1), (128, 128, 2), (64, 64, 64),
)  # fmt: skip


@pytest.mark.parametrize("activation", VALUE)
@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES)
def test_a_layer_and_its_gradients(batch, inputs, outputs, activation):
    check_layer(draws(0, (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs)), activation)


@pytest.mark.parametrize("activation", VALUE)
@pytest.mark.parametrize(("batch", "size"), [(1, 2), (5, 7), (3, 16), (9, 33), (256, 256)])
def test_a_normalized_layer_and_its_gradients(batch, size, activation):
    arrays = draws(2, (batch, size), (size,), (size,), (batch, size))
    # Rows far from zero: their mean is taken out before squares are summed.
    x, weight, bias, dout = arrays[0] + np.float32(30.0), *arrays[1:]
    x64, weight64, bias64, dout64 = doubles((x, weight, bias, dout))
    scale = 1.0 / np.sqrt(x64.var(axis=1, keepdims=True) + 1e-5)
    normal = (x64 - x64.mean(axis=1, keepdims=True)) * scale
    y = result(f"norm_{activation}", (x, weight, bias), (batch, size))
    close(y, VALUE[activation](normal * weight64 + bias64), 100)
    before = dout64 * SLOPE[activation](y.astype(np.float64))
    g = before * weight64
    dx, dweight, dbias = result(f"norm_{activation}_gradient", (dout, y, x, weight), (batch, size), (size,), (size,))
    mean, slope = g.mean(axis=1, keepdims=True), (g * normal).mean(axis=1, keepdims=True)
    close(dx, scale * (g - mean - normal * slope), 1000)
    close(dweight, (before * normal).sum(0), 100 * batch)
    close(dbias, before.sum(0), batch)


# Convolutions: batch, channels, height, width, filters, kernel, stride, padding.
IMAGES = (
    (3, 4, 12, 9, 16, 3, 1, 0), (1, 1, 3, 3, 1, 3, 1, 0), (5, 3, 7, 7, 5, 3, 2, 0), (9, 16, 10, 8, 48, 3, 1, 1),
    (4, 2, 5, 5, 8, 3, 1, 1), (6, 5, 4, 6, 17, 1, 1, 0), (9, 4, 84, 84, 32, 8, 4, 0), (17, 32, 20, 20, 64, 4, 2, 0),
    (2, 64, 9, 9, 64, 3, 1, 0), (3, 3, 11, 11, 7, 5, 3, 2),
)  # fmt: skip


def patches_of(x, kernel, stride, padding):
    """All patches of images (B, C, H, W): (B, C, rows, columns, kernel, kernel)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    return np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]


def images_of_patches(patches, shape, stride, padding):
    """The adjoint of `patches_of`: images of that shape with the sum of what the patches hold of each pixel."""
    height, width = shape[2] + 2 * padding, shape[3] + 2 * padding
    images = np.zeros((*shape[:2], height, width))
    rows, columns, kernel = patches.shape[2:5]
    for i in range(kernel):
        for j in range(kernel):
            images[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride] += patches[..., i, j]
    return images[:, :, padding : height - padding, padding : width - padding]


def laid_out(x, channels_last):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x


def channels_first(x, channels_last):
    return x.transpose(0, 3, 1, 2) if channels_last else x


@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
@pytest.mark.parametrize("form", [(False, True, True, True), (True, True, True, False), (True, False, False, False),
                                  (False, False, True, False)], ids=str)  # fmt: skip
@pytest.mark.parametrize("sizes", IMAGES, ids=str)
def test_a_convolution_and_its_gradients(sizes, form, onednn, request):
    batch, channels, _, _, filters, kernel, stride, padding = sizes
    last, result_last, relu, of_bytes = form
    request.addfinalizer(lambda: kernels.use_onednn(kernels.onednn_has_avx512()))
    kernels.use_onednn(onednn)
    x, weight, bias = draws(3, sizes[:4], (filters, channels, kernel, kernel), (filters,))
    if of_bytes:
        x = np.random.default_rng(3).integers(0, 256, sizes[:4]).astype(np.uint8)
    patches = patches_of(x.astype(np.float64) / (255 if of_bytes else 1), kernel, stride, padding)
    expected = np.einsum("bcrsij,ocij->bors", patches, weight.astype(np.float64)) + bias[:, None, None]
    geometry = np.array([stride, padding, last, result_last, relu], np.int32)
    shape = laid_out(expected, result_last).shape
    terms = channels * kernel * kernel
    given = laid_out(x, last)
    y = result("convolve", (geometry, given, weight, bias), shape)
    close(channels_first(y, result_last), np.maximum(expected, 0) if relu else expected, terms)

    (dout,) = draws(4, shape)
    before = channels_first((dout * (y > 0) if relu else dout).astype(np.float64), result_last)
    inputs = (geometry, dout, y, given, weight)
    dweight, dbias = result("convolve_parameter_gradient", inputs, weight.shape, bias.shape)
    close(dweight, np.einsum("bors,bcrsij->ocij", before, patches), batch * patches[0, 0].size)
    close(dbias, before.sum((0, 2, 3)), before[:, 0].size)
    dx = result("convolve_input_gradient", inputs, given.shape)
    dpatches = np.einsum("bors,ocij->bcrsij", before, weight.astype(np.float64))
    close(channels_first(dx, last), images_of_patches(dpatches, sizes[:4], stride, padding), filters * kernel**2)


@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
@pytest.mark.parametrize("form", [(False, False, False), (True, False, True), (False, True, True), (True, True, False)],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("sizes", [*IMAGES[:6], (3, 4, 36, 41, 16, 8, 4, 0), IMAGES[9]], ids=str)
def test_a_transposed_convolution_and_its_gradients(sizes, form, onednn, request):
    batch, channels, height, width, filters, kernel, stride, padding = sizes
    last, given_last, relu = form
    request.addfinalizer(lambda: kernels.use_onednn(kernels.onednn_has_avx512()))
    kernels.use_onednn(onednn)
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
    x, weight, bias = draws(5, (batch, filters, rows, columns), (filters, channels, kernel, kernel), (channels,))
    patches = np.einsum("bors,ocij->bcrsij", x.astype(np.float64), weight.astype(np.float64))
    expected = images_of_patches(patches, sizes[:4], stride, padding) + bias[:, None, None]
    geometry, given = np.array([stride, padding, last, given_last, relu], np.int32), laid_out(x, given_last)
    shape = laid_out(expected, last).shape
    y = result("convolve_transposed", (geometry, given, weight, bias), shape)
    terms = filters * kernel * kernel
    close(channels_first(y, last), np.maximum(expected, 0) if relu else expected, terms)

    (dout,) = draws(6, shape)
    before = channels_first((dout * (y > 0) if relu else dout).astype(np.float64), last)
    inputs = (geometry, dout, y, given, weight)
    dpatches = patches_of(before, kernel, stride, padding)
    dx = result("convolve_transposed_input_gradient", inputs, given.shape)
    close(channels_first(dx, given_last), np.einsum("bcrsij,ocij->bors", dpatches, weight.astype(np.float64)),
          channels * kernel**2)  # fmt: skip
    dweight, dbias = result("convolve_transposed_parameter_gradient", inputs, weight.shape, bias.shape)
    close(dweight, np.einsum("bors,bcrsij->ocij", x.astype(np.float64), dpatches), batch * rows * columns)
    close(dbias, before.sum((0, 2, 3)), before[:, 0].size)


def test_a_batch_of_no_rows_has_zero_gradients():
    x, weight, bias, dout = draws(0, (0, 7), (5, 7), (5,), (0, 5))
    y = result("linear_relu", (x, weight, bias), (0, 5))
    assert result("linear_relu_input_gradient", (dout, y, weight), (0, 7)).shape == (0, 7)
    for name, gradient in (("linear_relu", dout), ("linear_scalar", dout[:, 0].copy())):
        rows = 5 if name == "linear_relu" else 1
        parts = result(f"{name}_parameter_gradient", (gradient, gradient, x), (rows, 7), (rows,))
        assert not any(part.any() for part in parts)
    numbers, columns = np.zeros(0, np.int32), np.array([0, 1], np.int32)
    fields = result("take_fields", (numbers, columns, np.ones((4, 3), np.float32)), (0,), (0, 2))
    assert [field.shape for field in fields] == [(0,), (0, 2)]


def test_a_layer_of_one_output_needs_no_axis_for_it():
    x, weight, bias, dout = arrays = draws(1, (9, 20), (1, 20), (1,), (9,))
    x64, weight64, bias64, dout64 = doubles(arrays)
    y = result("linear_scalar", (x, weight, bias), (9,))
    close(y, (x64 @ weight64.T + bias64)[:, 0], 20)
    close(result("linear_scalar_input_gradient", (dout, y, weight), (9, 20)), dout64[:, None] * weight64, 1)
    dweight, dbias = result("linear_scalar_parameter_gradient", (dout, y, x), (1, 20), (1,))
    close(dweight, dout64[None] @ x64, 9)
    close(dbias, [dout64.sum()], 9)


def critic_draws(count, batch):
    """Values of critics, two further rows of numbers, and a temperature."""
    return [*draws(11, (count, batch), (batch,), (batch,)), np.array(0.3, np.float32)]


CRITICS = pytest.mark.parametrize(("count", "batch"), [(1, 37), (2, 1), (2, 37), (5, 37)])


@CRITICS
def test_targets_use_the_smallest_value_of_all_critics(count, batch):
    q, log_prob, reward, alpha = critic_draws(count, batch)
    discount, terminated = draws(12, (batch,), (batch,))
    terminated = (terminated > 0).astype(np.float32)
    lowest = q.min(axis=0).astype(np.float64)
    y = result("soft_target", (reward, discount, terminated, q, log_prob, alpha), (batch,))
    next_value = lowest - alpha * log_prob.astype(np.float64)
    close(y, reward + discount * (1.0 - terminated) * next_value, 1)
    y = result("value_target", (reward, discount, terminated, q), (batch,))
    close(y, reward + discount * (1.0 - terminated) * lowest, 1)


@CRITICS
def test_the_losses_of_critics_and_of_their_actor(count, batch):
    q, target, log_prob, alpha = critic_draws(count, batch)
    dloss = np.array(-1.5, np.float32)
    loss, mean = result("critic_loss", (q, target), (), ())
    errors = q.astype(np.float64) - target
    close((loss, mean), ((0.5 * errors**2).sum(axis=0).mean(), q[0].mean()), count)
    close(result("critic_loss_gradient", (q, target, dloss), q.shape), -1.5 * errors / batch, 1)

    # Of equal values the last one has the gradient.
    q[-1, 0] = q[:, 0].min()
    chosen = count - 1 - q[::-1].argmin(axis=0)
    loss, mean = result("soft_policy_loss", (q, log_prob, alpha), (), ())
    close((loss, mean), ((alpha * log_prob - q.min(axis=0)).mean(), log_prob.mean()), 1)
    dq, dlog_prob = result("soft_policy_loss_gradient", (q, log_prob, alpha, dloss), q.shape, (batch,))
    close(dq, (np.arange(count)[:, None] == chosen) * (1.5 / batch), 1)
    close(dlog_prob, np.full(batch, -1.5 * 0.3 / batch), 1)


@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_nan_in_a_value_reaches_target_and_losses(where):
    q, log_prob, _, alpha = critic_draws(3, 5)
    (log_prob if where == 3 else q[where])[2] = np.nan
    zeros, ones = np.zeros(5, np.float32), np.ones(5, np.float32)
    y = result("soft_target", (zeros, ones, zeros, q, log_prob, alpha), (5,))
    assert np.isnan(y).tolist() == [False, False, True, False, False]
    y = result("value_target", (zeros, ones, zeros, q), (5,))
    assert np.isnan(y).tolist() == [False, False, where < 3, False, False]
    assert np.isnan(result("critic_loss", (q, log_prob), (), ())[0])
    assert np.isnan(result("soft_policy_loss", (q, log_prob, alpha), (), ())[0])


@pytest.mark.parametrize("activation", VALUE)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_nan_in_any_input_reaches_the_result(where, activation):
    arrays = draws(5, (7, 40), (20, 40), (20,))
    arrays[where].flat[0] = np.nan
    y = result(f"linear_{activation}", arrays, (7, 20))
    assert np.isnan(y[0, 0])
    assert np.isnan(result(f"linear_{activation}_input_gradient", (y, y, arrays[1]), (7, 40))).any()


def test_tanh_is_exact_to_the_last_bits_everywhere():
    x = np.concatenate([np.linspace(-12, 12, 100001), np.linspace(-1, 1, 100001), [1e-20, -1e-30, 0.0]])
    x = x.astype(np.float32)[:, None]
    one, zero = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    y = result("linear_tanh", (x, one, zero), x.shape)
    np.testing.assert_allclose(y, np.tanh(x.astype(np.float64)), rtol=2e-7, atol=0)
    edges = np.array([[np.inf], [-np.inf], [1e30], [np.nan]], np.float32)
    assert np.array_equal(result("linear_tanh", (edges, one, zero), (4, 1))[:, 0], [1, -1, 1, np.nan], equal_nan=True)


def test_fields_are_taken_out_of_their_columns():
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    numbers, columns = np.array([9, 0, 0, 4], np.int32), np.array([1, 0, 4], np.int32)
    pair, one, whole = np.zeros((4, 2), np.float32), np.zeros(4, np.int32), np.zeros((4, 1, 2), np.float32)
    assert run("take_fields", numbers, columns, table, pair, one, whole) == 0
    assert np.array_equal(pair, table[numbers, 1:3])
    assert np.array_equal(one, table[numbers, 0].astype(np.int32))
    assert np.array_equal(whole[:, 0], table[numbers, 4:])


@pytest.mark.parametrize("number", [-1, 10])
def test_a_row_that_is_not_there_is_an_error(number):
    field = np.zeros(2, np.float32)
    numbers = np.array([0, number], np.int32)
    assert run("take_fields", numbers, np.zeros(1, np.int32), np.zeros((10, 1), np.float32), field) != 0


def test_numbers_are_clipped_and_the_gradient_passes_between():
    x = np.array([-3, -2, 0.5, 1, 1.5, np.inf, np.nan], np.float32)
    bounds, dout = np.array([-2, 1], np.float32), np.arange(1, 8, dtype=np.float32)
    assert np.array_equal(result("clip", (x, bounds), (7,)), [-2, -2, 0.5, 1, 1, 1, np.nan], equal_nan=True)
    assert result("clip_gradient", (dout, x, bounds), (7,)).tolist() == [0, 2, 3, 4, 0, 0, 7]


def log_prob(u, log_std, noise):
    """In float64, with the density of the change of variables as it stands."""
    normal = -log_std - 0.5 * noise**2 - 0.5 * np.log(2 * np.pi)
    return (normal - 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))).sum(-1)


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_the_tanh_normal_and_its_gradient(spread):
    mean, log_std, noise, daction, dlog = draws(8, (12, 3), (12, 3), (12, 3), (12, 3), (12,))
    mean *= spread
    action, log = result("squash", (mean, log_std, noise), (12, 3), (12,))
    mean64, log_std64, noise64 = doubles((mean, log_std, noise))
    u = mean64 + np.exp(log_std64) * noise64
    np.testing.assert_allclose(action, np.tanh(u), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log, log_prob(u, log_std64, noise64), rtol=1e-5, atol=1e-5)

    def objective(mean, log_std):
        u = mean + np.exp(log_std) * noise64
        return (daction * np.tanh(u)).sum(-1) + dlog * log_prob(u, log_std, noise64)

    dmean, dlog_std = result("squash_gradient", (action, log_std, noise, daction, dlog), (12, 3), (12, 3))
    for k in range(3):
        step = np.zeros(3)
        step[k] = 1e-5
        by_mean = (objective(mean64 + step, log_std64) - objective(mean64 - step, log_std64)) / 2e-5
        by_log_std = (objective(mean64, log_std64 + step) - objective(mean64, log_std64 - step)) / 2e-5
        np.testing.assert_allclose(dmean[:, k], by_mean, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(dlog_std[:, k], by_log_std, rtol=2e-4, atol=2e-4)
