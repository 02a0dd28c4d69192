"""Layers and whole networks as one kernel each, for learning on CPU.

MindSpore's chain of product, bias and activation takes three kernels, its gradient four, each of them a launch and a
pass over memory, and its BiasAdd, ReLU and BiasAddGrad are scalar loops. With the kernels of `minding.policies.kernels`
it is one and two, and so it is for a network of the usual form: two hidden layers and heads. (A gradient function of
MindSpore has a fixed number of arguments.)
"""

from __future__ import annotations

import functools
from typing import Any

from minding.engine.process.runtime import nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.networks.actor_critic import ActionValue, SquashedActor
from minding.policies.networks.layers import MLP, Clip, Linear, ScalarLinear
from minding.policies.networks.recurrent import GRU


@functools.cache
def fused_linear(activation: str) -> Any:
    """The primitive ``(x, weight, bias) -> activation(x W^T + b)`` with its gradient; see `Linear` for the shapes.

    Args:
      activation: 'none', 'relu' or 'tanh'; 'scalar' is none, with the result of a `ScalarLinear`.
    """
    # MindSpore distinguishes primitives by name: the scalar kernel is the one without activation under another name.
    name, scalar = f"linear_{activation}", activation == "scalar"
    input_gradient = _input_gradient(name)
    parameter_gradient = kernel(
        f"{name}_parameter_gradient",
        lambda dout, out, x: ((1, x[1]), (1,)) if scalar else ((dout[1], x[1]), (dout[1],)),
        lambda dout, out, x: (dout, dout),
    )

    def gradient(x, weight, bias, out, dout):
        dweight, dbias = parameter_gradient(dout, out, x)
        return input_gradient(dout, out, weight), dweight, dbias

    return kernel(
        name,
        lambda x, weight, bias: (x[0],) if scalar else (x[0], weight[0]),
        lambda x, weight, bias: x,
        gradient,
    )


@functools.cache
def _input_gradient(name: str) -> Any:
    """The gradient ``(gradient of the result, result, weight) -> that of x`` of the linear layer `name`."""
    return kernel(
        f"{name}_input_gradient", lambda dout, out, weight: (dout[0], weight[1]), lambda dout, out, weight: dout
    )


@functools.cache
def fused_two_layers(activation: str) -> Any:
    """The primitive ``(x, weight, bias, weight, bias) -> results of both layers`` with its gradient for the second.

    Args:
      activation: 'relu' or 'tanh', after each layer.
    """
    name = f"mlp_{activation}"
    slopes_of = kernel(
        f"{name}_slopes",
        lambda dout, first, second, weight: (first, second),
        lambda dout, first, second, weight: (first, second),
    )
    parameter_gradients = kernel(
        "mlp_parameters",
        lambda x, first, slope1, slope2: ((slope1[1], x[1]), (slope1[1],), (slope2[1], first[1]), (slope2[1],)),
        lambda x, first, slope1, slope2: (x, x, x, x),
    )
    input_gradient = _input_gradient("linear_none")

    def gradient(x, weight1, bias1, weight2, bias2, out, dout):
        slope1, slope2 = slopes_of(dout[1], out[0], out[1], weight2)
        dweight1, dbias1, dweight2, dbias2 = parameter_gradients(x, out[0], slope1, slope2)
        return input_gradient(slope1, slope1, weight1), dweight1, dbias1, dweight2, dbias2

    return kernel(
        name,
        lambda x, weight1, bias1, weight2, bias2: ((x[0], weight1[0]), (x[0], weight2[0])),
        lambda x, weight1, bias1, weight2, bias2: (x, x),
        gradient,
    )


@functools.cache
def fused_action_value(activation: str) -> Any:
    """The primitive ``(features, action, weight and bias of two hidden layers and of the value) -> results of the
    layers`` with its gradient for the value; see `ActionValue`.

    Args:
      activation: 'relu' or 'tanh', after each hidden layer.
    """
    name = f"action_value_{activation}"
    slopes_of = kernel(
        f"{name}_slopes",
        lambda dvalue, first, second, weight2, weight3: (first, second),
        lambda dvalue, first, second, weight2, weight3: (first, second),
    )
    parameter_gradients = kernel(
        "action_value_parameters",
        lambda x, action, first, second, slope1, slope2, dvalue: (
            *((slope1[1], x[1] + action[1]), (slope1[1],), (slope2[1], first[1]), (slope2[1],)),
            *((1, second[1]), (1,)),
        ),
        lambda x, action, first, second, slope1, slope2, dvalue: (x, x, x, x, x, x),
    )
    features_gradient = kernel(
        "action_value_features_gradient",
        lambda slope, weight, action: (slope[0], weight[1] - action[1]),
        lambda slope, weight, action: slope,
    )
    action_gradient = kernel(
        "action_value_action_gradient", lambda slope, weight, action: action, lambda slope, weight, action: slope
    )

    def gradient(x, action, weight1, bias1, weight2, bias2, weight3, bias3, out, dout):
        slope1, slope2 = slopes_of(dout[2], out[0], out[1], weight2, weight3)
        params = parameter_gradients(x, action, out[0], out[1], slope1, slope2, dout[2])
        return features_gradient(slope1, weight1, action), action_gradient(slope1, weight1, action), *params

    return kernel(
        name,
        lambda x, action, weight1, bias1, weight2, bias2, weight3, bias3: (
            (x[0], weight1[0]),
            (x[0], weight2[0]),
            (x[0],),
        ),
        lambda x, action, weight1, bias1, weight2, bias2, weight3, bias3: (x, x, x),
        gradient,
    )


@functools.cache
def fused_squashed_actor(activation: str) -> Any:
    """The primitive ``(features, weight and bias of two hidden layers, of mean and of log deviation, bounds of that) ->
    results of the layers, the log deviation before and after the bounds`` with its gradient for mean and bounded log
    deviation; see `SquashedActor`.

    Args:
      activation: 'relu' or 'tanh', after each hidden layer.
    """
    name = f"squashed_actor_{activation}"
    slopes_of = kernel(
        f"{name}_slopes",
        lambda dmean, dlog_std, log_std, bounds, first, second, weight2, weight3, weight4: (first, second, log_std),
        lambda dmean, dlog_std, log_std, bounds, first, second, weight2, weight3, weight4: (first, second, log_std),
    )
    parameter_gradients = kernel(
        "squashed_actor_parameters",
        lambda x, first, second, slope1, slope2, dmean, dlog_std: (
            *((slope1[1], x[1]), (slope1[1],), (slope2[1], first[1]), (slope2[1],)),
            *((dmean[1], second[1]), (dmean[1],), (dmean[1], second[1]), (dmean[1],)),
        ),
        lambda x, first, second, slope1, slope2, dmean, dlog_std: (x, x, x, x, x, x, x, x),
    )
    features_gradient = _input_gradient("linear_none")

    def gradient(x, weight1, bias1, weight2, bias2, weight3, bias3, weight4, bias4, bounds, out, dout):
        slope1, slope2, dlog_std = slopes_of(
            dout[2], dout[4], out[3], bounds, out[0], out[1], weight2, weight3, weight4
        )
        params = parameter_gradients(x, out[0], out[1], slope1, slope2, dout[2], dlog_std)
        return features_gradient(slope1, slope1, weight1), *params, ops.ZerosLike()(bounds)

    return kernel(
        name,
        lambda x, weight1, bias1, weight2, bias2, weight3, bias3, weight4, bias4, bounds: (
            *((x[0], weight1[0]), (x[0], weight2[0])),
            *((x[0], weight3[0]), (x[0], weight4[0]), (x[0], weight4[0])),
        ),
        lambda x, weight1, bias1, weight2, bias2, weight3, bias3, weight4, bias4, bounds: (x, x, x, x, x),
        gradient,
    )


@functools.cache
def fused_gru() -> Any:
    """The primitive ``(W x + b, begun, first rows, U, c) -> new rows, rows before, gates`` of all steps of sequences,
    with its gradient for the new rows; see `GRU.unroll`."""
    slopes_of = kernel(
        "gru_slopes",
        lambda drows, before, gates, begun, rows, weight: (
            *((drows[0], weight[0]), (drows[0], weight[0])),
            rows,
        ),
        lambda drows, before, gates, begun, rows, weight: (drows, drows, drows),
    )
    parameter_gradient = kernel(
        "linear_none_parameter_gradient",
        lambda dout, out, x: ((dout[1], x[1]), (dout[1],)),
        lambda dout, out, x: (dout, dout),
    )

    def gradient(given, begun, rows, weight, bias, out, dout):
        dgiven, dkept, drows = slopes_of(dout[0], out[1], out[2], begun, rows, weight)
        dweight, dbias = parameter_gradient(dkept, dkept, out[1])
        return dgiven, ops.zeros_like(begun), drows, dweight, dbias

    return kernel(
        "gru",
        lambda given, begun, rows, weight, bias: (
            *((given[0], rows[1]), (given[0], rows[1])),
            (given[0], 4 * rows[1]),
        ),
        lambda given, begun, rows, weight, bias: (given, given, given),
        gradient,
    )


@functools.cache
def fused_clip() -> Any:
    """The primitive ``(x, bounds) -> x within the bounds`` with its gradient; see `Clip`."""
    slope = kernel("clip_gradient", lambda dout, x, bounds: x, lambda dout, x, bounds: x)

    def gradient(x, bounds, out, dout):
        return slope(dout, x, bounds), ops.ZerosLike()(bounds)

    return kernel("clip", lambda x, bounds: x, lambda x, bounds: x, gradient)


def fuse_layers(root: nn.Cell) -> None:
    """Lets all layers and networks under `root` that have a fused form use it on CPU.

    Call it before anything is compiled.
    """
    if not usable():
        return
    cells = [cell for _, cell in root.cells_and_names()]
    for cell in cells:
        if isinstance(cell, Linear):
            cell.fused = fused_linear("scalar" if isinstance(cell, ScalarLinear) else "none")
    for cell in cells:
        if isinstance(cell, ActionValue) and len(cell.torso.layers) == 2:
            cell.fused = fused_action_value(cell.torso.activation_name)
        elif isinstance(cell, SquashedActor) and len(cell.torso.layers) == 2:
            cell.fused = fused_squashed_actor(cell.torso.activation_name)
        elif isinstance(cell, MLP) and len(cell.layers) == 2:
            cell.fused = fused_two_layers(cell.activation_name)
        elif isinstance(cell, GRU):
            cell.fused = fused_gru()
        elif isinstance(cell, Clip):
            cell.fused = fused_clip()
        elif isinstance(cell, MLP):
            cell.layers_activate = True
            for layer in cell.layers:
                layer.fused = fused_linear(cell.activation_name)


def plain_layers(root: nn.Cell) -> None:
    """Undoes `fuse_layers` for graphs that are compiled from now on, such as those for export."""
    for _, cell in root.cells_and_names():
        if getattr(cell, "fused", None) is not None:
            cell.fused = None
        if isinstance(cell, MLP):
            cell.layers_activate = False
