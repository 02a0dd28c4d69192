"""Common operations in forms of which MindSpore's compiler keeps no memory, and the order of writes (compiled).

Many functions of MindSpore, such as `Tensor.mean`, `ops.zeros` and indexing by a tensor, are Python code that is
compiled with the graph that calls them. When this graph is freed, a copy stays in the process: 20 to 380 KB per graph.
The primitives used here leave nothing and compute the same.

Observations of B sequences of T steps are tuples of leaves, as rows (T B, ...) ordered by time or as arrays
(T, B, ...).
"""

from typing import Any

from minding.engine.process.runtime import functional, ops


def after(value, done):
    """`value`, which is computed or read only after `done`.

    MindSpore orders kernels by their data. An optimizer's step writes into the parameters, but no data of a later
    forward pass in the same compiled call depends on it, so the pass may read the weights from before the step. With
    ``net(after(obs, norm))`` it reads the weights from after the step, with this package's kernels and without.
    """
    return ops.depend(value, done)


def tanh(x):
    """tanh(x) = 2 sigmoid(2x) - 1, accurate to 2e-6. MindSpore's own tanh on CPU is a rational approximation, off by up
    to 1e-4 where ``3 < |x|``, and its gradient 1 - tanh(x)^2 by twice that."""
    return 2.0 * ops.Sigmoid()(2.0 * x) - 1.0


def named(names, values):
    """A dict from tuples of names and of values; `dict(zip(...))` has no gradient."""
    return functional.make_dict(names, values)


def item(values, k):
    """values[k] of a tuple, for a Python number k."""
    return functional.tuple_getitem(values, k)


def entry(x, i):
    """x[i] for a scalar int32 Tensor i: (K, ...) -> (...)."""
    return ops.Gather()(x, i, 0)


def with_entry(x, i, value):
    """x (K, ...) with x[i] = value, for a scalar int32 Tensor i."""
    return ops.TensorScatterUpdate()(x, ops.ExpandDims()(ops.ExpandDims()(i, 0), 0), ops.ExpandDims()(value, 0))


def part(x, start, count):
    """x[start : start + count], for Python numbers."""
    begin: Any = (start,)
    for _ in x.shape[1:]:
        begin = (*begin, 0)
    return ops.Slice()(x, begin, (count, *x.shape[1:]))


def mean(x):
    """The mean of all entries of x (B,); a scalar is returned unchanged."""
    return x if x.ndim == 0 else ops.ReduceMean()(x, 0)


def largest(x, keepdims=False):
    """The largest entry along the last axis: (B, A) -> (B,), or (B, 1) with `keepdims`."""
    return ops.ReduceMax(keepdims)(x, -1)


def stacked(scalars):
    """A tuple of n scalars as one array ``(n,)``."""
    return ops.Stack(0)(scalars)


def in_time(leaves, count):
    """(T B, ...) -> (T, B, ...); `count` is B, a Python number."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Reshape()(x, (-1, count, *x.shape[1:])))
    return made


def as_rows(leaves):
    """Leaves with one row per step, or per agent: (T, B, ...) -> (T B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Reshape()(x, (-1, *x.shape[2:])))
    return made


def parts(leaves, start, count):
    """`count` steps, beginning with step `start`: (T, B, ...) -> (count, B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, part(x, start, count))
    return made


def at_first(leaves):
    """The first step: (T, B, ...) -> (B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Squeeze(0)(part(x, 0, 1)))
    return made


def step_before(x):
    """x (T, N) shifted by one step: each row holds the previous row of x, and the first row is 0."""
    none = ops.ZerosLike()(part(x, 0, 1))
    return none if x.shape[0] == 1 else ops.Concat(0)((none, part(x, 0, x.shape[0] - 1)))


def step_after(x):
    """x (T, N) shifted by one step: each row holds the next row of x, and the last row is 0."""
    none = ops.ZerosLike()(part(x, 0, 1))
    return none if x.shape[0] == 1 else ops.Concat(0)((part(x, 1, x.shape[0] - 1), none))
