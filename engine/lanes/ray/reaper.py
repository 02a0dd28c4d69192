"""Ends the remaining processes of a local cluster after the process that started it, whatever ended that process.

It runs as a separate script and needs the standard library only. Without it, the agents of Ray's node manager would
notice the death of that manager and then wait over a minute for an answer of the head node, which is dead as well.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Reads lines until the writer closes standard input: ``process PID TICKS``, ``folder PATH``."""
    processes, folders = [], []
    for line in sys.stdin:
        what, _, value = line.rstrip("\n").partition(" ")
        if what == "process":
            pid, born = value.split()
            processes.append((int(pid), born))
        else:
            folders.append(value)
    for pid, born in processes:
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{pid}/stat") as file:
                now = file.read().rpartition(")")[2].split()[19]
            # Another process may have its id by now.
            if now == born:
                os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
