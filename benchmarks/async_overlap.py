"""What asynchronous lanes gain over the same chain run synchronously: ``python -m benchmarks.async_overlap``.

- Overlap: PPO on a CartPole whose steps wait (as for a remote simulator) or compute, with as many gradient steps as
  take as long as the collection: where a perfect overlap is twice as fast. Asynchronous runs, one for each
  `max_staleness`, stand between two synchronous ones and are compared with their mean speed; the figures are medians
  of these ratios. An iteration of an asynchronous run counts when both its halves were done on the clock: rollouts
  that lay ready at the start give no speed.
- Scaling: 1, 2, 4 and 8 collectors on the waiting environment, with little to learn.
- Start-up: seconds until the first rollout of `cartpole_ppo` (512 steps) is there, from the start of its worker.

Each run is a separate process and is timed in its steady state. What was measured takes its place in
``docs/results/async_overlap.json`` and in the tables of ``docs/results/async_runs.md``; with the waiting environment
also the time line of one asynchronous run (``docs/images/async_overlap.png``). With fewer than five pairs, results are
only printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.pairs import ROOT, call
from benchmarks.report import cpu_model, own_versions

STEPS = 64
"""Environment steps of a rollout, in one environment."""
COLLECTORS = (1, 2, 4, 8)
START_UP = "start-up"
_ALIKE = 0.02
"""How far from one half the share of the collection may be in the synchronous run of a pair."""
_TRIES = 6
_DRAWN = 2.0
"""Seconds of the timeline in the picture."""


@dataclasses.dataclass(frozen=True)
class Case:
    """An environment, seconds a step, the values of `max_staleness`, and the least speed-up over a synchronous run."""

    name: str
    env: str
    seconds: float
    stalenesses: tuple[int, ...]
    target: float


CASES = (
    Case("waiting", "WaitingCartPole", 0.005, (1, 4), 1.9),
    Case("computing", "ComputingCartPole", 0.002, (1, 4), 1.5),
)


@dataclasses.dataclass(frozen=True)
class Work:
    """One timed run.

    Attributes:
      case: name of the environment's case.
      n_epoch: gradient steps on each rollout.
      async_mode: whether lanes overlap.
      collectors: worker processes.
      max_staleness: see `LaneOptions`.
      iterations: on the clock.
      pin: see `LaneOptions`.
      trace: file for a trace; empty for none.
    """

    case: str
    n_epoch: int
    async_mode: bool
    collectors: int = 1
    max_staleness: int = 1
    iterations: int = 24
    pin: str = "auto"
    trace: str = ""


def measure(work: Work) -> dict[str, float]:
    """Runs the chain; returns what `speeds` does, and the memory of all processes as `family_peak_mb` counts it."""
    from benchmarks.worker_memory import family_peak_mb
    from minding.configs import compile_run
    from minding.engine import OnlineRLContext, Task
    from minding.training import build

    task = Task()
    lanes = {"collectors": work.collectors, "max_staleness": work.max_staleness, "pin": work.pin}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(work.trace or Path(folder) / "trace.json")
        with task.start(work.async_mode, OnlineRLContext(), lanes=lanes, trace=True):
            build(task, compile_run(_config(work)))
            # Before the clock: compilation, and until every collector has delivered. After it: as many iterations as
            # are under way at a time, since nothing is collected that a run would not learn from.
            task.run(max_step=3 + 3 * work.max_staleness + 1 + work.iterations)
            task.write_trace(trace)
            memory = family_peak_mb(os.getpid())
        events = [event for event in json.loads(trace.read_text("utf-8"))["traceEvents"] if event["ph"] == "X"]
    return {**speeds(events, work.iterations, after=work.max_staleness + 1), "peak_mb": memory}


def speeds(events: Sequence[Mapping[str, Any]], iterations: int, after: int) -> dict[str, float]:
    """Iterations a second, and the seconds of an iteration's two halves.

    Args:
      events: of a trace, times in microseconds.
      iterations: on the clock, which runs from the end of one iteration's learning to that of another's.
      after: iterations by which it is late.
    """
    learned = [event for event in events if event["name"] == "multistep_trainer"]
    learned = learned[: len(learned) - after][-iterations - 1 :]
    begin, end = (event["ts"] + event["dur"] for event in (learned[0], learned[-1]))
    rollouts = [event for event in events if event["name"] == "StepCollector"]
    # A rollout that lay ready at the start was collected off the clock.
    done = min(sum(_share_within(event, begin, end) for event in half) for half in (learned, rollouts))
    iterations_per_second = done / (end - begin) * 1e6
    return {
        "iterations_per_second": iterations_per_second,
        "env_steps_per_second": iterations_per_second * STEPS,
        "collect_seconds": statistics.mean(event["dur"] for event in rollouts if begin <= event["ts"] < end) / 1e6,
        "learn_seconds": statistics.mean(event["dur"] for event in learned[1:]) / 1e6,
    }


def _share_within(event: Mapping[str, Any], begin: float, end: float) -> float:
    """The part of an event, from 0 to 1, that lies between two moments."""
    within = min(end, event["ts"] + event["dur"]) - max(begin, event["ts"])
    return max(0.0, within) / max(event["dur"], 1e-9)


def start_up() -> float:
    """Seconds that the first iteration of an asynchronous run waits for its rollout."""
    from minding.configs import compile_run, load_preset
    from minding.engine import OnlineRLContext, Task
    from minding.training import build

    task = Task()
    with task.start(True, OnlineRLContext(), profile=True):
        build(task, compile_run(load_preset("cartpole_ppo")))
        task.run(max_step=1)
        return _seconds_by_row(task)["collect lane"]


def _config(work: Work) -> Any:
    from minding.engine import Config

    case = next(case for case in CASES if case.name == work.case)
    return Config(
        exp_name="async_overlap",
        env=dict(
            env_id=f"benchmarks.slow_cartpole:{case.env}",
            env_kwargs=dict(seconds=case.seconds),
            collector_env_num=1,
            backend="sync",
        ),
        policy=dict(
            type="ppo",
            learn=dict(n_epoch=work.n_epoch, n_minibatch=1),
            collect=dict(n_sample=STEPS),
            eval=dict(freq=10**9),
        ),
    )


def _seconds_by_row(task: Any) -> dict[str, float]:
    lines = task.profile().splitlines()[1:-1]
    return {line.rsplit(None, 4)[0].strip(): float(line.rsplit(None, 4)[2]) for line in lines}


def run(work: Work, timeout: float = 600.0) -> dict[str, float]:
    """`measure` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.async_overlap", "--measure", json.dumps(dataclasses.asdict(work))]
    out = call(command, {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, timeout)
    result: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return result


def start_ups(repeats: int) -> list[float]:
    """`start_up` in separate processes."""
    command = [sys.executable, "-m", "benchmarks.async_overlap", "--measure", START_UP]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    seconds = [float(call(command, environment, 120.0).strip().splitlines()[-1]) for _ in range(repeats)]
    print(f"first rollout after {statistics.median(seconds):.2f} s (median)", flush=True)
    return seconds


def balanced(case: Case, n_epoch: int, iterations: int) -> tuple[int, dict[str, float]]:
    """A synchronous run in which collection and learning take alike: gradient steps a rollout, and its figures.

    The speed of the machine drifts while collection waits regardless: runs are repeated with other numbers of steps,
    beginning with `n_epoch`, until one is within `_ALIKE`; after `_TRIES` the last one is used.
    """
    timed = run(Work(case.name, n_epoch, False, iterations=iterations))
    for _ in range(_TRIES - 1):
        if abs(_collect_share(timed) - 0.5) <= _ALIKE:
            break
        n_epoch = max(1, round(n_epoch * timed["collect_seconds"] / timed["learn_seconds"]))
        timed = run(Work(case.name, n_epoch, False, iterations=iterations))
    return n_epoch, timed


def _collect_share(timed: Mapping[str, float]) -> float:
    return timed["collect_seconds"] / (timed["collect_seconds"] + timed["learn_seconds"])


def overlap(case: Case, pairs: int, iterations: int, pin: str) -> list[dict[str, Any]]:
    """Asynchronous runs between two synchronous ones that do the same, the first of them at the balance point."""
    rows: dict[int, list[dict[str, Any]]] = {staleness: [] for staleness in case.stalenesses}
    n_epoch = 50
    for pair in range(pairs):
        n_epoch, before = balanced(case, n_epoch, iterations)
        # In turns the one or the other first.
        order = case.stalenesses if pair % 2 == 0 else case.stalenesses[::-1]
        lanes = {
            staleness: run(Work(case.name, n_epoch, True, max_staleness=staleness, iterations=iterations, pin=pin))
            for staleness in order
        }
        after = run(Work(case.name, n_epoch, False, iterations=iterations))
        # What the speed of the machine drifts meanwhile cancels out.
        sync = {name: (before[name] + after[name]) / 2 for name in before}
        share = _collect_share(sync)
        print(f"{case.name}, pair {pair + 1}: collection {share:.0%} of a synchronous run", end="")
        for staleness, timed in lanes.items():
            ratio = timed["iterations_per_second"] / sync["iterations_per_second"]
            row = {"n_epoch": n_epoch, "sync": sync, "async": timed, "ratio": ratio, "collect_share": share}
            rows[staleness].append(row)
            print(f"; max_staleness {staleness}: {ratio:.2f}x", end="")
        print(flush=True)
    return [_summary(case, staleness, pairs_of_it) for staleness, pairs_of_it in rows.items()]


def _summary(case: Case, staleness: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [row["ratio"] for row in rows]
    return {
        "case": case.name,
        "max_staleness": staleness,
        "target": case.target,
        "median": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "pairs": rows,
    }


def scaling(repeats: int, iterations: int) -> list[dict[str, Any]]:
    """Speed with several collectors over that with one."""
    speeds: dict[int, list[float]] = {count: [] for count in COLLECTORS}
    for _ in range(repeats):
        for count in COLLECTORS:
            timed = run(Work("waiting", 1, True, count, max_staleness=count, iterations=iterations * count))
            speeds[count].append(timed["env_steps_per_second"])
    rows = []
    for count, speed in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speed, speeds[1]))
        rows.append({"collectors": count, "env_steps_per_second": speed, "ratio": ratio, "share": ratio / count})
        print(f"{count} collectors: {statistics.median(speed):.0f} steps/s, {ratio:.2f}x", flush=True)
    return rows


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_overlap", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of each environment (5)")
    parser.add_argument("--iterations", type=int, default=24, help="iterations on the clock (24)")
    parser.add_argument("--only", choices=[*(case.name for case in CASES), "scaling", START_UP], help="one part")
    parser.add_argument("--pin", default="auto", help="see lanes.pin (auto)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0; a missed target is shown but is not an error."""
    args = parse_arguments(argv)
    if args.measure == START_UP:
        print(start_up())
        return 0
    if args.measure:
        print(json.dumps(measure(Work(**json.loads(args.measure)))))
        return 0
    wanted = [case for case in CASES if args.only in (None, case.name)]
    measured: dict[str, Any] = {
        "overlap": [row for case in wanted for row in overlap(case, args.pairs, args.iterations, args.pin)],
        "scaling": [],
        "start_up": [],
    }
    if args.only in (None, "scaling"):
        measured["scaling"] = scaling(max(1, args.pairs // 2), args.iterations // 2)
    if args.only in (None, START_UP):
        measured["start_up"] = start_ups(args.pairs)
    print(f"\n{pages.overlap_table(measured)}")
    if args.pairs >= 5:
        _write(measured)
    return 0


def _write(measured: dict[str, Any]) -> None:
    docs = ROOT / "docs"
    before = pages.read("async_overlap", docs) or {"overlap": [], "scaling": [], "start_up": []}
    again = {row["case"] for row in measured["overlap"]}
    kept = [row for row in before["overlap"] if row["case"] not in again]
    names = [case.name for case in CASES]
    record = {
        "overlap": sorted([*kept, *measured["overlap"]], key=lambda row: names.index(row["case"])),
        "scaling": measured["scaling"] or before["scaling"],
        "start_up": measured["start_up"] or before["start_up"],
        "cpu": cpu_model(),
        "versions": own_versions(),
    }
    pages.write("async_overlap", record, docs)
    if any(row["case"] == CASES[0].name for row in measured["overlap"]):
        _draw(measured["overlap"][0]["pairs"][-1]["n_epoch"], docs / "images" / "async_overlap.png")


def _draw(n_epoch: int, image: Path) -> None:
    """Draws the timeline of an asynchronous run on the waiting environment."""
    from minding.engine.run.plotting import plot_trace

    image.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        run(Work(CASES[0].name, n_epoch, True, iterations=6, trace=str(trace)))
        plot_trace(json.loads(trace.read_text(encoding="utf-8")), image, seconds=_DRAWN)


if __name__ == "__main__":
    sys.exit(main())
