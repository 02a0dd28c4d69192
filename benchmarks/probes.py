"""What is measured in units of its own: import time, worker memory, middleware overhead, prioritized replay."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pairs import ROOT, RunFailed, call, find_peers_python

SOURCE = {"PYTHONPATH": str(ROOT / "src")}
IMPORT_RUNS = 5
REPLAY_PAIRS = 5
IMPORT_SCRIPT = """
import json, sys, time
start = time.perf_counter()
import minding.engine
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "heavy": [m for m in ("mindspore", "gymnasium") if m in sys.modules]}))
"""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One number that can be measured.

    Attributes:
      title: what is measured, for the table.
      limit: largest value that is good.
      unit: of the value and the limit.
      take: given a timeout in seconds, returns the value and everything else the measurement said.
    """

    title: str
    limit: float
    unit: str
    take: Callable[[float], tuple[float, Any]]


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a probe found.

    Attributes:
      title: what was measured.
      limit: largest value that is good.
      unit: of `value` and `limit`.
      value: the number, None when the measurement failed.
      error: why it failed, or None.
      details: everything the measurement said, plain JSON values.
    """

    title: str
    limit: float
    unit: str
    value: float | None = None
    error: str | None = None
    details: Any = None

    @property
    def beside(self) -> str:
        """What another library was found to need, for the table."""
        return str(self.details.get("beside", "")) if isinstance(self.details, dict) else ""

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.value <= self.limit


def parse_json(text: str) -> Any:
    """Reads what a measuring script wrote.

    Raises:
      RunFailed: it is no JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunFailed(f"expected JSON from the measurement, got {text[:80]!r}") from error


def import_time(timeout: float) -> tuple[float, Any]:
    """Median seconds of `import minding.engine` in fresh processes.

    Raises:
      RunFailed: it brings MindSpore or Gymnasium with it, however fast.
    """
    command = [sys.executable, "-c", IMPORT_SCRIPT]
    runs = [parse_json(call(command, SOURCE, timeout)) for _ in range(IMPORT_RUNS)]
    if runs[0]["heavy"]:
        raise RunFailed(f"imports {' and '.join(runs[0]['heavy'])}, which must load later")
    return statistics.median(run["seconds"] for run in runs), runs


def worker_memory(timeout: float) -> tuple[float, Any]:
    """Resident MB of the largest environment worker after some steps of CartPole."""
    record = parse_json(call([sys.executable, "-m", "benchmarks.worker_memory"], SOURCE, timeout))
    return largest_number(record, "resident_mb"), record


def middleware_overhead(timeout: float) -> tuple[float, Any]:
    """Microseconds of one middleware call in the slowest chain that the script measures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overhead.json"
        call([sys.executable, "-m", "benchmarks.middleware_overhead", "--json", str(path)], SOURCE, timeout)
        record = parse_json(path.read_text())
    return largest_number(record, "us_per_call"), record


def prioritized_replay(timeout: float) -> tuple[float, Any]:
    """Milliseconds of drawing 256 of 1e6 rows and setting their priorities, measured alternately with cpprb."""
    ours = [sys.executable, "-m", "benchmarks.replay"], SOURCE
    theirs = (
        [find_peers_python(print), "-m", "benchmarks.peers.cpprb_replay"],
        {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
    )
    pairs = [[parse_json(call(*side, timeout))["ms"] for side in (ours, theirs)] for _ in range(REPLAY_PAIRS)]
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return own, {"beside": f"cpprb {other:.2f} ms, {REPLAY_PAIRS} pairs", "pairs": pairs}


def largest_number(record: Any, key: str) -> float:
    """Largest value stored under `key` at any depth of nested dicts and lists.

    Raises:
      RunFailed: no such key, or no number under it.
    """
    found: list[float] = []
    pending = [record]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            found += [float(v) for k, v in item.items() if k == key and isinstance(v, (int, float))]
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    if not found:
        raise RunFailed(f"expected numbers under {key!r} in the JSON of the measurement, found none")
    return max(found)


PROBES = {
    "import_time": Probe("import minding.engine", 0.3, "s", import_time),
    "worker_memory": Probe("environment worker, resident", 60.0, "MB", worker_memory),
    "middleware_overhead": Probe("middleware call", 2.0, "us", middleware_overhead),
    "prioritized_replay": Probe("prioritized replay, 256 of 1e6 rows", 0.5, "ms", prioritized_replay),
}


def read(name: str, timeout: float) -> Reading:
    """Takes one measurement; a failure becomes a reading without value that says why."""
    probe = PROBES[name]
    try:
        value, details = probe.take(timeout)
    except RunFailed as error:
        return Reading(probe.title, probe.limit, probe.unit, error=str(error))
    return Reading(probe.title, probe.limit, probe.unit, value, details=details)
