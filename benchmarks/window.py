"""The clock that both sides share, and the line in which a run reports what it measured.

Only the standard library is imported here: the peers read this module in their own virtual environment.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cases import Case, find_case

TrainFor = Callable[[int], int]
"""Trains for at least that many more env steps and returns how many it made."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Steady-state training speed of one process.

    Attributes:
      case: name of the case.
      peer: who ran it, `minding` or a peer.
      env_steps: env steps made on the clock; steps that only reset an environment do not count.
      seconds: wall time of these steps.
      cpu_seconds: processor time of all threads meanwhile.
      peak_mb: the most memory that the process ever had resident, in MB of 2**20 bytes.
      first_seconds: wall time from the start of the process to the end of the first iteration that learns, with
        imports and compilation.
    """

    case: str
    peer: str
    env_steps: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    first_seconds: float

    @property
    def steps_per_second(self) -> float:
        return self.env_steps / self.seconds

    @property
    def cores(self) -> float:
        """Processor cores kept busy, on average."""
        return self.cpu_seconds / self.seconds

    def to_json(self) -> str:
        """One line of JSON, the last one a run prints."""
        return json.dumps({**dataclasses.asdict(self), "steps_per_second": self.steps_per_second})

    @classmethod
    def from_json(cls, line: str) -> Measurement:
        """Reads a line of `to_json`.

        Raises:
          ValueError: the line is not such a record.
        """
        record = json.loads(line)
        try:
            return cls(**{field.name: record[field.name] for field in dataclasses.fields(cls)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected a measurement as one line of JSON, got {line!r}") from error


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What the harness asks of one run.

    Attributes:
      case: the work.
      seed: seed of the environments and networks; both sides of a pair get the same.
      scale: length of the timed window, in units of `case.window_steps`.
      around: is entered for the timed window.
    """

    case: Case
    seed: int
    scale: float
    around: contextlib.AbstractContextManager[object] = dataclasses.field(default_factory=contextlib.nullcontext)


def parse_options(
    argv: Sequence[str] | None = None, around: contextlib.AbstractContextManager[object] | None = None
) -> RunOptions:
    """Reads the command line that every side takes, ``CASE [--seed S] [--scale F]``; `around` see `RunOptions`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="length of the timed window (1 is a few seconds)")
    args = parser.parse_args(argv)
    try:
        case = find_case(args.case)
    except KeyError as error:
        parser.error(error.args[0])
    return RunOptions(case, args.seed, args.scale, around or contextlib.nullcontext())


def measure(options: RunOptions, peer: str, train_for: TrainFor) -> Measurement:
    """Warms up off the clock, then times one window of training.

    Args:
      options: the case and the length of its window.
      peer: name under which the result is reported.
      train_for: continues the training; acting, environment, storing and learning all happen inside.
    """
    made = train_for(options.case.first_steps)
    first_seconds = age()
    train_for(options.case.warmup_steps - made)
    with options.around:
        cpu_start, start = time.process_time(), time.perf_counter()
        env_steps = train_for(options.case.window(options.scale))
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return Measurement(options.case.name, peer, env_steps, seconds, cpu_seconds, peak_mb(), first_seconds)


def keep_to_cores(count: int) -> None:
    """Lets this process run on that many cores, before it imports JAX: XLA starts one thread per core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


def age() -> float:
    """Seconds since this process started, to a hundredth."""
    # The name of the program, the second field, may contain spaces; it ends with the last parenthesis.
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int | str = "self") -> float:
    """The most memory that a process ever had resident, in MB of 2**20 bytes.

    Raises:
      RuntimeError: Linux does not say so of this process; it may have ended.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"expected a VmHWM line in the status of process {pid}, found none; has it ended?")
