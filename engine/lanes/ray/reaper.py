"""Ends the remaining processes of a local cluster after the process that started it, whatever ended that process.

It runs as a separate script and needs the standard library only. Without it, the agents of Ray's node manager would
notice the death of that manager and then wait over a minute for an answer of the head node, which is dead as well.
Workers that were just starting would stay, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE = 5.0  # s
_PAUSE = 0.05  # s


def main() -> None:
    """Reads lines until the writer closes standard input: ``process PID TICKS``, ``folder PATH``."""
    processes, folders = [], []
    for line in sys.stdin:
        what, _, value = line.rstrip("\n").partition(" ")
        if what == "process":
            pid, start = value.split()
            processes.append((int(pid), start))
        else:
            folders.append(value)
    for pid, start in processes:
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{pid}/stat") as file:
                now = file.read().rpartition(")")[2].split()[19]
            # Another process may have its id by now.
            if now == start:
                os.kill(pid, signal.SIGKILL)
    for folder in folders:
        _end_all(os.fsencode(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(folder: bytes) -> None:
    """Kills the processes of Ray that work in a folder, until none appears any more."""
    deadline = time.monotonic() + _PATIENCE
    found = True
    while found and time.monotonic() < deadline:
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if _works_in(process, folder):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        if found:
            # Killed processes no longer have a command line.
            time.sleep(_PAUSE)


def _works_in(process: Path, folder: bytes) -> bool:
    """Whether a process of Ray got the folder as an argument, or as the place of the token if it renamed itself."""
    command = (process / "cmdline").read_bytes()
    return folder in command or (command.startswith(b"ray::") and folder in (process / "environ").read_bytes())


if __name__ == "__main__":
    main()
