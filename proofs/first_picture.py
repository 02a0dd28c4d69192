"""The picture of README: PPO with no setting given, beside Stable-Baselines3's: ``python -m proofs.first_picture``.

Five seeds of both libraries on the task that README trains, in one thread each. Every evaluation is 10 episodes of the
deterministic policy, in environments that training has not seen. A run is a row of
``docs/results/first_picture.jsonl``; the next call runs what is missing, and draws ``docs/images/first_picture.png``.
The interpreter of Stable-Baselines3 is ``MINDING_PEERS_PYTHON``, as for the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import cpu_model
from minding.engine.run.curves import EVAL_RETURN, mean_curve, series
from minding.engine.run.metrics import read_metrics
from minding.engine.run.plotting import plot_curves
from proofs.runs import ROOT, Results, commit

NAME = "first_picture"
ENV_ID, STEPS, EVERY, EPISODES, SEEDS = "CartPole-v1", 40_000, 4_000, 10, range(5)
SIDES = {"minding": "minding", "SB3": "Stable-Baselines3"}


def run_ours(seed: int) -> list[tuple[float, float]]:
    """Steps and mean returns of the evaluations of a seed."""
    with tempfile.TemporaryDirectory(prefix="minding-picture-") as folder:
        settings = [f"policy.eval.freq={EVERY}", f"policy.eval.n_episode={EPISODES}", f"run.final_episodes={EPISODES}"]
        words = ["train", "ppo", "--env", ENV_ID, f"seed={seed}", f"run.max_env_step={STEPS}", "-o", folder, *settings]
        subprocess.run([sys.executable, "-m", "minding", *words, "--no-progress"], cwd=ROOT, check=True)
        metrics = read_metrics(next(Path(folder).glob("*/metrics.csv")))
    return list(zip(*(each.tolist() for each in series(metrics, EVAL_RETURN)), strict=True))


def run_sb3(seed: int) -> list[tuple[float, float]]:
    """The same of the other library."""
    python = os.environ["MINDING_PEERS_PYTHON"]
    steps = map(str, range(EVERY, STEPS + 1, EVERY))
    command = [python, "-m", "proofs.sb3_defaults", "PPO", ENV_ID, str(seed), *steps, "--episodes", str(EPISODES)]
    env = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(row["step"], row["mean"]) for row in rows]


def draw(results: Results) -> None:
    """Draws the picture if both sides were measured."""
    curves = []
    for side, label in SIDES.items():
        runs = [np.array(row["evaluations"]).T for row in results.lines(NAME) if row["side"] == side]
        if runs:
            curves.append(mean_curve(label, [(steps, returns) for steps, returns in runs], env_id=ENV_ID))
    if len(curves) == len(SIDES):
        plot_curves(curves, results.docs / "images" / f"{NAME}.png")


def main() -> None:
    results = Results(ROOT / "docs")
    done = {(row["side"], row["seed"]) for row in results.lines(NAME)}
    for seed in SEEDS:
        for side, run in (("minding", run_ours), ("SB3", run_sb3)):
            if (side, seed) not in done:
                row = {"side": side, "seed": seed, "evaluations": run(seed), **commit(), "processor": cpu_model()}
                results.append(NAME, row)
                print(side, seed, row["evaluations"][-1], flush=True)
    draw(results)


if __name__ == "__main__":
    main()
