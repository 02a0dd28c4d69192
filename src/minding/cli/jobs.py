"""Several processes of one command, and their progress: a line each, updated in place on a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from minding.cli.common import echo

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.process.commands import Command

_NO_NEWS = ("waiting", "starting")
_LINE_SECONDS = 10.0
"""Seconds between two lines of one process if the output is not a terminal."""
_MOST_LINES = 20
"""Most processes that are shown on a terminal; the latest are shown."""


def check_jobs(cfg: Config, jobs: int) -> None:
    """Refuses several processes at once if only one environment can exist."""
    from minding.engine.errors import ConfigError

    if cfg.env.single_instance and jobs > 1:
        raise ConfigError(
            f"--jobs {jobs} with env.single_instance=true: only one environment can exist at a time; leave --jobs out"
        )


class Display:
    """One line per process while they run, printed at intervals if the output is not a terminal."""

    def __init__(
        self,
        kind: str,
        commands: Mapping[int, Command],
        name_of: Callable[[int], str],
        outcome: Callable[[int, Command], str],
        progress: bool,
    ) -> None:
        self._kind, self._commands, self._progress = kind, commands, progress
        self._name_of, self._outcome = name_of, outcome
        self._live: Any = None
        # The last line printed for each process, and its time.
        self._shown: dict[int, tuple[str, float]] = {}

    def __enter__(self) -> Display:
        from minding.engine.console import stdout

        if self._progress and stdout().isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=stdout()), auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self) -> None:
        """Shows the current progress of each process."""
        lines = {number: self._line(number, command) for number, command in self._commands.items()}
        if self._live is not None:
            from rich.console import Group
            from rich.text import Text

            shown = list(lines.items())[-_MOST_LINES:]
            texts = [Text(f"{self._kind} {key}  {line}", no_wrap=True, overflow="ellipsis") for key, line in shown]
            self._live.update(Group(*texts), refresh=True)
            return
        now = time.monotonic()
        for number, line in lines.items():
            shown_line, at = self._shown.get(number, ("", -math.inf))
            ended = self._commands[number].code is not None
            due = ended or (self._progress and line not in _NO_NEWS and now - at >= _LINE_SECONDS)
            if due and line != shown_line:
                self._shown[number] = (line, now)
                echo(f"{self._kind} {number}  {line}")

    def _line(self, number: int, command: Command) -> str:
        if command.code is not None:
            return self._outcome(number, command)
        return self._position(number, command) if command.running else _NO_NEWS[0]

    def _position(self, number: int, command: Command) -> str:
        """The newest line of progress that the process printed."""
        title = f"{self._name_of(number)} "
        newest = next((line for line in reversed(command.printed()) if line.startswith(title)), None)
        return _NO_NEWS[1] if newest is None else newest.removeprefix(title)
