"""The progress of a run in the terminal: a bar, or plain lines if the output is not a terminal."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import IO

from minding.engine.console import stdout

_PLAIN_LINE_SECONDS = 5.0
_SPEED_WINDOW = 20
_TITLE_WIDTH = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """The figures that the display shows."""

    clock: int
    train_iter: int
    collect_return: float | None = None
    eval_return: float | None = None
    not_finite: tuple[str, ...] = ()
    unit: str = "env_step"
    eval_info: Mapping[str, float] = dataclasses.field(default_factory=dict)
    games: int | None = None


class Progress:
    """Shows returns, steps of the clock and gradient steps per second, time elapsed and left.

    It draws in the calling thread only, when `update` is called and a refresh is due: on a terminal a bar,
    elsewhere at most one line every 5 s. It draws nothing once an environment has closed the output.

    Args:
      refresh: seconds between two refreshes of the bar.
      clock: returns the time in seconds.
    """

    def __init__(
        self,
        total: int,
        title: str = "",
        *,
        refresh: float = 0.5,
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.title = title
        self._file = stdout() if file is None else file
        self._clock = clock
        self._bar = _Bar(total, title, self._file) if self._file.isatty() else None
        self._refresh = refresh if self._bar else max(refresh, _PLAIN_LINE_SECONDS)
        self._next = -math.inf
        self._start = clock()
        self._window: collections.deque[tuple[float, int, int]] = collections.deque(maxlen=_SPEED_WINDOW)
        self._status: Status | None = None

    def due(self) -> bool:
        """Whether the next `update` will draw; lets the caller skip the work of a status."""
        return self._clock() >= self._next and not self._closed

    def update(self, status: Status) -> None:
        """Takes the newest status and draws it if a refresh is due."""
        self._status = status
        if self.due():
            self._draw(status)

    def flush(self) -> None:
        if not self._closed:
            self._file.flush()

    def close(self) -> None:
        """Draws the last status onto the bar, which stays on the screen."""
        if self._bar is not None and not self._closed:
            if self._status is not None:
                self._draw(self._status)
            self._bar.stop()
        self._bar = None
        self.flush()

    @property
    def _closed(self) -> bool:
        return self._file.closed

    def _draw(self, status: Status) -> None:
        now = self._clock()
        self._next = now + self._refresh
        self._window.append((now, status.clock, status.train_iter))
        text = self._text(status, now)
        if self._bar is not None:
            self._bar.draw(status.clock, text)
        else:
            # The last rollout may pass the limit.
            share = min(100 * status.clock / self.total, 100)
            print(f"{self.title} {status.clock:,}/{self.total:,} ({share:.0f}%)  {text}", file=self._file, flush=True)

    def _text(self, status: Status, now: float) -> str:
        then, clock, train_iter = self._window[0]
        seconds = now - then
        speed = (status.clock - clock) / seconds if seconds > 0 else 0.0
        train_speed = (status.train_iter - train_iter) / seconds if seconds > 0 else 0.0
        left = max(self.total - status.clock, 0) / speed if speed > 0 else None
        returns = [
            f"{name} {value:.1f}"
            for name, value in (("return", status.collect_return), ("eval", status.eval_return))
            if value is not None
        ]
        if status.games is not None:
            # The score of each opponent says more than their mean.
            returns = [f"{status.games:,} games"]
        returns += [f"{name} {value:.2f}" for name, value in status.eval_info.items()]
        alarm = [f"NaN or infinite: {', '.join(status.not_finite)}"] if status.not_finite else []
        if not seconds > 0:
            return "  ".join([*returns, *alarm, _minutes(now - self._start)])
        speeds = [f"{_short(train_speed)} updates/s"]
        if status.unit != "train_iter":
            speeds.insert(0, f"{_short(speed)} {'steps' if status.games is None else 'plies'}/s")
        return "  ".join([*returns, *alarm, *speeds, f"{_minutes(now - self._start)} < {_minutes(left)}"])


class _Bar:
    """A rich progress bar without its own thread."""

    def __init__(self, total: int, title: str, file: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        console = Console(file=file)
        columns: list[ProgressColumn] = [
            BarColumn(None),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}", markup=False),
        ]
        # On a narrow terminal the figures matter more than the name.
        if console.width >= _TITLE_WIDTH:
            columns.insert(0, TextColumn("{task.description}", markup=False))
        self._rich = RichProgress(*columns, console=console, auto_refresh=False, expand=True)
        self._task, self._total = self._rich.add_task(title, total=total, text=""), total
        self._rich.start()

    def draw(self, completed: int, text: str) -> None:
        self._rich.update(self._task, completed=min(completed, self._total), text=text, refresh=True)

    def stop(self) -> None:
        self._rich.stop()


def _short(value: float) -> str:
    """``21345 -> '21.3k'``."""
    for unit in ("", "k", "M"):
        if value < 1000 or unit == "M":
            return f"{value:.0f}{unit}" if not unit or value >= 100 else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError("the last unit takes every value")


def _minutes(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
