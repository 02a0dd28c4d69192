"""Common operations in forms of which MindSpore's compiler keeps no memory (compiled).

Many functions of MindSpore, such as `Tensor.mean`, `ops.zeros` and indexing by a tensor, are Python code that is
compiled with the graph that calls them. When this graph is freed, a copy stays in the process: 20 to 380 KB per graph.
The primitives used here leave nothing and compute the same.
"""

from __future__ import annotations

from typing import Any

from minding.engine.process.runtime import functional, ops


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
