"""Recorded data of a task by the recipe of D4RL: ``python -m proofs.benchmark_sets PRESET RUN FOLDER [--steps N]``.

The recipe of Fu et al. (2020), "D4RL: Datasets for deep data-driven reinforcement learning",
https://arxiv.org/abs/2004.07219, section 5, from a finished run of a preset, such as one of the queue:

- random: actions drawn from the action space;
- expert: the policy at the end of the run, acting as while it collects;
- medium-replay: all steps of a run that ends where the first evaluation of RUN reaches a third of the expert's return;
- medium: the policy at the end of that shorter run, acting as while it collects.

D4RL counts returns from 0; here they count from that of random play, which changes little where that is near 0, and
holds where returns are negative. Each set is a folder below FOLDER, ``<preset's task>-<kind>``; what is there is not
made again. A line for each set is appended to ``docs/results/benchmark_sets.jsonl``, with its fingerprint.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import cpu_model
from minding.configs import load_preset
from minding.engine.data.dataset import load_dataset
from minding.engine.run.curves import EVAL_RETURN, series
from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array
from proofs.runs import ROOT, Record, Results, RunFailed, commit, data_figures, last_run, run_module

NAME = "benchmark_sets"
STEPS = 200_000
KINDS = ("random", "expert", "medium-replay", "medium")


def medium_step(steps: Array, returns: Array, random: float) -> int:
    """The environment step of the first evaluation that is a third of the way from random play to the last one.

    Raises:
      RunFailed: there is no evaluation, or the last one is not better than random play.
    """
    if not len(returns) or returns[-1] <= random:
        raise RunFailed(f"expected evaluations that end above random play, {random:.1f}, got {returns.tolist()}")
    return int(steps[(returns >= random + (returns[-1] - random) / 3).argmax()])


def make(preset: str, run: RunDir, folder: Path, steps: int, settings: Sequence[str] = ()) -> list[Record]:
    """Makes the sets that `folder` lacks.

    Args:
      preset: what was trained.
      run: its finished run.
      folder: where the sets are written.
      steps: environment steps of each set but the replay.
      settings: what the shorter run overrides; those of `run`, if it shall be the same run until there.
    Returns:
      A line for each set.
    """
    cfg, task = load_preset(preset), preset.partition("_")[0]
    places = {kind: folder / f"{task}-{kind}" for kind in KINDS}
    shorter = folder / f"{task}-medium-run"

    def record(kind: str, *player: str) -> None:
        if not places[kind].exists():
            run_module("minding", "data", "record", *player, "--steps", str(steps), "--out", str(places[kind]))

    record("random", "--random", "--env", cfg.env.env_id, "--seed", "0")
    record("expert", str(run.path), "--explore")
    evaluated = series(read_metrics(run.metrics), EVAL_RETURN)
    until = medium_step(*evaluated, data_figures(places["random"])["return_mean"])
    if not places["medium-replay"].exists():
        own = [f"run.max_env_step={until}", f"run.out_dir={shorter}", f"exp_name={preset}"]
        run_module("proofs.recordings", preset, str(places["medium-replay"]), *settings, *own)
    record("medium", str(last_run(shorter).path), "--explore")
    return [
        {
            **data_figures(place),
            "fingerprint": load_dataset(place, mapped=True).digest,
            "preset": preset,
            "medium_env_step": until,
            **commit(),
            "processor": cpu_model(),
        }
        for place in places.values()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.benchmark_sets", description=__doc__)
    parser.add_argument("preset", help="such as halfcheetah_sac")
    parser.add_argument("run", type=Path, help="run folder of its finished run")
    parser.add_argument("folder", type=Path, help="where the sets are written")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"environment steps of each set ({STEPS})")
    parser.add_argument("--settings", nargs="*", default=["seed=0"], help="what RUN overrode (seed=0)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    args = parser.parse_args(argv)
    for line in make(args.preset, RunDir.open(args.run), args.folder, args.steps, args.settings):
        Results(args.docs).append(NAME, line)
        print(f"{line['name']}: {line['steps']:,} steps, {line['return_mean']:.1f}, {line['fingerprint'][:12]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
