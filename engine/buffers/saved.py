"""Saving the rows of device tables."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from minding.engine.checkpoint import BlockArray
from minding.engine.data.batch import RowLayout
from minding.engine.errors import CheckpointError
from minding.engine.types import Array, StateDict

BLOCK_BYTES = 1 << 20
"""Approximate size of a block of a table, which is one file: many small files are slow, large ones repeat old rows."""


def described(layout: RowLayout, capacity: int) -> StateDict:
    """The properties in which saved rows must agree with the buffer that they are loaded into."""
    kinds = layout.linked
    fields = {name: [list(f.shape), f.dtype, *["linked"] * (name in kinds)] for name, f in layout.fields.items()}
    return {"capacity": capacity, "fields": fields}


def check_fits(state: StateDict, layout: RowLayout, capacity: int) -> None:
    """Raises CheckpointError if the saved rows have other fields or another capacity."""
    here = described(layout, capacity)
    if any(state[name] != here[name] for name in here):
        raise CheckpointError(
            f"buffer: the checkpoint holds {state['capacity']} rows of {state['fields']}, "
            f"this run has {here['capacity']} rows of {here['fields']}"
        )


def in_blocks(table: Array, count: int, versions: Callable[[int], list[int]]) -> BlockArray:
    """The first `count` rows of a table in blocks; `versions` maps the rows per block to the version of each block."""
    rows = max(1, BLOCK_BYTES // max(1, table[0].nbytes))
    return BlockArray(table[:count], rows, versions(rows))


def new_origin() -> int:
    """The number from which versions are counted. It is random and not seeded: equal versions must mean equal rows,
    also in a run and in a resumed run that diverged from it."""
    return secrets.randbits(48)
