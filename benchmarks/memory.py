"""Memory and recompilations of a long run: ``python -m benchmarks.memory cartpole_ppo 1000000 0``; prints JSON."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.worker_memory import resident_mb
from minding import training
from minding.configs import compile_run, load_preset
from minding.engine import OnlineRLContext, Task
from minding.engine.process.compiled import RecompileWarning
from minding.middleware import termination_checker

SAMPLES = 50
WARM_UP = 0.2
"""Share of the samples that the slope leaves out: pools and caches fill in the beginning."""


def memory_sampler(every: int, samples: list[tuple[float, int, float]]) -> Callable[[Any], None]:
    """Appends (seconds, environment steps, resident MB) each `every` environment steps."""
    start = time.perf_counter()

    def sample(ctx: Any) -> None:
        if ctx.env_step >= every * (len(samples) + 1):
            samples.append((time.perf_counter() - start, ctx.env_step, resident_mb(os.getpid())))

    return sample


def slope(samples: Sequence[tuple[float, int, float]]) -> tuple[float, float]:
    """Least-squares growth after the warm-up: (% of the level an hour, MB a million environment steps)."""
    seconds, env_step, resident = np.array(samples[int(WARM_UP * len(samples)) :], np.float64).T
    an_hour = float(np.polyfit(seconds / 3600.0, resident, 1)[0] / resident.mean() * 100.0)
    return an_hour, float(np.polyfit(env_step / 1e6, resident, 1)[0])


def watch(preset: str, max_env_step: int, seed: int) -> tuple[list[tuple[float, int, float]], int]:
    """Trains a preset; returns the samples of its memory and how often something was compiled again."""
    cfg = compile_run(load_preset(preset), [f"seed={seed}", f"run.max_env_step={max_env_step}"])
    samples: list[tuple[float, int, float]] = []
    task = Task()
    with warnings.catch_warnings(record=True) as caught, task.start(ctx=OnlineRLContext()):
        warnings.simplefilter("always", RecompileWarning)
        training.build(task, cfg)
        task.use(memory_sampler(max(1, max_env_step // SAMPLES), samples))
        task.use(termination_checker(max_env_step=max_env_step, task=task))
        task.run()
    return samples, sum(issubclass(each.category, RecompileWarning) for each in caught)


def main() -> None:
    samples, recompilations = watch(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    percent_an_hour, mb_a_million = slope(samples)
    figures = {
        "seconds": round(samples[-1][0], 1),
        "first_mb": round(samples[int(WARM_UP * len(samples))][2], 1),
        "last_mb": round(samples[-1][2], 1),
        "slope_percent_an_hour": round(percent_an_hour, 3),
        "slope_mb_a_million_steps": round(mb_a_million, 3),
        "recompilations": recompilations,
        "samples": [[round(seconds, 1), env_step, round(mb, 1)] for seconds, env_step, mb in samples],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
