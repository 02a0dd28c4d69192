"""Whether a process still runs that wrote down who it is."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path


def born(pid: int) -> str | None:
    """When a process of this machine began, in ticks since the machine started; None if that cannot be determined."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def runs(pid: int, node: str, since: str | None) -> bool | None:
    """Whether a process still runs; None if it is on another machine, which cannot be seen from here.

    Args:
      pid: its id.
      node: the name of its machine.
      since: what `born` said of it: another process may have its id by now.
    """
    if node != platform.node():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return since is None or born(pid) == since
