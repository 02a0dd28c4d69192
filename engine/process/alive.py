"""Finds out whether a process that noted its id in a file is still running."""

import contextlib
import os
import platform
from pathlib import Path

_PF_EXITING = 4
"""Flag of such a process in ``/proc/PID/stat``."""


def start_ticks(pid: int) -> str | None:
    """When a process of this machine began, in ticks since the machine started; None if that cannot be determined."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else None


def is_stopped(pid: int | None) -> bool:
    """Whether a process has been stopped by a signal; False if that cannot be determined."""
    return _stat(pid)[:1] in (["T"], ["t"])


def is_ending(pid: int) -> bool:
    """Whether the kernel is taking a process down, whose memory it frees before it closes its sockets."""
    fields = _stat(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _PF_EXITING)


def _stat(pid: int | None) -> list[str]:
    """The fields of a process's status, beginning with its state; empty if there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def runs(pid: int, node: str, since: str | None) -> bool | None:
    """Whether a process still runs; None if it is on another machine, which cannot be seen from here."""
    if node != platform.node():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # A process that has ended stays as a zombie until its parent asks for its exit code, which some parents never do.
    if _stat(pid)[:1] in (["Z"], ["X"]):
        return False
    return since is None or start_ticks(pid) == since
