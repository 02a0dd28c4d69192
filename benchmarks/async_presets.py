"""What real presets gain from lanes: ``python -m benchmarks.async_presets``.

PPO as its presets train it, with everything that `minding train` puts into the chain (evaluator, checkpoints, metrics,
TensorBoard, progress), and one case with 64 environments whose collection takes about half as long as its learning.
A synchronous and an asynchronous run of the same work follow each other, each in a separate process, in alternating
order; the figures are medians over the pairs.

An iteration of an asynchronous run takes as long as the longer of its two parts, collection or learning, and what lies
between: handing over weights and rollouts, logging, checkpoints, the loop itself. Results go to
``docs/results/async_presets.json`` and to the table in ``docs/results/async_runs.md``; with fewer than five pairs, they
are only printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.pairs import ROOT, call
from benchmarks.report import cpu_model, own_versions

COLLECT, LEARN, LAST = ("StepCollector", "gae_estimator"), ("multistep_trainer",), "online_logger"


@dataclasses.dataclass(frozen=True)
class Case:
    """A preset with overrides, iterations before the clock and on it, and the least speed-up (None: no target)."""

    name: str
    preset: str
    overrides: tuple[str, ...]
    warmup: int
    iterations: int
    target: float | None = None


CASES = (
    Case(
        "64 environments",
        "cartpole_ppo",
        (
            *("env.collector_env_num=64", "policy.collect.n_sample=8192"),
            *("policy.learn.n_epoch=4", "policy.learn.n_minibatch=4", "policy.learn.learning_rate=0.00025"),
            "policy.learn.target_kl=null",
            # Long enough for the learning rate to stay about the same, and without evaluations.
            *("run.max_env_step=100000000", "policy.eval.freq=1000000000"),
        ),
        warmup=20,
        iterations=100,
        target=1.3,
    ),
    Case("cartpole_ppo", "cartpole_ppo", (), warmup=20, iterations=150),
    Case("pendulum_ppo", "pendulum_ppo", (), warmup=10, iterations=60),
    Case("lunarlander_ppo", "lunarlander_ppo", (), warmup=10, iterations=40),
)


def measure(case: Case, async_mode: bool) -> dict[str, float]:
    """Runs the chain of `minding train`; returns the figures of `figures`."""
    from minding.configs import compile_run, load_preset
    from minding.engine import OnlineRLContext, Task
    from minding.engine.run.run_dir import RunDir
    from minding.middleware import CkptSaver, online_logger
    from minding.training import build

    with tempfile.TemporaryDirectory() as folder:
        cfg = compile_run(load_preset(case.preset), [*case.overrides, f"run.out_dir={folder}", "exp_name=run"])
        run_dir, trace, task = RunDir.create(cfg), Path(folder) / "trace.json", Task()
        with task.start(async_mode, OnlineRLContext(), lanes=cfg.lanes, trace=True):
            policy = build(task, cfg)
            task.use(CkptSaver(policy, "run", cfg.run.ckpt_freq, out_dir=folder, task=task))
            task.use(online_logger(cfg, run_dir))
            # One more at the end, for which the collector works during the last one on the clock.
            task.run(max_step=case.warmup + case.iterations + 1)
            task.write_trace(trace)
        events = [event for event in json.loads(trace.read_text("utf-8"))["traceEvents"] if event["ph"] == "X"]
    return figures(events, case)


def figures(events: Sequence[Mapping[str, Any]], case: Case) -> dict[str, float]:
    """Means over the iterations on the clock, in milliseconds.

    Args:
      events: of a trace, times in microseconds.
      case: says which iterations count.

    Returns:
      ``iteration``, its parts ``collect`` and ``learn``, ``logging``, and ``between``: what an asynchronous iteration
      takes beyond the longer part.
    """
    ends = [event["ts"] + event["dur"] for event in events if event["name"] == LAST]
    begin, end = ends[case.warmup - 1], ends[case.warmup + case.iterations - 1]

    def of(names: Sequence[str]) -> float:
        spans = (event["dur"] for event in events if event["name"] in names and begin <= event["ts"] < end)
        return sum(spans) / case.iterations / 1e3

    iteration, collect, learn = (end - begin) / case.iterations / 1e3, of(COLLECT), of(LEARN)
    return {
        "iteration": iteration,
        "collect": collect,
        "learn": learn,
        "logging": of((LAST,)),
        "between": iteration - max(collect, learn),
    }


def run(case: Case, async_mode: bool) -> dict[str, float]:
    """`measure` in a separate process."""
    mode = "async" if async_mode else "sync"
    command = [sys.executable, "-m", "benchmarks.async_presets", "--only", case.name, "--measure", mode]
    out = call(command, {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, timeout=600.0)
    result: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return result


def compare(case: Case, pairs: int) -> dict[str, Any]:
    """Pairs of a synchronous and an asynchronous run."""
    rows = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        timed = {async_mode: run(case, async_mode) for async_mode in order}
        ratio = timed[False]["iteration"] / timed[True]["iteration"]
        rows.append({"sync": timed[False], "async": timed[True], "ratio": ratio})
        iterations = ", ".join(f"{timed[mode]['iteration']:.1f} ms" for mode in (False, True))
        print(f"{case.name}, pair {pair + 1}: {iterations}, {ratio:.2f}x", flush=True)
    median = statistics.median(row["ratio"] for row in rows)
    return {"case": case.name, "target": case.target, "median": median, "pairs": rows}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0; a missed target is shown but is not an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_presets", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of each case (5)")
    parser.add_argument("--only", choices=[case.name for case in CASES], help="one case")
    parser.add_argument("--measure", choices=("sync", "async"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    wanted = [case for case in CASES if args.only in (None, case.name)]
    if args.measure:
        print(json.dumps(measure(wanted[0], args.measure == "async")))
        return 0
    measured = [compare(case, args.pairs) for case in wanted]
    print(f"\n{pages.presets_table(measured)}")
    if args.pairs >= 5:
        _write(measured)
    return 0


def _write(measured: list[dict[str, Any]]) -> None:
    docs = ROOT / "docs"
    found = {row["case"]: row for row in (pages.read("async_presets", docs) or {"cases": []})["cases"]}
    found.update({row["case"]: row for row in measured})
    cases = [found[case.name] for case in CASES if case.name in found]
    pages.write("async_presets", {"cases": cases, "cpu": cpu_model(), "versions": own_versions()}, docs)


if __name__ == "__main__":
    sys.exit(main())
