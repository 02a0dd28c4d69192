"""Every algorithm with its own defaults, on the small task of its kind, for about a minute.

``python -m proofs.defaults [ALGORITHM ...]``, at the root, trains each with nothing set but the environment, its
discount and the length of the run, and writes ``docs/results/defaults.json``. An algorithm passes if the evaluation
after the last step is at least a quarter of the way from random play to the target of the task. The exit code is 1 if
one does not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minding import training
from minding.configs import compile_run
from minding.engine.run.run_dir import RunDir
from minding.policies import ALGORITHMS
from proofs import pages
from proofs.runs import ROOT, Results

NAME = "defaults"


class Small(NamedTuple):
    """A task with the return of random play and the one that counts as learned."""

    env_id: str
    random: float
    target: float
    gamma: float = 0.99

    @property
    def floor(self) -> float:
        """A quarter of the way."""
        return round(self.random + (self.target - self.random) / 4, 1)


CARTPOLE = Small("CartPole-v1", 22.0, 475.0)
PENDULUM = Small("Pendulum-v1", -1230.0, -250.0)
AIM = Small("minding/Aim-v0", -0.9, 9.0, gamma=0.5)
SPREAD = Small("mpe2/simple_spread_v3", -79.2, -50.0, gamma=0.95)
STEPS = {
    "a2c": 400_000,
    "a3c": 200_000,
    "c51": 60_000,
    "coma": 400_000,
    "crossq": 4_000,
    "ddpg": 10_000,
    "discrete_sac": 20_000,
    "dqn": 80_000,
    "dreamer": 10_000,
    "fqf": 20_000,
    "idqn": 200_000,
    "impala": 200_000,
    "ippo": 400_000,
    "iqn": 30_000,
    "mappo": 400_000,
    "masac": 15_000,
    "matd3": 15_000,
    "muzero": 10_000,
    "pdqn": 5_000,
    "pg": 400_000,
    "pqn": 200_000,
    "qmix": 200_000,
    "qrdqn": 160_000,
    "qtran": 60_000,
    "r2d2": 60_000,
    "rainbow": 20_000,
    "redq": 1_500,
    "sac": 10_000,
    "td3": 10_000,
    "tqc": 10_000,
    "vdn": 200_000,
    "wqmix": 60_000,
}
"""Environment steps of algorithms that need fewer or more than `_STEPS`."""
_STEPS = 100_000
_OTHERS = ("recorded_reward", "sqil", "self_play")
"""Chains that do not learn from an environment's rewards."""


def steps_of(algorithm: str) -> int:
    """Length of the run."""
    return STEPS.get(algorithm, _STEPS)


def small_task(algorithm: str) -> Small:
    """The task of an algorithm's kind."""
    settings = ALGORITHMS[algorithm]
    if settings.agents == "several":
        return SPREAD
    if settings.actions == ("composite",):
        return AIM
    return CARTPOLE if "discrete" in settings.actions else PENDULUM


def online() -> list[str]:
    """The algorithms that learn from the rewards of an environment: not by imitation, nor by games with themselves."""
    return [name for name, each in ALGORITHMS.items() if each.unit == "env_step" and each.chain not in _OTHERS]


def measure(algorithm: str, seed: int, out: Path) -> dict[str, object]:
    """Trains one and evaluates it."""
    task, steps = small_task(algorithm), steps_of(algorithm)
    cfg = compile_run(
        {},
        [
            f"policy.type={algorithm}",
            f"env.env_id={task.env_id}",
            f"run.max_env_step={steps}",
            f"policy.learn.gamma={task.gamma}",
            f"policy.eval.freq={steps}",
            f"run.out_dir={out}",
            f"seed={seed}",
        ],
    )
    begun = time.monotonic()
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    return {
        "env_id": task.env_id,
        "env_step": steps,
        "seed": seed,
        "random": task.random,
        "floor": task.floor,
        "return": round(summary.eval_return, 2),
        "seconds": round(time.monotonic() - begun, 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.defaults", description=__doc__)
    parser.add_argument("algorithms", nargs="*", default=online(), metavar="ALGORITHM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    args = parser.parse_args(argv)
    file = args.docs / "results" / f"{NAME}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    out = Path(tempfile.mkdtemp(prefix="minding-defaults-"))
    try:
        for algorithm in args.algorithms:
            # A process of its own each: settings of the runtime are fixed by the first policy.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row = found[algorithm] = pool.apply(measure, (algorithm, args.seed, out))
            file.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
            print(f"{algorithm:13} {row['return']:9}  at least {row['floor']:7}  {row['seconds']:6} s", flush=True)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    pages.update(Results(args.docs))
    return int(any(row["return"] < row["floor"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
