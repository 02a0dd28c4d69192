"""Ends the remaining processes of a local cluster after the process that started it, whatever ended that process, and
says so if Ray ended that process.

It runs as a separate script and needs the standard library only. Without it, the agents of Ray's node manager would
notice the death of that manager and then wait over a minute for an answer of the head node, which is dead as well.
Workers that were just starting would stay, too.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE = 5.0  # s
_PAUSE = 0.05  # s
_SILENT = (
    "minding: Ray ended this process, because its node manager (raylet) or one of the manager's agents on this machine "
    "died: what came after the newest checkpoint is lost; `minding resume RUN` continues from there"
)


def main() -> None:
    """Reads lines until the writer closes standard input. ``process PID TICKS`` and ``folder PATH`` are of a cluster to
    end, ``raylet PID TICKS`` of the node manager without which Ray ends the writer; ``bye`` says that the writer ends
    by itself."""
    processes, folders, raylet = [], [], None
    for line in sys.stdin:
        what, _, value = line.rstrip("\n").partition(" ")
        if what == "folder":
            folders.append(value)
        elif what == "bye":
            raylet = None
        else:
            pid, start = value.split()
            if what == "raylet":
                raylet = int(pid), start
            else:
                processes.append((int(pid), start))
    if raylet is not None and not _runs(*raylet):
        print(_SILENT, file=sys.stderr, flush=True)
    for pid, start in processes:
        if _runs(pid, start):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    for folder in folders:
        _end_all(os.fsencode(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int, start: str) -> bool:
    """Whether a process runs, and no other one has got its id."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
        return fields[19] == start and fields[0] not in ("Z", "X")
    return False


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
