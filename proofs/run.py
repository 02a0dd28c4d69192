"""The long evidence, over seeds: ``python -m proofs.run``, at the root; continues where it stopped.

Each proof runs in a separate process: presets learn to a target, synchronously and in lanes, the same seed gives the
same parameters, a long run neither grows nor compiles again, variants of a preset learn beside it. Results are lines of
JSON in ``docs/results``; a command that has one is not run again, unless ``--again`` is given. After each run the
tables and curves of the pages in ``docs`` are redrawn.

``--queue`` trains what takes hours, the list in `proofs.queue`: one process at the lowest priority on one core. SIGTERM
or Ctrl-C ends it within seconds; the run that is training saves a checkpoint, and the next call continues there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from minding.engine.errors import RunInUseError
from minding.engine.run.lock import RunLock
from proofs import data_sets, queue, team_benchmark
from proofs import pages as proof_pages
from proofs.runs import (
    ASYNC,
    COLLECTING,
    DETERMINISM,
    LEARNING,
    MEMORY,
    OFFLINE,
    STUDY,
    Job,
    Record,
    Results,
    RunFailed,
    run_determinism,
    run_learning,
    run_memory,
)
from proofs.studies import STUDIES

ROOT = Path(__file__).resolve().parent.parent
DRAWING = 60.0
"""Seconds, see `run_all`."""
RUNNERS: dict[str, Callable[[Job, Path], Record]] = {
    "learning": run_learning,
    ASYNC: run_learning,
    STUDY: run_learning,
    OFFLINE: run_learning,
    "determinism": run_determinism,
    "memory": run_memory,
}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    known = [*LEARNING, *(f"{kind}:{name}" for kind in ("async", "determinism") for name in COLLECTING), "memory"]
    known += [f"study:{name}" for name in STUDIES] + [f"offline:{name}" for name in data_sets.LEARNERS]
    teams = [team_benchmark.study_of(algorithm) for algorithm in team_benchmark.STEPS]
    parser = argparse.ArgumentParser(prog="python -m proofs.run", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*known, *teams], metavar="PROOF", help=", ".join(known))
    parser.add_argument("--seeds", type=int, help="seeds of each learning proof (as presets and studies say)")
    parser.add_argument(
        "--queue", action="store_true", help="train what proofs/queue.py and proofs/team_benchmark.py list"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time (1; more share the cores)")
    parser.add_argument("--steps", type=int, help="environment steps of each run, to try the machinery out")
    parser.add_argument("--again", action="store_true", help="run also what is done")
    parser.add_argument("--tables", action="store_true", help="run nothing, draw tables and curves only")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    if args.steps is not None and args.docs.resolve() == ROOT / "docs":
        parser.error("--steps makes runs that prove nothing: also give --docs FOLDER, a copy of docs")
    if args.jobs < 1 or (args.seeds is not None and args.seeds < 1):
        parser.error("--jobs and --seeds must be at least 1")
    if queued := [name for name in args.only or () if name in (*queue.PRESETS, *teams) and not args.queue]:
        parser.error(f"--only {queued[0]} takes hours: also give --queue, which can be stopped and continued")
    return args


def plan(args: argparse.Namespace) -> list[Job]:
    """All jobs that were asked for: those of the queue by priority, or all others, the short ones first."""
    steps = args.steps
    if args.queue:
        queued = [*queue.in_order(), *team_benchmark.jobs(args.seeds or 1)]
        queued = [job for job in queued if not args.only or {job.preset, job.study} & {*args.only}]
        queued = [job for job in queued if args.seeds is None or job.seed < args.seeds]
        return [dataclasses.replace(job, env_step=steps or job.env_step) for job in queued]
    jobs = [
        Job("determinism", preset, 0, steps or DETERMINISM)
        for preset in COLLECTING
        if _wanted(args, f"determinism:{preset}")
    ]
    jobs += [
        Job(kind, proof.preset, seed, steps if steps and proof.env_step else proof.env_step)
        for kind, prefix, proofs in (("learning", "", LEARNING), (ASYNC, "async:", COLLECTING))
        for proof in proofs.values()
        if _wanted(args, prefix + proof.preset)
        for seed in range(args.seeds or proof.seeds)
    ]
    jobs += [
        Job(STUDY, study.preset, seed, steps or env_step, x.changes, x.program, name, variant, study.recorded)
        for name, study in STUDIES.items()
        if _wanted(args, f"study:{name}")
        for env_step in [study.env_step or LEARNING[study.preset].env_step]
        for variant, x in study.variants.items()
        for seed in range(args.seeds or study.seeds)
    ]
    jobs += [job for job in data_sets.jobs(args.seeds) if _wanted(args, f"offline:{job.preset}")]
    if _wanted(args, "memory"):
        jobs.append(Job("memory", "cartpole_ppo", 0, steps or MEMORY))
    return jobs


def _wanted(args: argparse.Namespace, name: str) -> bool:
    return name in args.only if args.only else name.rpartition(":")[2] not in queue.PRESETS


def run_all(jobs: Iterable[Job], results: Results, runs: Path, parallel: int) -> list[Job]:
    """Runs the jobs and writes down each result as it comes; returns the jobs that failed.

    The pages are drawn at the end, and before it at most every `DRAWING` seconds: that takes as long as a short run.
    """
    failed = []
    drawn = -math.inf

    def run(job: Job) -> Record | RunFailed:
        try:
            return RUNNERS[job.kind](job, runs)
        except RunFailed as error:
            return error

    try:
        with ThreadPoolExecutor(parallel) as pool:
            jobs = list(jobs)
            # The pool gives back the answers in order: only this thread writes files.
            for job, answer in zip(jobs, pool.map(run, jobs)):
                if isinstance(answer, RunFailed):
                    failed.append(job)
                    print(f"{job}: FAILED\n{answer}", file=sys.stderr, flush=True)
                    continue
                results.append(job.kind, answer)
                print(f"{job}: {proof_pages.one_line(job.kind, answer)}", flush=True)
                if time.monotonic() - drawn >= DRAWING:
                    proof_pages.update(results)
                    drawn = time.monotonic()
    finally:
        proof_pages.update(results)
    return failed


def run_queue(jobs: Iterable[Job], results: Results, runs: Path) -> int:
    """Trains each job, from where it was stopped, writes down its row and draws the proof_pages.

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
                proof_pages.update(results)
                print(f"{job}: {proof_pages.one_line(job.kind, record)}", flush=True)
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
    """SIGTERM and SIGINT raise SystemExit, with the exit code of the signal, and say so."""

    def end(number: int, frame: object) -> None:
        print(f"{signal.Signals(number).name}: saving the run; the next call continues it", file=sys.stderr, flush=True)
        sys.exit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 when something did not run; a missed target is shown in the tables but is not an error."""
    args = parse_arguments(argv)
    results = Results(args.docs)
    if args.tables:
        proof_pages.update(results)
        return 0
    jobs = plan(args)
    waiting = jobs if args.again else [job for job in jobs if not results.has(job)]
    print(f"{len(jobs)} runs, {len(jobs) - len(waiting)} of them done before", flush=True)
    if args.queue:
        return run_queue(waiting, results, args.runs)
    return 1 if run_all(waiting, results, args.runs, args.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
