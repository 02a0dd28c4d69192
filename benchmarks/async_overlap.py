"""What asynchronous lanes gain over the same chain in turns: ``python -m benchmarks.async_overlap``.

- Overlap: PPO on a CartPole whose steps wait (as for a remote simulator) or compute, with as many gradient steps as
  take as long as the collection: where a perfect overlap is twice as fast. Each asynchronous run stands between two
  synchronous ones and is compared with their mean speed; the figure is the median of these ratios.
- Scaling: 1, 2, 4 and 8 collectors on the waiting environment, with little to learn.
- Start-up: seconds until the first rollout of `cartpole_ppo` (256 steps) is there, from the start of its worker.

Each run is a process of its own and is timed in its steady state. What was measured takes its place in
``docs/results/async_overlap.json`` and in the tables of ``docs/async.md``; with the waiting environment also the time
line of one asynchronous run (``docs/images/async_overlap.png``). With fewer than five pairs, results are only printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pairs import ROOT, call
from benchmarks.proof_pages import overlap_table, update
from benchmarks.proof_runs import Results
from benchmarks.report import cpu_model, own_versions

STEPS = 64
"""Environment steps of a rollout, in one environment."""
COLLECTORS = (1, 2, 4, 8)
START_UP = "start-up"
_ALIKE = 0.02
"""How far from one half the share of the collection may be in the synchronous run of a pair."""
_TRIES = 6
_DRAWN = 2.0
"""Seconds of the time line in the picture."""


@dataclasses.dataclass(frozen=True)
class Case:
    """An environment, seconds a step, and the least speed-up over a synchronous run."""

    name: str
    env: str
    seconds: float
    target: float


CASES = (
    Case("waiting", "WaitingCartPole", 0.005, 1.9),
    Case("computing", "ComputingCartPole", 0.002, 1.5),
)


@dataclasses.dataclass(frozen=True)
class Work:
    """One timed run.

    Attributes:
      case: name of the environment's case.
      n_epoch: gradient steps on each rollout.
      async_mode: whether lanes overlap.
      collectors: worker processes.
      iterations: on the clock.
      pin: see `LaneOptions`.
      trace: file for a trace; empty for none.
    """

    case: str
    n_epoch: int
    async_mode: bool
    collectors: int = 1
    iterations: int = 24
    pin: str = "auto"
    trace: str = ""


def measure(work: Work) -> dict[str, float]:
    """Runs the chain; returns iterations a second, and seconds an iteration of the collector and the learner."""
    from minding.configs import compile_run
    from minding.configs.recipes import build
    from minding.engine import OnlineRLContext, Task

    task = Task()
    lanes = {"collectors": work.collectors, "max_staleness": work.collectors, "pin": work.pin}
    with task.start(work.async_mode, OnlineRLContext(), lanes=lanes, profile=True, trace=bool(work.trace)):
        build(task, compile_run(_config(work)))
        # Past compilation, and until every collector has delivered.
        task.run(max_step=3 + 2 * work.collectors)
        before = _seconds_by_row(task)
        start, first = time.perf_counter(), task.ctx.total_step
        task.run(max_step=first + work.iterations)
        seconds = time.perf_counter() - start
        spent = {name: total - before[name] for name, total in _seconds_by_row(task).items()}
        if work.trace:
            task.write_trace(work.trace)
    collect = spent.get("StepCollector", 0.0) + spent.get("gae_estimator", 0.0) + spent.get("collect lane", 0.0)
    return {
        "iterations_per_second": work.iterations / seconds,
        "env_steps_per_second": work.iterations * STEPS / seconds,
        "collect_seconds": collect / work.iterations,
        "learn_seconds": spent["multistep_trainer"] / work.iterations,
    }


def start_up() -> float:
    """Seconds that the first iteration of an asynchronous run waits for its rollout."""
    from minding.configs import compile_run, load_preset
    from minding.configs.recipes import build
    from minding.engine import OnlineRLContext, Task

    task = Task()
    with task.start(True, OnlineRLContext(), profile=True):
        build(task, compile_run(load_preset("cartpole_ppo")))
        task.run(max_step=1)
        return _seconds_by_row(task)["collect lane"]


def _config(work: Work) -> Any:
    from easydict import EasyDict

    case = next(case for case in CASES if case.name == work.case)
    return EasyDict(
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
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.async_overlap", "--measure", json.dumps(dataclasses.asdict(work))]
    out = call(command, {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, timeout)
    result: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return result


def start_ups(repeats: int) -> list[float]:
    """`start_up` in processes of their own."""
    command = [sys.executable, "-m", "benchmarks.async_overlap", "--measure", START_UP]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    seconds = [float(call(command, environment, 120.0).strip().splitlines()[-1]) for _ in range(repeats)]
    print(f"first rollout after {statistics.median(seconds):.2f} s (median)", flush=True)
    return seconds


def balanced(case: Case, n_epoch: int, iterations: int) -> tuple[int, dict[str, float]]:
    """A synchronous run in which collection and learning take alike: gradient steps a rollout, and its figures.

    The speed of the machine drifts while collection waits all the same: runs are repeated with other numbers of steps,
    beginning with `n_epoch`, until one is within `_ALIKE`; after `_TRIES` the last one is taken as it is.
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


def overlap(case: Case, pairs: int, iterations: int, pin: str) -> dict[str, Any]:
    """An asynchronous run between two synchronous ones that do the same, the first of them at the balance point."""
    rows = []
    n_epoch = 50
    for pair in range(pairs):
        n_epoch, before = balanced(case, n_epoch, iterations)
        lanes = run(Work(case.name, n_epoch, True, iterations=iterations, pin=pin))
        after = run(Work(case.name, n_epoch, False, iterations=iterations))
        # What the speed of the machine drifts meanwhile cancels out.
        sync = {name: (before[name] + after[name]) / 2 for name in before}
        ratio = lanes["iterations_per_second"] / sync["iterations_per_second"]
        share = _collect_share(sync)
        rows.append({"n_epoch": n_epoch, "sync": sync, "async": lanes, "ratio": ratio, "collect_share": share})
        print(f"{case.name}, pair {pair + 1}: {ratio:.2f}x (collection {share:.0%} of a synchronous run)", flush=True)
    ratios = [row["ratio"] for row in rows]
    return {
        "case": case.name,
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
            timed = run(Work("waiting", 1, True, collectors=count, iterations=iterations * count))
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
    """Returns 0; a missed target is shown and is no error."""
    args = parse_arguments(argv)
    if args.measure == START_UP:
        print(start_up())
        return 0
    if args.measure:
        print(json.dumps(measure(Work(**json.loads(args.measure)))))
        return 0
    wanted = [case for case in CASES if args.only in (None, case.name)]
    measured: dict[str, Any] = {
        "overlap": [overlap(case, args.pairs, args.iterations, args.pin) for case in wanted],
        "scaling": [],
        "start_up": [],
    }
    if args.only in (None, "scaling"):
        measured["scaling"] = scaling(max(1, args.pairs // 2), args.iterations // 2)
    if args.only in (None, START_UP):
        measured["start_up"] = start_ups(args.pairs)
    print(f"\n{overlap_table(measured)}")
    if args.pairs >= 5:
        _write(measured)
    return 0


def _write(measured: dict[str, Any]) -> None:
    docs = ROOT / "docs"
    results = Results(docs)
    before = results.single("async_overlap") or {"overlap": [], "scaling": [], "start_up": []}
    rows = {row["case"]: row for row in [*before["overlap"], *measured["overlap"]]}
    record = {
        "overlap": [rows[case.name] for case in CASES if case.name in rows],
        "scaling": measured["scaling"] or before["scaling"],
        "start_up": measured["start_up"] or before["start_up"],
        "cpu": cpu_model(),
        "versions": own_versions(),
    }
    text = json.dumps(record, indent=1) + "\n"
    (docs / "results" / "async_overlap.json").write_text(text, encoding="utf-8")
    update(results)
    if any(row["case"] == CASES[0].name for row in measured["overlap"]):
        _draw(measured["overlap"][0]["pairs"][-1]["n_epoch"], docs / "images" / "async_overlap.png")


def _draw(n_epoch: int, image: Path) -> None:
    """Draws the time line of an asynchronous run on the waiting environment."""
    from minding.engine.plotting import plot_trace

    image.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        run(Work(CASES[0].name, n_epoch, True, iterations=6, trace=str(trace)))
        plot_trace(json.loads(trace.read_text(encoding="utf-8")), image, seconds=_DRAWN)


if __name__ == "__main__":
    sys.exit(main())
