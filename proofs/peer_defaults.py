"""Our defaults against those of Stable-Baselines3: ``python -m proofs.peer_defaults [--side SIDE] [TASK ...]``.

No setting is given on either side; returns are those of 100 episodes of the deterministic policy after half and all of
the steps, in environments that training has not seen. Each run is a process of its own and a row of
``docs/results/peer_defaults.jsonl``; the next call runs what is missing, and
``python -m proofs.run --tables`` writes the table. The interpreter of Stable-Baselines3 is
``MINDING_PEERS_PYTHON``, as for the benchmarks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import cpu_model
from proofs.runs import ROOT, Results, commit

NAME = "peer_defaults"
SIDES = ("minding", "SB3")
SEEDS = (0, 1, 2)
EPISODES = 100


class Task(NamedTuple):
    """A row of the table.

    Attributes:
      algorithm: its name there; lower case here.
      env_id: an id of Gymnasium, or `module:Class`.
      steps: environment steps; returns are also measured after half of them.
      chosen: whether the defaults were chosen on it.
    """

    algorithm: str
    env_id: str
    steps: int
    chosen: bool = False

    @property
    def name(self) -> str:
        """``algorithm:environment``, as the command line takes it."""
        return f"{self.algorithm.lower()}:{self.env_id.rpartition(':')[2].rpartition('/')[2]}"


TASKS = (
    Task("PPO", "LunarLander-v3", 100_000, chosen=True),
    Task("PPO", "Hopper-v5", 100_000, chosen=True),
    Task("PPO", "proofs.scale_tasks:Servers", 100_000, chosen=True),
    Task("PPO", "MountainCarContinuous-v0", 100_000, chosen=True),
    Task("PPO", "Acrobot-v1", 100_000),
    Task("PPO", "BipedalWalker-v3", 100_000),
    Task("PPO", "proofs.scale_tasks:Warehouse", 100_000),
    Task("PPO", "proofs.scale_tasks:Spot", 100_000, chosen=True),
    Task("DQN", "LunarLander-v3", 100_000, chosen=True),
    Task("DQN", "CartPole-v1", 100_000),
    Task("DQN", "MinAtar/Breakout-v1", 100_000, chosen=True),
    Task("SAC", "Hopper-v5", 60_000, chosen=True),
    Task("SAC", "LunarLanderContinuous-v3", 60_000),
    Task("SAC", "BipedalWalker-v3", 60_000),
    Task("TD3", "Hopper-v5", 60_000, chosen=True),
    Task("TD3", "LunarLanderContinuous-v3", 60_000),
    Task("TD3", "BipedalWalker-v3", 60_000),
)


def run_sb3(task: Task, seed: int) -> list[dict[str, float]]:
    """What the other library reaches after half and all of the steps."""
    python = os.environ["MINDING_PEERS_PYTHON"]
    steps = [str(task.steps // 2), str(task.steps)]
    command = [python, "-m", "proofs.sb3_defaults", task.algorithm, task.env_id, str(seed), *steps]
    env = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


_OURS = """
import json, sys
import minding
algorithm, env_id, seed, steps, *settings = sys.argv[1:]
steps = int(steps)
with minding.Agent(algorithm, env_id, seed=int(seed), settings=settings, progress=False) as agent:
    for step in (steps // 2, steps):
        summary = agent.learn(steps // 2, total=steps)
        print(json.dumps({"step": step, "mean": round(summary.eval_return, 3), "std": round(summary.eval_std, 3),
                          "seconds": round(summary.wall_time, 2)}))
"""


def run_ours(task: Task, seed: int, changes: Sequence[str] = ()) -> list[dict[str, float]]:
    """What we reach after half and all of the steps."""
    with tempfile.TemporaryDirectory(prefix="minding-defaults-") as folder:
        # How it is measured, not how it learns.
        settings = [f"policy.eval.freq={task.steps}", f"run.final_episodes={EPISODES}", f"run.out_dir={folder}"]
        run = [task.algorithm.lower(), task.env_id, str(seed), str(task.steps), *settings, *changes]
        done = subprocess.run(
            [sys.executable, "-c", _OURS, *run], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The probability that a run of ours is better than one of theirs (Agarwal et al., 2021, section 4.3)."""
    return float(np.mean([(ours > each) + 0.5 * (ours == each) for ours in ours for each in theirs]))


def peer_defaults_table(results: Results) -> str:
    """Mean, lowest and highest return over seeds on both sides."""
    rows = results.lines(NAME)
    head = ["algorithm", "environment", "env steps", *SIDES]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    chances = []
    for task in TASKS:
        sides = [
            {row["seed"]: row["evaluations"] for row in rows if (row["task"], row["side"]) == (task.name, side)}
            for side in SIDES
        ]
        if not any(sides):
            continue
        for half, steps in enumerate((task.steps // 2, task.steps)):
            found = [[seed[half] for seed in side.values()] for side in sides]
            returns = [[each["mean"] for each in side] for side in found]
            if all(returns):
                chances.append(improvement(*returns))
            environment = task.env_id.rpartition(":")[2] + "\\*" * task.chosen
            cells = [task.algorithm, environment, f"{steps:,}", *map(_spread, returns)]
            lines.append(f"| {' | '.join(cells)} |")
    if chances:
        better = sum(chance > 0.5 for chance in chances)
        lines += [
            "",
            f"Measured on both sides: {len(chances)} rows. A run of ours is the better one with a probability of "
            f"{np.mean(chances):.2f}, the mean over rows; it is above one half in {better} of them.",
        ]
    return "\n".join([*lines, ""])


def _spread(returns: Sequence[float]) -> str:
    if not returns:
        return "not measured"
    digits = 0 if max(map(abs, returns)) >= 1000 else 1
    mean, low, high = (f"{value:,.{digits}f}" for value in (np.mean(returns), min(returns), max(returns)))
    return f"{mean} ({low} to {high}; {len(returns)})" if len(returns) > 1 else mean


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.peer_defaults", description=__doc__)
    parser.add_argument("tasks", nargs="*", choices=[[], *(task.name for task in TASKS)], metavar="TASK")
    parser.add_argument("--side", choices=SIDES, action="append", help="only this side")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    args = parser.parse_args(argv)
    results = Results(args.docs)
    done = {(row["side"], row["task"], row["seed"]) for row in results.lines(NAME)}
    for seed, task, side in itertools.product(SEEDS, TASKS, args.side or SIDES):
        if (args.tasks and task.name not in args.tasks) or (side, task.name, seed) in done:
            continue
        found = {"minding": run_ours, "SB3": run_sb3}[side](task, seed)
        row = {"side": side, "task": task.name, "seed": seed, "evaluations": found}
        results.append(NAME, {**row, **commit(), "processor": cpu_model()})
        said = [(each["mean"], each["seconds"]) for each in found]
        print(f"{side:8} {task.name:30} seed {seed} {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
