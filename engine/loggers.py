"""Where metrics go: a CSV file, TensorBoard, the console. A failing logger warns and never ends a run."""

from __future__ import annotations

import collections
import contextlib
import csv
import io
import itertools
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from minding.engine.types import StateDict

_MAX_PENDING_ROWS = 10_000


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to whatever `sys.stderr` is now: a progress bar replaces it while it is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> IO[str]:  # type: ignore[override]
        return sys.stderr


def console_logger() -> logging.Logger:
    """The logger of messages for the user; prints to stderr unless the program set up logging itself."""
    logger = logging.getLogger("minding")
    if not logger.hasHandlers():
        logger.addHandler(_StderrHandler())
        logger.setLevel(logging.INFO)
    return logger


class CsvWriter:
    """A table with one row a log event.

    Columns may appear later: the file is then rewritten in one atomic step, earlier rows are empty there.
    Rows that cannot be written (disk full, read-only folder) are kept and written once it is possible again.

    Args:
      path: the file; an existing one is continued.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.columns: list[str] = []
        self.rows = 0
        self._pending: collections.deque[str] = collections.deque(maxlen=_MAX_PENDING_ROWS)
        self._warned = False
        if self.path.is_file():
            table = self._read()
            self.columns, self.rows = (table[0], len(table) - 1) if table else ([], 0)

    def write(self, row: Mapping[str, float | None]) -> None:
        """Appends one row; NaN is written as ``nan``, None as an empty cell."""
        new = [name for name in row if name not in self.columns]
        try:
            if new:
                self._add_columns(new)
            self._pending.append(_csv_line([_cell(row.get(name)) for name in self.columns]))
            self.rows += 1
            self.flush()
        except OSError as error:
            self._warn(error)

    def flush(self) -> None:
        """Writes the rows that are still pending."""
        if not self._pending:
            return
        size = self.path.stat().st_size if self.path.exists() else 0
        header = "" if size else _csv_line(self.columns)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8", newline="") as file:
                file.write(header + "".join(self._pending))
        except OSError as error:
            # A full disk takes half a line; leave none behind.
            with contextlib.suppress(OSError):
                os.truncate(self.path, size)
            self._warn(error)
            return
        self._pending.clear()
        self._warned = False

    def close(self) -> None:
        """Flushes; writing again afterwards is possible."""
        self.flush()

    def state_dict(self) -> StateDict:
        """The number of rows."""
        return {"rows": self.rows}

    def load_state_dict(self, state: StateDict) -> None:
        """Drops the rows written after the state was taken, so that a resumed run appends at its place."""
        self._pending.clear()
        table = self._read() if self.path.is_file() else []
        kept = table[: state["rows"] + 1]
        self.rows = max(len(kept) - 1, 0)
        if self.rows < state["rows"]:
            console_logger().warning("%s lost rows: %d of %d left", self.path, self.rows, state["rows"])
        if len(kept) < len(table):
            self._replace(kept)

    def _add_columns(self, new: Sequence[str]) -> None:
        self.flush()
        table = self._read() if self.path.is_file() else []
        padded = [line + [""] * (len(self.columns) - len(line) + len(new)) for line in table[1:]]
        pending = [line.rstrip("\n") + "," * len(new) + "\n" for line in self._pending]
        columns = [*self.columns, *new]
        if padded:
            self._replace([columns, *padded])
        elif table:
            self.path.unlink()
        self.columns = columns
        self._pending = collections.deque(pending, maxlen=_MAX_PENDING_ROWS)

    def _read(self) -> list[list[str]]:
        with open(self.path, encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def _replace(self, table: Sequence[Sequence[str]]) -> None:
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text("".join(map(_csv_line, table)), encoding="utf-8", newline="")
        os.replace(temporary, self.path)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            console_logger().warning(
                "cannot write %s (%s); metrics are kept in memory", self.path, error.strerror
            )
        self._warned = True


def _csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value if isinstance(value, int) else float(value))


class TensorBoardWriter:
    """TensorBoard event files through tensorboardX, written in the calling thread, one event a row.

    Args:
      folder: made when missing, also when it is removed during the run.
      flush_seconds: how long rows may wait before they are forced onto the disk.
    """

    _numbers = itertools.count()

    def __init__(self, folder: str | os.PathLike[str], flush_seconds: float = 30.0) -> None:
        self.folder = Path(folder)
        self._flush_seconds = flush_seconds
        self._flushed = time.monotonic()
        self._events: Any = None
        self._file = Path()
        self._warned = False

    def write(self, row: Mapping[str, float], step: int) -> None:
        """Adds the values of one row at `step` (environment steps)."""
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in row.items()]
        self._write_event(step=step, summary=Summary(value=values))

    def flush(self) -> None:
        """Forces what was written onto the disk."""
        if self._events is not None:
            with self._warning_instead_of_error():
                self._events.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes and closes the file; a later write opens a new one."""
        if self._events is not None:
            with self._warning_instead_of_error():
                self._events.close()
            self._events = None

    def purge_after(self, step: int) -> None:
        """Tells TensorBoard to forget events of earlier files from `step` on (a run resumed there)."""
        from tensorboardX.proto.event_pb2 import SessionLog

        self._write_event(step=step, session_log=SessionLog(status=SessionLog.START))

    def _write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        with self._warning_instead_of_error():
            if self._events is None or not self._file.exists():
                self._open()
            self._events.write_event(Event(wall_time=time.time(), **fields))
        if time.monotonic() - self._flushed >= self._flush_seconds:
            self.flush()

    def _open(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        # tensorboardX names files by the second; the suffix keeps two of one second apart.
        suffix = f".{os.getpid()}.{next(self._numbers)}"
        self._events = EventsWriter(str(self.folder / "events"), suffix)
        self._file = next(self.folder.glob(f"events*{suffix}"))

    @contextlib.contextmanager
    def _warning_instead_of_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                console_logger().warning("cannot write TensorBoard files to %s: %s", self.folder, error)
            self._warned = True
            self._abandon()

    def _abandon(self) -> None:
        """Leaves a file that could not be written: it may end in half a record, behind which nothing is read."""
        events, self._events = self._events, None
        if events is None:
            return
        # tensorboardX leaves its file open where flushing it fails.
        with contextlib.suppress(OSError):
            events._py_recordio_writer.close()
        with contextlib.suppress(OSError):
            if self._file.stat().st_size == 0:
                self._file.unlink()
