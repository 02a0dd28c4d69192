"""Memory that twenty runs in one process leave behind: ``python -m proofs.repeated_runs``.

Each preset trains twenty times in a process of its own, and a process without minding compiles, runs and frees a plain
MindSpore update of two networks as often: what MindSpore itself keeps. Writes ``docs/results/repeated_runs.json``;
cases that it holds already are not measured again.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.worker_memory import resident_mb

ROOT = Path(__file__).resolve().parent.parent
RUNS, WARM_UP = 20, 5
CASES: dict[str, tuple[str, ...]] = {
    "cartpole_ppo": ("run.max_env_step=4096",),
    "cartpole_dqn": ("run.max_env_step=2048",),
    "pendulum_sac": ("run.max_env_step=1100", "policy.other.buffer_size=8000000"),
}
"""Presets and their settings: short runs, for what is kept is kept per compilation; SAC with a buffer of 290 MB."""
PLAIN = "MindSpore alone"


def train_repeatedly(preset: str, overrides: Sequence[str], runs: int, sample: Callable[[], None]) -> None:
    """Trains a preset again and again, with another seed each time; `sample` is called after each run."""
    from minding import training
    from minding.configs import compile_run, load_preset
    from minding.engine.run.run_dir import RunDir

    for seed in range(runs):
        folder = tempfile.mkdtemp()
        settings = [f"seed={seed}", "run.final_episodes=1", "run.loggers=[]", f"run.out_dir={folder}"]
        cfg = compile_run(load_preset(preset), [*settings, *overrides])
        training.train(cfg, RunDir.create(cfg), progress=False)
        shutil.rmtree(folder)
        sample()


def compile_repeatedly(runs: int, sample: Callable[[], None]) -> None:
    """Compiles, runs and frees an update of two networks with nothing but MindSpore; `sample` after each."""
    from mindspore.graph import api

    from minding.engine.process.runtime import ms
    from proofs.plain_update import PlainUpdate

    x, y = (ms.Tensor(np.ones((256, size), np.float32)) for size in (4, 2))
    for _ in range(runs):
        update = PlainUpdate()
        update(x, y).asnumpy()
        del update
        gc.collect()
        api.JitExecutor_.get_instance().del_net_res(None, set(api.ms_compile_cache))
        api.ms_compile_cache.clear()
        sample()


def measure(case: str, runs: int) -> list[float]:
    """Resident MB after each run of a case, in this process."""
    resident: list[float] = []

    def sample() -> None:
        resident.append(round(resident_mb(os.getpid()), 1))

    if case == PLAIN:
        compile_repeatedly(runs, sample)
    else:
        train_repeatedly(case, CASES[case], runs, sample)
    return resident


def growth(resident: Sequence[float]) -> float:
    """MB per run, by least squares over the runs after the fifth."""
    later = resident[WARM_UP:]
    return float(np.polyfit(range(len(later)), later, 1)[0])


def in_a_fresh_process(case: str) -> dict[str, Any]:
    """Measures a case in a process of its own."""
    command = [sys.executable, "-m", "proofs.repeated_runs", "--case", case]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(f"{case}: exit code {out.returncode}\n{out.stderr[-2000:]}")
    resident = json.loads(out.stdout.splitlines()[-1])
    return {"runs": len(resident), "mb_per_run": round(growth(resident), 2), "resident_mb": resident}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.repeated_runs", description=__doc__)
    parser.add_argument("--case", choices=[*CASES, PLAIN], help="measure this one here and print its samples")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of a case that is measured here ({RUNS})")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    args = parser.parse_args(argv)
    if args.case is not None:
        print(json.dumps(measure(args.case, args.runs)))
        return 0
    path = args.docs / "results" / "repeated_runs.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for case in [*CASES, PLAIN]:
        if case not in found:
            found[case] = in_a_fresh_process(case)
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{case}: {found[case]['mb_per_run']:+.2f} MB per run", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
