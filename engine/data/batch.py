"""Rows and batches: named per-step arrays, packed into a few tables.

Every argument of a compiled call costs time, so all numbers of one transition share one float32 row; only images have
tables of their own. Rollouts (on-policy) and replay buffers (off-policy) use the same form: tables, and the row numbers
of each gradient step, which the compiled update gathers.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.console import console_logger
from minding.engine.errors import NonFiniteError, ShapeError
from minding.engine.types import Array

OBSERVATIONS = ("obs", "next_obs", "central")
"""Names of the fields that are observations, or inputs of a centralized value (`engine.data.agent_axis.CENTRAL`). If an
observation has several leaves, there is a field ``name.path`` for each."""
VALID = "valid"
"""Name of the weights 0 or 1 that say which rows of a batch count, float32 (B,), see `IndexedBatch`."""
_WORTH_SAYING = 1 << 30
"""Bytes of tables from which they are announced, and compared with the memory that is free."""
PRIORITY = "priority"
"""Name under which new rows bring their priorities to a buffer that samples by priority, float32 (n,), at least 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One named array of a row.

    Attributes:
      dtype: 'float32', 'int32', 'bool' or 'uint8'. Integers share the float32 table and must stay below 2**24.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    default: float | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """The place of a field: table number, first and last column (exclusive), shape and dtype of a row's value.

    A `linked` field is not stored: its value is read from the successor's row, in the table of another field.
    """

    name: str
    table: int
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: str
    linked: bool = False


class RowLayout:
    """Assigns named fields to tables: table 0 is float32 ``(rows, width)``; every uint8 field has its own table."""

    def __init__(self, fields: Mapping[str, Field], *, images_once: bool = False) -> None:
        self.fields = dict(fields)
        self.columns: dict[str, Column] = {}
        self.linked = tuple(name for name in self.fields if images_once and self._is_successor(name))
        width, images = 0, 0
        for name, field in self.fields.items():
            if name in self.linked:
                continue
            if field.dtype == "uint8":
                images += 1
                self.columns[name] = Column(name, images, 0, field.size, field.shape, field.dtype)
            else:
                self.columns[name] = Column(name, 0, width, width + field.size, field.shape, field.dtype)
                width += field.size
        for name in self.linked:
            self.columns[name] = dataclasses.replace(self.columns[_before(name)], name=name, linked=True)
        # The values are in the order of the fields.
        self.columns = {name: self.columns[name] for name in self.fields}
        self.width = width

    def _is_successor(self, name: str) -> bool:
        """Whether a field holds the images that the successor has in `obs`."""
        field = self.fields[name]
        return name.startswith("next_obs") and field.dtype == "uint8" and self.fields.get(_before(name)) == field

    @property
    def stored(self) -> list[Column]:
        """The columns of the fields that are stored, and not read from the successor."""
        return [column for column in self.columns.values() if not column.linked]

    def tree(self, name: str) -> list[Column]:
        """The columns of a field, or of all leaves of the observation `name`, in order."""
        found = [c for c in self.columns.values() if c.name == name or c.name.startswith(f"{name}.")]
        if not found:
            raise ShapeError(
                f"the rows have no field {name!r}, which a policy learns from; they have {', '.join(self.columns)}: "
                "create the buffer with the fields of all policies that learn from it, "
                "fields={**policy.learn_mode.fields, ...}"
            )
        return found

    def shapes(self, rows: int, spare: int = 0) -> list[tuple[tuple[int, int], type]]:
        """Shape and dtype of each table for `rows` rows, followed by spare places where successors are looked up."""
        looked_up = {self.columns[name].table for name in self.linked}
        images: list[tuple[tuple[int, int], type]] = [
            ((rows + spare * (column.table in looked_up), column.stop), np.uint8)
            for column in self.stored
            if column.table
        ]
        return [((rows, self.width), np.float32), *images]

    def check_memory(self, rows: int, spare: int = 0) -> None:
        """Prints what the tables will take if it is above a gigabyte.

        Raises:
          MemoryError: if it is more than what is free.
        """
        size = sum(math.prod(shape) * dtype().itemsize for shape, dtype in self.shapes(rows, spare))
        if size < _WORTH_SAYING:
            return
        said, free = f"{rows:,} rows of {size // rows:,} bytes take {size / 2**30:.1f} GiB", free_memory()
        if size > free:
            fitting = int(rows * free / size)
            raise MemoryError(f"{said}, and {free / 2**30:.1f} GiB are free: at most {fitting:,} rows fit")
        console_logger().info("%s of memory", said)

    def empty(self, rows: int, spare: int = 0) -> tuple[Array, ...]:
        """Zeroed tables, see `shapes`."""
        return tuple(np.zeros(shape, dtype) for shape, dtype in self.shapes(rows, spare))

    def write(self, tables: Sequence[Array], rows: slice, values: Mapping[str, Array]) -> None:
        """Writes one array per field, each ``(n, *shape)``, into `rows` of the tables."""
        count = rows.stop - rows.start
        for column in self.stored:
            name, value = column.name, values.get(column.name)
            target = tables[column.table][rows, column.start : column.stop]
            if value is None:
                default = self.fields[name].default
                if default is None:
                    raise ShapeError(
                        f"field {name!r} of the rows is missing; got {', '.join(sorted(values))}: a policy that learns "
                        "from them needs it; record it in the policy that collects, or write it in a middleware after "
                        "the collector"
                    )
                target[:] = default
                continue
            if value.shape != (count, *column.shape):
                raise ShapeError(
                    f"transition field {name!r}: expected shape {(count, *column.shape)}, got {value.shape}"
                )
            target[:] = value.reshape(count, column.stop - column.start)

    def pack(self, values: Mapping[str, Array]) -> tuple[Array, ...]:
        """Tables that hold the given arrays, each ``(n, *shape)``."""
        count = len(next(iter(values.values())))
        tables = self.empty(count)
        self.write(tables, slice(0, count), values)
        return tables

    def read(self, tables: Sequence[Array], name: str, index: Array | slice | None = None) -> Array:
        """A field of the given rows (all by default), in its own dtype: ``(n, *shape)``; for a `linked` field, `index`
        holds the row numbers of the successors."""
        column = self.columns[name]
        rows = tables[column.table][slice(None) if index is None else index]
        values = rows[..., column.start : column.stop].reshape(*rows.shape[:-1], *column.shape)
        return values if column.dtype in ("float32", "uint8") else values.astype(column.dtype)

    def check_finite(self, tables: Sequence[Array], where: str) -> None:
        """Raises NonFiniteError that names field and row if table 0 holds NaN or infinity."""
        # A sum of squares is finite unless an element is not, or it overflows, which the second check settles.
        flat = tables[0].ravel()
        if math.isfinite(flat.dot(flat)):
            return
        rows, cols = np.nonzero(~np.isfinite(tables[0]))
        if not len(rows):
            return
        names = [c.name for c in self.columns.values() if c.table == 0 and c.start <= cols[0] < c.stop]
        raise NonFiniteError(f"{where}: field {names[0]!r} of row {rows[0]} is {tables[0][rows[0], cols[0]]}")


def free_memory() -> float:
    """Bytes that can still be allocated here, also within the limit of a container; infinite where that is unknown."""
    free, group = [math.inf], Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, LookupError, ValueError):
        free.append(1024 * _numbers_in(Path("/proc/meminfo"))["MemAvailable:"])
    with contextlib.suppress(OSError, LookupError, ValueError):
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        free.append(limit - used + _numbers_in(group / "memory.stat")["inactive_file"])
    return min(free)


def _numbers_in(path: Path) -> dict[str, int]:
    """The first number of each line of a file of the kernel, by the word before it."""
    words = [line.split() for line in path.read_text().splitlines()]
    return {each[0]: int(each[1]) for each in words}


def _before(name: str) -> str:
    """The field of `obs` that belongs to one of `next_obs`."""
    return name.removeprefix("next_")


def misfits(needed: Mapping[str, Field], held: Mapping[str, Field]) -> list[str]:
    """Returns the reasons why a learner cannot read rows with these fields; further fields in the rows do not
    matter."""
    problems = []
    for name, field in needed.items():
        here = held.get(name)
        if here is None:
            problems.append(
                f"the buffer has no field {name!r}, which the policy learns from; it has {', '.join(held)}. "
                "data_pusher writes what the buffer was made for: give it the fields of all its learners, "
                "fields={**policy.learn_mode.fields, ...}"
            )
        elif (here.shape, here.dtype) != (field.shape, field.dtype):
            problems.append(
                f"field {name!r} is {here.dtype} {here.shape} in the buffer, and the policy learns from "
                f"{field.dtype} {field.shape}: create the buffer for this environment and with these settings"
            )
        elif here.default != field.default:
            problems.append(
                f"field {name!r} has the default {here.default} in the buffer, and the policy expects {field.default}: "
                "learners that share a buffer need the same setting for it, such as policy.learn.gamma for 'discount'"
            )
    return problems


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """Properties of recorded data that learners need before the first step.

    Attributes:
      returns: float64 ``(E,)``, returns of the episodes that ended.
      read: function of the name of a field and row numbers ``(n,)``; returns its values ``(n, ...)``.
    """

    steps: int
    returns: Array
    read: Callable[[str, Array], Array]


@dataclasses.dataclass(slots=True)
class IndexedBatch:
    """The input of a learner: tables of rows and, for each of K gradient steps, the rows of its minibatch.

    Attributes:
      index: int32 ``(K, B)``; ``(K, T, N)`` for learners of trajectories, in the order of time.
      weight: importance weights of the rows, float32, shaped like `index`, or of sequences ``(K, B)``; None: all are 1.
      successor: row numbers from which linked fields are read, int32, shaped like `index`; None if no field is linked.
      valid: float32, shaped like `index`: 0 at places that only fill up a minibatch or a sequence and hold rows that do
        not count there; None: all count. Gradient steps find it in their batch as `VALID`.
      version: when each row was written, int64, shaped like `index`: a number that grows with each push, by which a
        buffer with priorities recognizes rows that were replaced since; None without priorities.
    """

    layout: RowLayout
    tables: Any
    index: Array
    weight: Array | None = None
    lag: float = 0.0
    successor: Array | None = None
    valid: Array | None = None
    recorded: Recorded | None = None
    version: Array | None = None
    stored: bool = False

    def distinct(self) -> tuple[dict[str, Array], Array]:
        """Returns each row that the index refers to once, by field, and the index into these rows, int32, shaped like
        `index`."""
        rows, first, index = np.unique(self.index, return_index=True, return_inverse=True)
        where = rows if self.successor is None else self.successor.reshape(-1)[first]
        fields = {
            name: self.layout.read(self.tables.host, name, where if column.linked else rows)
            for name, column in self.layout.columns.items()
        }
        return fields, index.reshape(self.index.shape).astype(np.int32)


def minibatches(passes: Sequence[Array], parts: int, count: int) -> tuple[Array, Array | None]:
    """Splits passes over rows into minibatches of one size, in each of which every row of the pass counts once: `index`
    int32 ``(K, B)`` and `valid` float32 ``(K, B)``, see `IndexedBatch`."""
    size = -(-count // parts)
    if len(passes[0]) == parts * size:
        return np.stack(passes).reshape(-1, size).astype(np.int32), None
    split = [part for rows in passes for part in np.array_split(rows, min(parts, len(rows)))]
    index = np.stack([np.resize(part, size) for part in split]).astype(np.int32)
    return index, (np.arange(size) < np.array([[len(part)] for part in split])).astype(np.float32)
