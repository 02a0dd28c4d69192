"""Commands that run in separate processes, several at a time; a signal ends all of them in an orderly way."""

import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from minding.engine.files import Folder
from minding.engine.paths import current_folder
from minding.engine.process.signals import SignalGuard

_POLL_SECONDS = 0.1
_MOST_READ = 8192
_ERROR = re.compile(r"minding: |[A-Za-z_.]+(Error|Exception): ")
"""The beginning of a line with an error, printed by a command or at the end of a traceback."""
_PROGRAM = """\
import sys
sys.path[:] = [place for place in sys.path if place]
import ctypes, os, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit("the process that started this one has ended")
from {module} import {function}
{function}()
"""
"""The current folder is taken off the path, so that nothing in it is imported in place of an installed package.

The kernel kills the process with the one that started it (PR_SET_PDEATHSIG), however that one ends.

SIGKILL also ends a process that is stopped."""


@dataclasses.dataclass
class Command:
    """A Python function that runs in a separate process."""

    function: str
    args: Sequence[str]
    output: Path
    code: int | None = None
    _begin: int = dataclasses.field(default=0, repr=False)
    _process: subprocess.Popen[bytes] | None = dataclasses.field(default=None, repr=False)
    _signaled: bool = dataclasses.field(default=False, repr=False)

    @property
    def running(self) -> bool:
        """Whether the process has started, and its end has not been noticed yet."""
        return self._process is not None and self.code is None

    def start(self, parent: int) -> None:
        """Starts the process, which ends when the process with the id `parent` does."""
        module, _, function = self.function.partition(":")
        program = _PROGRAM.format(module=module, function=function)
        command = [sys.executable, "-c", program, str(parent), *self.args]
        with Folder(self.output.parent, make=True) as folder:
            descriptor = folder.open(self.output.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with open(descriptor, "ab") as output:
            self._begin = output.tell()
            # Ctrl-C would reach all processes of the terminal's foreground group: the parent tells these once instead.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=current_folder() or None,
                start_new_session=True,
            )

    def printed(self) -> list[str]:
        """The last whole lines that the process has printed, of at most 8 KB; none once `output` was removed."""
        if self._process is None:
            return []
        try:
            with open(self.output, "rb") as output:
                end = output.seek(0, os.SEEK_END)
                output.seek(max(self._begin, end - _MOST_READ))
                text = output.read().decode("utf-8", errors="replace")
        except OSError:  # The file was removed, and the output of the process is lost.
            return []
        return [line.rstrip() for line in text.split("\n")[:-1]]

    @property
    def failure(self) -> str:
        """Description of the failure: its exit code or signal, the error that it printed, and its output."""
        code, printed = self.code or 0, [line for line in self.printed() if line.strip()]
        how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
        # What comes after an error tells where it happened.
        errors = [line for line in printed if _ERROR.match(line)]
        reason = "".join(f": {line}" for line in (errors or printed)[-1:])
        return f"{how}{reason}; see {self.output}"

    def look(self) -> None:
        """Stores the exit code if the process has ended."""
        if self._process is not None:
            self.code = self._process.poll()

    def end(self) -> None:
        """Asks a running process to end; only once, since a second SIGTERM would end it without a checkpoint."""
        if self.running and not self._signaled and self._process is not None:
            self._signaled = True
            self._process.terminate()

    def wait(self) -> None:
        """Waits for the end of the process, if it was started."""
        if self._process is not None:
            self.code = self._process.wait()


def run_commands(commands: Iterable[Command], parallel: int, watch: Callable[[], None]) -> str | None:
    """Runs commands in order, `parallel` at a time, until all have ended. After the first SIGINT or SIGTERM, no further
    command starts, the running ones get SIGTERM, and their end is waited for. A second signal ends this process, and
    with it all of them, at once. Call it in the main thread."""
    received: list[str] = []
    begun: list[Command] = []

    def end_all(name: str) -> None:
        received.append(name)
        for command in begun:
            command.end()

    try:
        with SignalGuard(end_all, "stopping all runs after their current iterations"):
            _run(iter(commands), begun, parallel, watch, received)
    finally:
        # This also holds after an error in `watch`.
        for command in begun:
            command.end()
            command.wait()
    watch()
    return received[0] if received else None


def _run(
    waiting: Iterator[Command], begun: list[Command], parallel: int, watch: Callable[[], None], received: Sequence[str]
) -> None:
    while True:
        for command in begun:
            command.look()
        while not received and sum(command.running for command in begun) < parallel:
            following = next(waiting, None)
            if following is None:
                break
            begun.append(following)
            following.start(os.getpid())
            if received:
                # The signal came while the process was being started.
                following.end()
        watch()
        if not any(command.running for command in begun):
            return
        time.sleep(_POLL_SECONDS)
