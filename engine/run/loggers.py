"""Loggers of metrics besides metrics.csv: TensorBoard and trackers. A failing logger warns and never ends a run."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from minding.engine.config.named import is_named, load_code
from minding.engine.config.options import plain
from minding.engine.config.yaml_text import yaml_of
from minding.engine.console import console_logger
from minding.engine.error_origin import building, places_of, user_location
from minding.engine.errors import MissingExtraError
from minding.engine.files import Folder
from minding.engine.process.packages import is_installed
from minding.engine.run.curves import EVAL_RETURN
from minding.engine.run.lock import lost
from minding.engine.run.run_dir import RunDir
from minding.engine.run.trackers import CLIENTS, Tracker, flat

Settings = Mapping[str, Any]
TRACKERS = ("wandb", "mlflow", "swanlab")
"""Loggers that need a package: each is an extra of that name, and has a class in `engine.run.trackers`."""


class MetricsLogger(Protocol):
    """A receiver of every row of metrics, once, in the order of metrics.csv.

    A logger of your own derives from it, and defines what it needs; the other methods do nothing. If ``run.loggers``
    names the class, its constructor takes the folder of the run, a `RunDir`.
    """

    def open(self, settings: Settings, step: int) -> None:
        """Shows the settings of the run, which starts at `step`, or continues there after a resume."""

    def write(self, row: Mapping[str, float], step: int) -> None:
        """Takes a row at `step` of the clock; it may wait until `flush`."""

    def flush(self) -> None:
        """Sends the rows that wait."""

    def purge_after(self, step: int, rows: int) -> None:
        """Notes that the run was resumed at `step`, after `rows` rows; later rows will be written again."""

    def close(self) -> None:
        """Sends the rows that wait, and releases files and connections; a later write opens it again."""


def check_loggers(names: Iterable[str]) -> None:
    """Refuses loggers that are not installed, without importing them."""
    for name in names:
        if name in TRACKERS and not is_installed(name):
            raise MissingExtraError(name, name, f"run.loggers: {name}")


def make_loggers(names: Iterable[str], run_dir: RunDir) -> list[MetricsLogger]:
    names = list(dict.fromkeys(names))
    check_loggers(names)
    return [_make_logger(name, run_dir) for name in names]


def _make_logger(name: str, run_dir: RunDir) -> MetricsLogger:
    if name == "tensorboard":
        return TensorBoardWriter(run_dir.tensorboard)
    if is_named(name):
        return OwnLogger(name, run_dir)
    return Tracker(name, CLIENTS[name](), run_dir)


class OwnLogger:
    """A logger that ``run.loggers`` names as ``module:Class``; a failure of it is a warning, and ends its work."""

    def __init__(self, name: str, run_dir: RunDir) -> None:
        kind = load_code(name, "run.loggers")
        self._name = name
        with building(f"run.loggers={name!r}: making it"):
            self._logger: MetricsLogger | None = kind(run_dir)

    def open(self, settings: Settings, step: int) -> None:
        self._call("open", settings, step)

    def write(self, row: Mapping[str, float], step: int) -> None:
        self._call("write", row, step)

    def flush(self) -> None:
        self._call("flush")

    def purge_after(self, step: int, rows: int) -> None:
        self._call("purge_after", step, rows)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *args: object) -> None:
        if self._logger is None:
            return
        try:
            getattr(self._logger, method)(*args)
        except Exception as error:
            place = user_location(places_of(error))
            console_logger().warning(
                "run.loggers=%r: %s failed: %s: %s%s; training continues without it",
                self._name, method, type(error).__name__, error, place,
            )  # fmt: skip
            self._logger = None


class TensorBoardWriter:
    """TensorBoard event files through tensorboardX, written in the calling thread, one event per row."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._events: Any = None
        self._file = Path()
        self._warned = False

    def open(self, settings: Settings, step: int) -> None:
        """Shows the settings as a text, and as the hyperparameters by which runs are compared."""
        from tensorboardX.summary import hparams, text

        tree = plain(settings)
        listing = "".join(f"    {line}\n" for line in yaml_of(tree).splitlines())
        self._write_event(step=step, summary=text("settings", listing))
        # The name of a folder may have bytes that are not text.
        values = {
            key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
            for key, value in flat(tree)
        }
        for summary in hparams(values, {EVAL_RETURN: 0.0}):
            self._write_event(step=step, summary=summary)

    def write(self, row: Mapping[str, float], step: int) -> None:
        """Adds the metrics of one row; counters, whose names have no slash, only determine its position."""
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in row.items() if "/" in name]
        self._write_event(step=step, summary=Summary(value=values))

    def show_video(self, file: Path, size: tuple[int, int], step: int) -> None:
        """Adds a GIF to the images, where it is animated."""
        from tensorboardX.proto.summary_pb2 import Summary

        width, height = size
        image = Summary.Image(width=width, height=height, colorspace=3)
        with self._warning_instead_of_error():
            image.encoded_image_string = file.read_bytes()
            self._write_event(step=step, summary=Summary(value=[Summary.Value(tag="episode", image=image)]))

    def flush(self) -> None:
        """Writes buffered events to the file."""
        if self._events is not None:
            with self._warning_instead_of_error():
                self._events.flush()

    def close(self) -> None:
        """Flushes and closes the file; a later write opens a new one."""
        if self._events is not None:
            with self._warning_instead_of_error():
                self._events.close()
            self._events = None

    def purge_after(self, step: int, rows: int) -> None:
        """Tells TensorBoard to discard events of earlier files after `step`."""
        from tensorboardX.proto.event_pb2 import SessionLog

        self._write_event(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def _write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        if lost(self.folder.parent):
            return
        with self._warning_instead_of_error():
            if self._events is None or not self._file.exists():
                self._open()
            self._events.write_event(Event(wall_time=time.time(), **fields))

    def _open(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        self.close()
        with Folder(self.folder, make=True):
            # tensorboardX names files by the second; the suffix keeps two of one second apart, and nobody can have put
            # a link there before.
            suffix = f".{os.getpid()}.{secrets.token_hex(8)}"
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
        """Abandons a file that could not be written: it may end with half a record, after which readers stop."""
        events, self._events = self._events, None
        if events is None:
            return
        # tensorboardX leaves its file open if flushing it fails.
        with contextlib.suppress(OSError):
            events._py_recordio_writer.close()
        with contextlib.suppress(OSError):
            if self._file.stat().st_size == 0:
                self._file.unlink()
