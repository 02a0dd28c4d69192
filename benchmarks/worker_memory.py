"""Resident memory of environment workers: ``python -m benchmarks.worker_memory``; prints one line of JSON."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import numpy as np

from benchmarks.window import peak_mb
from minding.envs import make_env_manager

NUM_ENVS = 4
STEPS = 100


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB of 2**20 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"expected a VmRSS line in the status of process {pid}, found none; has it ended?")


def family_peak_mb(pid: int) -> float:
    """The most memory that a process and each of its descendants ever had resident, added up: MB of 2**20 bytes.

    What processes share counts once for each of them.
    """
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            # It ended meanwhile.
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return sum(peak_mb(member) for member in family)


def main() -> None:
    envs = make_env_manager({"env_id": "CartPole-v1", "backend": "subprocess", "workers": 2}, NUM_ENVS, 0)
    try:
        envs.reset()
        for _ in range(STEPS):
            envs.step(np.zeros(NUM_ENVS, np.int64))
        workers = [process.pid for process in multiprocessing.active_children() if process.pid]
        print(json.dumps([{"pid": pid, "resident_mb": resident_mb(pid)} for pid in workers]))
    finally:
        envs.close()


if __name__ == "__main__":
    main()
