"""Where metrics go besides metrics.csv: TensorBoard. A failing logger warns and never ends a run."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.console import console_logger
from minding.engine.run.lock import lost


class TensorBoardWriter:
    """TensorBoard event files through tensorboardX, written in the calling thread, one event per row.

    Args:
      folder: created if missing, also if it is removed during the run.
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
        """Tells TensorBoard to discard events of earlier files from `step` on (a run resumed there)."""
        from tensorboardX.proto.event_pb2 import SessionLog

        self._write_event(step=step, session_log=SessionLog(status=SessionLog.START))

    def _write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        if lost(self.folder.parent):
            return
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
        """Leaves a file that could not be written: it may end in half a record, after which nothing is read."""
        events, self._events = self._events, None
        if events is None:
            return
        # tensorboardX leaves its file open if flushing it fails.
        with contextlib.suppress(OSError):
            events._py_recordio_writer.close()
        with contextlib.suppress(OSError):
            if self._file.stat().st_size == 0:
                self._file.unlink()
