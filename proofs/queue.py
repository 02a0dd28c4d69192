"""Runs that take hours, one after the other in the background: ``python -m proofs.run --queue``, at the root.

The queue is one process at the lowest priority on one core. SIGTERM or Ctrl-C ends it within seconds: the run that is
training saves a checkpoint, and the next call continues there. Each run that ends is a row of
``docs/results/learning.jsonl``; what stands there for the same configuration is not run again.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from minding.engine.errors import RunInUseError
from minding.engine.run.lock import RunLock
from proofs import pages
from proofs.runs import Job, Results, RunFailed, run_learning

STEPS = 1_000_000
TASKS = ("halfcheetah", "hopper", "walker2d", "ant")
POOL = ("pool.freq=50000", "pool.every=1")
"""Keeps the policies on the way, of which recorded data are made."""
RECORDED = ("halfcheetah_sac", "hopper_sac")
"""Presets whose policies on the way are kept."""


@dataclasses.dataclass(frozen=True)
class Queued:
    """One run of the queue.

    Attributes:
      preset, seed: what is trained.
      env_step: environment steps.
      priority: runs with a lower number are first; runs with the same number are in the order of the list.
    """

    preset: str
    seed: int
    env_step: int
    priority: int

    @property
    def job(self) -> Job:
        """The learning proof that the run is."""
        return Job("learning", self.preset, self.seed, self.env_step, POOL if self.preset in RECORDED else ())


QUEUE = (
    *(Queued(f"{task}_ppo", seed, STEPS, 0) for seed in range(5) for task in TASKS),
    *(Queued(f"{task}_{name}", 0, STEPS, 1) for name in ("sac", "td3") for task in TASKS),
    *(Queued(f"{task}_{name}", seed, STEPS, 2) for seed in (1, 2) for name in ("sac", "td3") for task in TASKS),
    *(Queued("halfcheetah_ddpg", seed, STEPS, 3) for seed in range(3)),
)

PRESETS = frozenset(each.preset for each in QUEUE)
"""The presets of the queue, which `make proofs` trains only as parts of it."""


def in_order(queue: Iterable[Queued] = QUEUE) -> list[Job]:
    """The runs of a queue by priority."""
    return [each.job for each in sorted(queue, key=lambda each: each.priority)]


def work(jobs: Iterable[Job], results: Results, runs: Path) -> int:
    """Trains each job, from where it was stopped, writes down its row and draws the pages.

    Args:
      jobs: what is to be run, in this order.
      results: where the rows are.
      runs: folder of the run folders; a file there keeps a second queue from starting.
    Returns:
      An exit code: 0; 1 if a run ended with an error; 2 if another process works through a queue in `runs`.
    Raises:
      SystemExit: after SIGTERM or SIGINT, with 143 or 130.
    """
    stay_in_the_background()
    failed = False
    try:
        with RunLock(runs), ended_by_signals():
            for job in jobs:
                try:
                    record = run_learning(job, runs, resume=True)
                except RunFailed as error:
                    failed = True
                    print(f"{job}: FAILED\n{error}", file=sys.stderr, flush=True)
                    continue
                results.append(job.kind, record)
                pages.update(results)
                print(f"{job}: {pages.one_line(job.kind, record)}", flush=True)
    except RunInUseError as error:
        print(f"another queue is at work: {error}", file=sys.stderr)
        return 2
    return 1 if failed else 0


def stay_in_the_background() -> None:
    """Gives this process and those that it starts the lowest priority and, where the system can, one core."""
    os.nice(19)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT raise SystemExit, with the exit code of the signal."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
