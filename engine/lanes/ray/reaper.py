"""Ends what is left of a local cluster when the process that started it has gone, however it went.

Runs as a script of its own, with the standard library only: the agents of Ray's node manager notice its death, and then
wait over a minute for an answer of the head node, which died as well, to write a log line.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Reads lines until the other end of standard input is closed: ``process PID TICKS``, ``folder PATH``."""
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
