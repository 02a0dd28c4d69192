"""What ReLU leaves: products without its zeros, and with its slope, which is zero or one."""

import numpy as np
import pytest
from fakes import needs_kernels
from kernel_calls import WITH_ONEDNN, close, defaults_afterwards, draws, result

from minding.policies import kernels

pytestmark = [needs_kernels, pytest.mark.usefixtures("defaults_afterwards")]
__all__ = ["defaults_afterwards"]
SIZES = (
    # batch, inputs, hidden: 2^20 multiplications and more; edges of vectors (8), groups (64), strips (32, 64, 128), and
    # blocks of a mask (32) and of a sum (256).
    (256, 256, 256), (129, 97, 131), (300, 65, 67), (90, 300, 70), (70, 600, 90), (257, 71, 127), (65, 520, 64),
    (32, 1024, 128), (33, 200, 170),
)  # fmt: skip
RANDOM = np.random.default_rng(1).integers(100, 330, (6, 3)).tolist()


def relu(x):
    return np.maximum(x, 0.0)


def sparse(seed, rows, columns, share=0.5):
    """Numbers of which `share` are not zero, negative ones among them."""
    (x,) = draws(seed, (rows, columns))
    x[np.random.default_rng(seed).random(x.shape) > share] = 0.0
    return x


@pytest.mark.parametrize("sizes", [*SIZES, *RANDOM], ids=str)
def test_to_leave_zeros_out_changes_no_bit(sizes):
    """A product whose sample of rows, every eighth one, is full is computed with all zeros."""
    batch, inputs, outputs = sizes
    x = sparse(0, batch, inputs)
    weight, bias, full = draws(1, (outputs, inputs), (outputs,), (batch, inputs))
    weight /= np.float32(np.sqrt(inputs))
    sampled = np.arange(batch) % 8 == 0
    others = np.where(sampled[:, None], full, x)
    for activation in ("none", "relu", "tanh"):
        name = f"linear_{activation}"
        y, dense = (result(name, (rows, weight, bias), (batch, outputs)) for rows in (x, others))
        assert y[~sampled].tobytes() == dense[~sampled].tobytes()
        value = {"none": lambda x: x, "relu": relu, "tanh": np.tanh}[activation]
        close(y, value(x.astype(np.float64) @ weight.astype(np.float64).T + bias), inputs)
    # Back: the gradient before the activation is what has zeros.
    (back,) = draws(2, (inputs, outputs))
    dx, dense = (result("linear_none_input_gradient", (rows, rows, back), (batch, outputs)) for rows in (x, others))
    assert dx[~sampled].tobytes() == dense[~sampled].tobytes()
    close(dx, x.astype(np.float64) @ back.astype(np.float64), inputs)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.59, 0.61, 1.0])
@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
def test_products_are_right_however_many_zeros_there_are(share, onednn):
    kernels.use_onednn(onednn)
    x = sparse(3, 200, 150, share)
    weight, bias = draws(4, (120, 150), (120,))
    y = result("linear_none", (x, weight, bias), (200, 120))
    close(y, x.astype(np.float64) @ weight.astype(np.float64).T + bias, 150)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
def test_what_is_not_finite_is_not_left_out_with_a_zero(onednn, bad):
    kernels.use_onednn(onednn)
    x = sparse(5, 256, 256, 0.4)
    weight, bias = draws(6, (256, 256), (256,))
    weight[3, 11] = bad
    x[7] = 0.0
    y = result("linear_none", (x, weight, bias), (256, 256))
    assert np.isnan(y[7, 3])
    assert not np.isfinite(y[:, 3]).any()
    x[9, 200] = bad
    weight[3, 11] = 1.0
    y = result("linear_none", (x, weight, bias), (256, 256))
    assert not np.isfinite(y[9]).any()
    assert np.isfinite(np.delete(y, 9, axis=0)).all()


def forward_and_back(x, weight, bias, second, second_bias, dout):
    """Of a ReLU layer and a layer of one output: results, and gradients of the inputs and of the parameters."""
    y, between = result("relu_then_scalar", (x, weight, bias, second, second_bias), dout.shape, (len(x), len(weight)))
    dx = result("relu_then_scalar_input_gradient", (dout, y, between, weight, second), x.shape)
    shapes = (weight.shape, bias.shape, second.shape, second_bias.shape)
    return y, between, dx, *result("relu_then_scalar_parameter_gradient", (dout, y, between, x, second), *shapes)


def test_a_relu_layer_and_the_next_by_hand():
    x, weight = np.array([[1, 2], [3, -1]], np.float32), np.array([[1, 1], [1, -1]], np.float32)
    bias, second, second_bias = np.zeros(2, np.float32), np.array([[2, 3]], np.float32), np.array([10], np.float32)
    dout = np.array([1, -1], np.float32)
    y, between, dx, dweight, dbias, dsecond, dsecond_bias = forward_and_back(x, weight, bias, second, second_bias, dout)
    assert (y.tolist(), between.tolist()) == ([16.0, 26.0], [[3.0, 0.0], [2.0, 4.0]])
    # Of the first row only the first unit passes anything on: 2 (1, 1); of the second both: -2 (1, 1) - 3 (1, -1).
    assert dx.tolist() == [[2.0, 2.0], [-5.0, 1.0]]
    assert dweight.tolist() == [[-4.0, 6.0], [-9.0, 3.0]]
    assert (dbias.tolist(), dsecond.tolist(), dsecond_bias.tolist()) == ([0.0, -3.0], [[1.0, -4.0]], [0.0])


@pytest.mark.parametrize("where", ["x", "weight"])
def test_what_is_not_finite_is_not_hidden_by_zeros_of_a_mask(where):
    """As in any other product: zero times infinity is no number."""
    shapes = ((256, 256), (256, 256), (256,), (1, 256), (1,), (256,))
    x, weight, bias, second, second_bias, dout = draws(10, *shapes)
    if where == "x":
        weight[:, 7], x[5, 7] = np.abs(weight[:, 7]), -np.inf
    else:
        x[:, 11], weight[3, 11] = np.abs(x[:, 11]), -np.inf
    y, between, dx, dweight, *_ = forward_and_back(x, weight, bias, second, second_bias, dout)
    assert np.isfinite(y).all()
    assert not (between[5] if where == "x" else between[:, 3]).any()
    assert np.isnan(dweight[:, 7] if where == "x" else dx[:, 11]).all()
