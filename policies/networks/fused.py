"""Layers as kernels of this package, for learning on CPU.

MindSpore's chain of product, bias and activation takes three kernels, and its gradient four. Each of them is a launch
and a pass over memory, and BiasAdd, ReLU and BiasAddGrad are scalar loops. With the kernels of
`minding.policies.kernels`, the chain takes one kernel and its gradient two. (A gradient function of MindSpore has a
fixed number of arguments.)

Kernels of whole networks, with two hidden layers and their heads in one, would save 3 % of an update of DQN and PPO and
4 % of an update of SAC, which is too little for code that depends on the number of layers.
"""

import functools
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.networks.encoder import ConvNet, ImageDecoder
from minding.policies.networks.layers import MLP, Clip, Dropout, LayerNorm, Linear
from minding.policies.networks.policy_value import ResidualTower
from minding.policies.networks.recurrent import GRU, LSTM
from minding.policies.networks.team_networks import MonotonicMixer


@functools.cache
def fused_linear(activation: str) -> Any:
    """The primitive ``(x, weight, bias) -> activation(x W^T + b)`` with its gradient; see `Linear` for the
    shapes."""
    # MindSpore distinguishes primitives by name, so the scalar kernel is the kernel without activation under another
    # name.
    name, scalar = f"linear_{activation}", activation == "scalar"
    input_gradient = _input_gradient(name)
    parameter_gradient = kernel(
        f"{name}_parameter_gradient",
        lambda dout, out, x: ((1, x[1]), (1,)) if scalar else ((dout[1], x[1]), (dout[1],)),
        2,
    )

    def gradient(x, weight, bias, out, dout):
        dweight, dbias = parameter_gradient(dout, out, x)
        return input_gradient(dout, out, weight), dweight, dbias

    return kernel(name, lambda x, weight, bias: (x[0],) if scalar else (x[0], weight[0]), 1, gradient)


@functools.cache
def fused_norm(activation: str) -> Any:
    """The primitive ``(x, weight, bias) -> activation(normalized x)`` with its gradient; see `LayerNorm`."""
    slopes_of = kernel(f"norm_{activation}_gradient", lambda dout, out, x, weight: (x, weight, weight), 3)

    def gradient(x, weight, bias, out, dout):
        return slopes_of(dout, out, x, weight)

    return kernel(f"norm_{activation}", lambda x, weight, bias: x, 1, gradient)


@functools.cache
def fused_relu_then(name: str) -> Any:
    """The primitive ``(x, weight, bias, W, c) -> head(relu(x weight^T + bias)), result of the first layer``: a ReLU
    layer followed by a linear layer, the head, with weights W and bias c. The first result has a gradient.

    For x ``(B, I)``, weight ``(H, I)``, bias ``(H,)``, W ``(O, H)`` and c ``(O,)`` the results are ``(B, O)``, or
    ``(B,)`` for a `ScalarLinear`, and ``(B, H)``. Large products of the gradient skip the numbers that the ReLU set to
    0, see docs/kernels.md.
    """
    name, scalar = f"relu_then_{name}", name == "scalar"
    input_gradient = kernel(
        f"{name}_input_gradient", lambda dout, out, between, weight, second: (between[0], weight[1])
    )
    parameter_gradient = kernel(
        f"{name}_parameter_gradient",
        lambda dout, out, between, x, second: ((between[1], x[1]), (between[1],), second, (second[0],)),
        4,
    )

    def gradient(x, weight, bias, second, second_bias, out, dout):
        dweight, dbias, dsecond, dsecond_bias = parameter_gradient(dout[0], out[0], out[1], x, second)
        return input_gradient(dout[0], out[0], out[1], weight, second), dweight, dbias, dsecond, dsecond_bias

    return kernel(
        name,
        lambda x, weight, bias, second, second_bias: ((x[0],) if scalar else (x[0], second[0]), (x[0], weight[0])),
        2,
        gradient,
    )


@functools.cache
def fused_convolution(stride: int, padding: int, place: str, activation: str) -> Any:
    """The primitive ``(geometry, x, weight, bias) -> activation(convolution)`` with its gradient, and its geometry.
    Between convolutions channels are last. The images of an observation, uint8 or float32 ``(B, C, H, W)``, have no
    gradient; a result that leaves the convolutions is ``(B, O, H, W)``."""
    first, last = place in ("first", "only"), place in ("last", "only")
    geometry = ms.Tensor(np.array([stride, padding, not first, not last, activation == "relu"], np.int32))

    def size(image, weight):
        rows, columns = image[2:] if first else image[1:3]
        return tuple((side + 2 * padding - weight[2]) // stride + 1 for side in (rows, columns))

    def shape(geometry, x, weight, bias):
        return (x[0], weight[0], *size(x, weight)) if last else (x[0], *size(x, weight), weight[0])

    parameter_gradient = kernel(
        "convolve_parameter_gradient",
        lambda geometry, dout, out, x, weight: (weight, weight[:1]),
        lambda geometry, dout, out, x, weight: (weight, weight),
    )
    input_gradient = kernel(
        "convolve_input_gradient",
        lambda geometry, dout, out, x, weight: x,
        lambda geometry, dout, out, x, weight: weight,
    )

    def gradient(geometry, x, weight, bias, out, dout):
        dweight, dbias = parameter_gradient(geometry, dout, out, x, weight)
        if first:
            dx = ops.zeros_like(x)
        else:
            dx = input_gradient(geometry, dout, out, x, weight)
        return ops.zeros_like(geometry), dx, dweight, dbias

    primitive = kernel("convolve", shape, lambda geometry, x, weight, bias: weight, gradient)
    return primitive, geometry


@functools.cache
def fused_transposed_convolution(size: tuple[int, int], stride: int, place: str, activation: str) -> Any:
    """The primitive ``(geometry, x, weight, bias) -> activation(transposed convolution)`` with its gradient, and its
    geometry. Between convolutions channels are last; the first takes ``(B, O, rows, columns)``, and the last returns
    ``(B, C, H, W)``."""
    first, last = place in ("first", "only"), place in ("last", "only")
    geometry = ms.Tensor(np.array([stride, 0, not last, not first, activation == "relu"], np.int32))

    def shape(geometry, x, weight, bias):
        return (x[0], weight[1], *size) if last else (x[0], *size, weight[1])

    name = "convolve_transposed"
    parameter_gradient = kernel(
        f"{name}_parameter_gradient",
        lambda geometry, dout, out, x, weight: (weight, weight[1:2]),
        lambda geometry, dout, out, x, weight: (weight, weight),
    )
    input_gradient = kernel(
        f"{name}_input_gradient",
        lambda geometry, dout, out, x, weight: x,
        lambda geometry, dout, out, x, weight: weight,
    )

    def gradient(geometry, x, weight, bias, out, dout):
        dweight, dbias = parameter_gradient(geometry, dout, out, x, weight)
        return ops.zeros_like(geometry), input_gradient(geometry, dout, out, x, weight), dweight, dbias

    return kernel(name, shape, lambda geometry, x, weight, bias: weight, gradient), geometry


@functools.cache
def _input_gradient(name: str) -> Any:
    """The primitive ``(gradient of the result, result, weight) -> gradient of x`` of the linear layer `name`."""
    return kernel(f"{name}_input_gradient", lambda dout, out, weight: (dout[0], weight[1]))


@functools.cache
def _parameter_gradient() -> Any:
    """The primitive ``(gradient of the result, result, x) -> gradients of weight and bias`` of a layer without
    activation."""
    return kernel("linear_none_parameter_gradient", lambda dout, out, x: ((dout[1], x[1]), (dout[1],)), 2)


@functools.cache
def fused_gru() -> Any:
    """The primitive ``(W x + b, begun, first rows, U, c) -> new rows, rows before, gates`` of all steps of sequences,
    with the gradient of the new rows; see `GRU.unroll`."""
    slopes_of = kernel(
        "gru_slopes", lambda drows, before, gates, begun, rows, weight: (*[(drows[0], weight[0])] * 2, rows), 3
    )

    def gradient(given, begun, rows, weight, bias, out, dout):
        dgiven, dkept, drows = slopes_of(dout[0], out[1], out[2], begun, rows, weight)
        dweight, dbias = _parameter_gradient()(dkept, dkept, out[1])
        return dgiven, ops.zeros_like(begun), drows, dweight, dbias

    return kernel(
        "gru",
        lambda given, begun, rows, weight, bias: (*[(given[0], rows[1])] * 2, (given[0], 4 * rows[1])),
        3,
        gradient,
    )


@functools.cache
def fused_lstm() -> Any:
    """The primitive ``(W x + b, begun, first rows, U, c) -> new states, states before, cells before, gates`` of all
    steps of sequences, with the gradient of the new states; see `LSTM.unroll`."""
    slopes_of = kernel(
        "lstm_slopes", lambda dstates, cells, gates, begun, rows, weight: ((dstates[0], weight[0]), rows), 2
    )

    def gradient(given, begun, rows, weight, bias, out, dout):
        dgiven, drows = slopes_of(dout[0], out[2], out[3], begun, rows, weight)
        dweight, dbias = _parameter_gradient()(dgiven, dgiven, out[1])
        return dgiven, ops.zeros_like(begun), drows, dweight, dbias

    return kernel(
        "lstm",
        lambda given, begun, rows, weight, bias: (*[(given[0], weight[1])] * 3, (given[0], 5 * weight[1])),
        4,
        gradient,
    )


@functools.cache
def fused_clip() -> Any:
    """The primitive ``(x, bounds) -> x clipped to the bounds`` with its gradient; see `Clip`."""
    slope = kernel("clip_gradient", lambda dout, x, bounds: x)

    def gradient(x, bounds, out, dout):
        return slope(dout, x, bounds), ops.ZerosLike()(bounds)

    return kernel("clip", lambda x, bounds: x, 1, gradient)


@functools.cache
def fused_dropout() -> Any:
    """The primitive ``(x, position, threshold, factor) -> x without the dropped numbers`` with its gradient; see
    `Dropout`."""
    name, shape = "dropout", lambda x, *others: x
    slope = kernel(name, shape)

    def gradient(x, position, threshold, factor, out, dout):
        none = ops.ZerosLike()
        return slope(dout, position, threshold, factor), none(position), none(threshold), none(factor)

    return kernel(name, shape, 1, gradient)


@functools.cache
def fused_mix() -> Any:
    """The primitive ``(q, first weights, first bias, second weights, second bias) -> value of the team`` with its
    gradient; see `MonotonicMixer`."""
    slopes_of = kernel("mix_gradient", lambda dout, q, weight1, bias1, weight2: (q, weight1, bias1, weight2), 4)

    def gradient(q, weight1, bias1, weight2, bias2, out, dout):
        dq, dweight1, dbias1, dweight2 = slopes_of(dout, q, weight1, bias1, weight2)
        return dq, dweight1, dbias1, dweight2, dout

    return kernel("mix", lambda q, weight1, bias1, weight2, bias2: bias2, 1, gradient)


def fuse_layers(root: nn.Cell) -> None:
    """Makes all layers under `root` use their fused form, if they have one, on CPU. Call this before anything is
    compiled."""
    if not usable():
        return
    cells = [cell for _, cell in root.cells_and_names()]
    for cell in cells:
        if isinstance(cell, Linear):
            cell.fused = fused_linear(cell.kernel)
            cell.fused_after_relu = fused_relu_then(cell.kernel)
    for cell in cells:
        if isinstance(cell, GRU):
            cell.fused = fused_gru()
        elif isinstance(cell, LSTM):
            cell.fused = fused_lstm()
        elif isinstance(cell, MonotonicMixer):
            cell.fused = fused_mix()
        elif isinstance(cell, Clip):
            cell.fused = fused_clip()
        elif isinstance(cell, Dropout):
            cell.fused = fused_dropout()
        elif isinstance(cell, LayerNorm):
            cell.fused = fused_norm("none")
        elif isinstance(cell, ConvNet):
            cell.fuse(fused_convolution, fused_linear("relu"))
        elif isinstance(cell, ImageDecoder):
            cell.fuse(fused_transposed_convolution, fused_linear("relu"))
        elif isinstance(cell, ResidualTower):
            cell.fuse(fused_convolution)
    for cell in cells:
        if isinstance(cell, MLP) and cell.fusible:
            cell.layers_activate = True
            for layer in cell.norms or cell.layers:
                layer.fused = (fused_norm if cell.norms else fused_linear)(cell.activation_name)


def plain_layers(root: nn.Cell) -> None:
    """Undoes `fuse_layers` for graphs that are compiled from now on, such as graphs for export."""
    for _, cell in root.cells_and_names():
        if getattr(cell, "fused", None) is not None:
            cell.fused = None
        if isinstance(cell, Linear):
            cell.fused_after_relu = None
        if isinstance(cell, MLP):
            cell.layers_activate = False
