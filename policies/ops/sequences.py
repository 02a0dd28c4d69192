"""Observations of B sequences of T steps, as rows (T B, ...) ordered by time or as arrays (T, B, ...) (compiled).

An observation is a tuple of leaves.
"""

from __future__ import annotations

from typing import Any

from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def in_time(leaves, count):
    """(T B, ...) -> (T, B, ...); `count` is B, a Python number."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Reshape()(x, (-1, count, *x.shape[1:])))
    return made


def as_rows(leaves):
    """(T, B, ...) -> (T B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Reshape()(x, (-1, *x.shape[2:])))
    return made


def parts(leaves, start, count):
    """`count` steps, beginning with step `start`: (T, B, ...) -> (count, B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, lean.part(x, start, count))
    return made


def at_first(leaves):
    """The first step: (T, B, ...) -> (B, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Squeeze(0)(lean.part(x, 0, 1)))
    return made


def step_before(x):
    """x (T, N) shifted by one step: each row holds the previous row of x, and the first row is 0."""
    none = ops.ZerosLike()(lean.part(x, 0, 1))
    return none if x.shape[0] == 1 else ops.Concat(0)((none, lean.part(x, 0, x.shape[0] - 1)))


def step_after(x):
    """x (T, N) shifted by one step: each row holds the next row of x, and the last row is 0."""
    none = ops.ZerosLike()(lean.part(x, 0, 1))
    return none if x.shape[0] == 1 else ops.Concat(0)((lean.part(x, 1, x.shape[0] - 1), none))
