"""metrics.csv: one row per log event. Writing survives a failing disk, and reading survives a damaged file."""

import array
import collections
import csv
import dataclasses
import io
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from minding.engine.checkpoint import set_aside
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.files import Folder, read_bounded, replace
from minding.engine.run.lock import lost
from minding.engine.types import Array, StateDict

_MAX_PENDING_ROWS = 10_000
_MAX_BYTES = 1 << 28
"""Largest file, in bytes, that is read: a larger one has millions of rows, or is not a metrics file."""
_MAX_COLUMNS = 10_000


CLOCKS = ("env_step", "train_iter")
"""Columns that order the rows; the first one in a table counts. See `engine.chain.context.UNITS`."""


def clock_of(columns: Iterable[str]) -> str | None:
    """The column with the position of each row in the run; None if there is none."""
    columns = list(columns)
    return next((name for name in CLOCKS if name in columns), None)


@dataclasses.dataclass(frozen=True)
class Table:
    """The readable rows of a metrics file."""

    columns: list[str]
    rows: list[list[str]]
    damaged: int = 0
    torn: bool = False


def read_table(path: Path, limit: int | None = None) -> Table:
    """Reads the first `limit` rows of a metrics file, by default all."""
    lines = _lines_of(path)
    columns = _columns_of(path, lines)
    rows, damaged, torn = [], 0, False
    for number, line in enumerate(lines):
        torn = not line.endswith("\n")
        if torn or (limit is not None and number >= limit):
            # Whether the file ends within a line is in its last one.
            continue
        cells = _cells(line)
        if _numbers(cells, len(columns)) is None:
            damaged += 1
        else:
            rows.append(cells)
    return Table(columns, rows, damaged, torn)


def read_metrics(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Reads metrics.csv as one float64 array per column, all of one length; empty cells are NaN. Damaged rows are left
    out, and a warning counts them. It takes not much more memory than the arrays."""
    path = Path(path)
    lines = _lines_of(path)
    columns = _columns_of(path, lines)
    if clock_of(columns) is None:
        raise ConfigError(f"{str(path)!r} is not a table of metrics: it has no column {' or '.join(CLOCKS)}")
    found, damaged = array.array("d"), 0
    for line in lines:
        if line.endswith("\n"):
            numbers = _numbers(_cells(line), len(columns))
            found.extend(numbers or ())
            damaged += numbers is None
    values = np.frombuffer(found) if found else np.empty(0)
    values = values.reshape(-1, len(columns))
    if damaged:
        whole = len(values) + damaged
        console_logger().warning("%s: %d of %d rows are damaged and left out", path, damaged, whole)
    return {name: values[:, index] for index, name in enumerate(columns)}


def _lines_of(path: Path) -> Iterator[str]:
    """The lines of a file with their ends; the last one has no end if the file stops within it."""
    try:
        # Bytes that are not UTF-8 become a character that no number contains.
        content = io.BytesIO(read_bounded(path, _MAX_BYTES))
        yield from io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace", newline="\n")
        return
    except FileNotFoundError:
        reason = "no such file"
    except OSError as error:
        reason = str(error.strerror)
    raise ConfigError(f"cannot read the metrics {str(path)!r}: {reason}")


def _columns_of(path: Path, lines: Iterator[str]) -> list[str]:
    """The names in the first of the lines."""
    columns = _header(next(lines, "").removesuffix("\n"))
    if columns is None:
        raise ConfigError(f"{str(path)!r} is not a table of metrics: its first line has no column names")
    return columns


def _header(line: str) -> list[str] | None:
    """The names in the first line; None if it cannot be a header."""
    line = line.rstrip("\r")
    if not line:
        return []
    try:
        (names,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        return None
    whole = all(name and name.isprintable() and "\ufffd" not in name for name in names)
    return names if whole and len(set(names)) == len(names) <= _MAX_COLUMNS else None


def _cells(line: str) -> list[str]:
    return line.rstrip("\r\n").split(",")


def _numbers(cells: Sequence[str], columns: int) -> list[float] | None:
    """The numbers of a row, NaN for empty cells; None if the cells are not a row of this number of columns."""
    if len(cells) != columns:
        return None
    try:
        return [float(cell or "nan") for cell in cells]
    except ValueError:
        return None


class CsvWriter:
    """A table with one row per log event.

    Columns may appear later: the file is then rewritten in one atomic step, with empty cells in earlier rows. Rows that
    cannot be written (disk full, read-only folder) are kept and written once it is possible again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.columns: list[str] = []
        # Rows in the file, and its size after the last write, which shows changes by others; None before the first.
        self._written = 0
        self._size: int | None = None
        self._pending: collections.deque[dict[str, float | None]] = collections.deque(maxlen=_MAX_PENDING_ROWS)
        # The state and the clock to which the file still has to be cut back.
        self._restore: tuple[StateDict, float] | None = None
        self._warned = False

    @property
    def rows(self) -> int:
        """The number of rows of the table, including rows that are still pending."""
        return self._written + len(self._pending)

    def write(self, *rows: Mapping[str, float | None]) -> None:
        """Appends rows; NaN is written as ``nan``, None as an empty cell."""
        self._pending.extend(dict(row) for row in rows)
        self.flush()

    def flush(self) -> None:
        """Writes the rows that are still pending; logs once if that is impossible."""
        if not self._pending or lost(self.path.parent):
            return
        try:
            self._take_up()
            self._add_columns(self._pending)
            self._append([[_cell(row.get(name)) for name in self.columns] for row in self._pending])
        except OSError as error:
            self._warn(error)
            return
        self._written = self.rows
        self._pending.clear()
        self._warned = False

    def close(self) -> None:
        """Flushes, and logs the number of lost rows if that fails; later writes are possible."""
        self.flush()
        if self._pending:
            console_logger().warning("%s: could not write the last %s", self.path, _rows(len(self._pending)))
            self._pending.clear()

    def state_dict(self) -> StateDict:
        """Columns and number of rows; from now on, a power failure does not undo these rows."""
        self.flush()
        if self._size:
            try:
                with Folder(self.path.parent, follow=True) as folder:
                    folder.sync_all(self.path.name)
            except OSError as error:
                self._warn(error)
        return {"rows": self.rows, "columns": list(self.columns)}

    def load_state_dict(self, state: StateDict, last_clock: float = float("inf")) -> None:
        """Restores the file to the state, so that a resumed run appends its rows at the right place. Rows and columns
        that were written after the state was taken are removed; so are damaged rows, with a warning. If the file cannot
        be changed now, it is changed before the next row is written."""
        self._pending.clear()
        self.columns, self._written = list(state["columns"]), int(state["rows"])
        self._restore = state, last_clock
        try:
            self._take_up()
        except OSError as error:
            self._warn(error)

    def _take_up(self) -> None:
        """Adapts the file to the state of this object: cuts it back, repairs it, or starts it again."""
        if self._restore is not None:
            self._cut_back(*self._restore)
            self._restore = None
            return
        size = self.path.stat().st_size if self.path.exists() else None
        if size == self._size:
            return
        if size is None:
            console_logger().warning("%s has been removed, and %s with it", self.path, _rows(self._written))
        found = self._found()
        if found.damaged or found.torn:
            console_logger().warning("%s: removed %s that cannot be read", self.path, _rows(found.damaged + found.torn))
            self._replace([found.columns, *found.rows])
        self.columns, self._written = found.columns or self.columns, len(found.rows)

    def _cut_back(self, state: StateDict, last_clock: float) -> None:
        columns, count = list(state["columns"]), int(state["rows"])
        found = self._found(count)
        rows = [_in_columns(row, found.columns, columns) for row in found.rows]
        clock = clock_of(columns)
        if clock is not None:
            rows = [row for row in rows if float(row[columns.index(clock)] or "-inf") <= last_clock]
        if len(rows) < count:
            what = f"{len(rows)} of the {count} that the checkpoint counts are left"
            console_logger().warning("%s lost rows: %s", self.path, what)
        if self.path.exists():
            self._replace([columns, *rows])
        self.columns, self._written = columns, len(rows)

    def _found(self, limit: int | None = None) -> Table:
        """The contents of the file; one that is not a table of metrics is renamed."""
        if not self.path.exists():
            return Table([], [])
        try:
            return read_table(self.path, limit)
        except ConfigError as error:
            aside = set_aside(self.path, follow=True)
            console_logger().warning("%s; it is now %s", error, aside.name)
            return Table([], [])

    def _add_columns(self, rows: Iterable[Mapping[str, float | None]]) -> None:
        new = [name for name in dict.fromkeys(itertools.chain.from_iterable(rows)) if name not in self.columns]
        if not new:
            return
        columns = [*self.columns, *new]
        if self._written:
            self._replace([columns, *([*row, *[""] * len(new)] for row in self._found().rows)])
        elif self.path.exists():
            self.path.unlink()
        self.columns = columns

    def _append(self, rows: Sequence[Sequence[str]]) -> None:
        with Folder(self.path.parent, make=True, follow=True) as folder:
            found = folder.status(self.path.name)
            text = _csv_text(rows if found and found.st_size else [self.columns, *rows])
            self._size = folder.append(self.path.name, text.encode())

    def _replace(self, table: Sequence[Sequence[str]]) -> None:
        """Replaces the contents of the file by `table`, durably, unless they are equal."""
        data = _csv_text(table).encode()
        if read_bounded(self.path, _MAX_BYTES) != data:
            replace(self.path, data)
        self._size = len(data)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            console_logger().warning("cannot write %s (%s); metrics are kept in memory", self.path, error.strerror)
        self._warned = True


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _in_columns(row: Sequence[str], given: Sequence[str], wanted: Sequence[str]) -> list[str]:
    cells = dict(zip(given, row))
    return [cells.get(name, "") for name in wanted]


def _csv_text(table: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value if isinstance(value, int) else float(value))
