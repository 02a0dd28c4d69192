"""Asynchronous runs under strain: ``python -m proofs.soak [speeds|kills]``; writes docs/results/async_*.json.

- speeds: DQN on CartPole, first with a learner ten times slower than its collector, then with a collector ten times
  slower than the learner: memory, age of the weights, and gradient steps per sample.
- kills: PPO on CartPole while a random worker process is killed (SIGKILL) repeatedly: time until the run continues,
  and the return at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.configs import compile_run, load_preset
from minding.engine import Config, OnlineRLContext, Task
from minding.training import build, final_evaluation
from proofs.pages import update
from proofs.runs import Results

ROOT = Path(__file__).resolve().parent.parent
_SAMPLE = 5.0
"""Seconds between two looks at memory."""


def speeds(seconds: float, factor: float = 10.0) -> dict[str, Any]:
    """Half of the time with a slow learner, half with a slow collector."""
    slow_learner = _phase(["env.env_id=CartPole-v1"], seconds / 2, lambda took: (factor - 1.0) * took)
    # What one iteration of the learner takes, as its collector's share of the wait.
    wait = factor * slow_learner["learn_ms"] / 1000.0 / slow_learner["steps_an_iteration"]
    slow = ["env.env_id=benchmarks.slow_cartpole:WaitingCartPole", f"env.env_kwargs={{seconds: {wait:.5f}}}"]
    return {"factor": factor, "slow_learner": slow_learner, "slow_collector": _phase(slow, seconds / 2, lambda _: 0.0)}


def _phase(overrides: list[str], seconds: float, pause: Callable[[float], float]) -> dict[str, Any]:
    cfg = compile_run(load_preset("cartpole_dqn"), [*overrides, "policy.eval.freq=1000000000"])
    task = Task()
    with task.start(True, OnlineRLContext(), lanes=cfg.lanes):
        build(task, cfg)
        watch = _Watch(task, seconds, pause)
        task.use(watch)
        task.run()
        assert task.lanes is not None
        bound = task.lanes.options.max_staleness or 0
        nominal = cfg.policy.learn.update_per_collect / cfg.policy.collect.n_sample
        ctx: Any = task.ctx
        learned = ctx.env_step - cfg.policy.learn.warmup + cfg.policy.collect.n_sample
        return {**watch.result(), "max_staleness": bound, "ratio_error": ctx.train_iter / (nominal * learned) - 1.0}


class _Watch:
    """Last in the chain: pauses after the learner, and notes memory, lag and time."""

    def __init__(self, task: Task, seconds: float, pause: Callable[[float], float]) -> None:
        self._task = task
        self._pause = pause
        self._end = time.monotonic() + seconds
        self._last = self._next = time.monotonic()
        self._memory: list[tuple[float, float]] = []
        self._lags: list[float] = []
        self._took: list[float] = []
        self._steps = 0

    def __call__(self, ctx: Any) -> None:
        now = time.monotonic()
        if ctx.train_output:
            self._took.append(now - self._last)
            time.sleep(self._pause(statistics.median(self._took[-50:])))
        if ctx.policy_lag:
            self._lags.append(ctx.policy_lag["max"])
        if now >= self._next:
            self._next = now + _SAMPLE
            assert self._task.lanes is not None
            self._memory.append((now, sum(map(_resident_mb, [os.getpid(), *self._task.lanes.worker_pids]))))
        self._steps = ctx.env_step
        self._task.finish = now >= self._end
        self._last = time.monotonic()

    def result(self) -> dict[str, Any]:
        """What was noted; memory from the middle on, when everything has been allocated."""
        half = self._memory[len(self._memory) // 2 :]
        slope = np.polyfit([t for t, _ in half], [mb for _, mb in half], 1)[0] if len(half) > 2 else float("nan")
        return {
            "env_step": self._steps,
            "steps_an_iteration": self._steps / max(1, len(self._lags)),
            "learn_ms": 1000.0 * statistics.median(self._took),
            "max_lag": max(self._lags),
            "mean_lag": statistics.mean(self._lags),
            "mb_at_the_middle": half[0][1],
            "mb_at_the_end": half[-1][1],
            "mb_an_hour": 3600.0 * float(slope),
        }


def kills(seconds: float, every: float = 10.0, seed: int = 0) -> dict[str, Any]:
    """Kills a random worker every so often, and evaluates what was learned meanwhile."""
    overrides = ["run.max_env_step=1000000", "policy.learn.anneal_lr=false", f"seed={seed}"]
    cfg = compile_run(load_preset("cartpole_ppo"), overrides)
    task, rng = Task(), random.Random(seed)
    killed: list[float] = []
    recovered: list[float] = []
    end = time.monotonic() + seconds

    def note(ctx: Any) -> None:
        assert task.lanes is not None
        while len(recovered) < min(task.lanes.restarts, len(killed)):
            recovered.append(time.monotonic())
        task.finish = time.monotonic() >= end

    def kill() -> None:
        while not over.wait(every):
            pids = task.lanes.worker_pids if task.lanes else ()
            if pids and len(recovered) == len(killed):
                killed.append(time.monotonic())
                os.kill(rng.choice(pids), signal.SIGKILL)

    over = threading.Event()
    killer = threading.Thread(target=kill, daemon=True)
    with task.start(True, OnlineRLContext(), lanes=cfg.lanes):
        policy = build(task, cfg)
        task.use(note)
        killer.start()
        task.run()
        over.set()
        killer.join()
        waits = [b - a for a, b in zip(killed, recovered)]
        returns = [episode.episode_return for episode in final_evaluation(cfg, policy)]
        return {
            "seconds": seconds,
            "kills": len(killed),
            "recovered": len(recovered),
            "recovery_seconds": {
                "median": statistics.median(waits),
                "p95": float(np.percentile(waits, 95)),
                "max": max(waits),
            },
            "env_step": task.ctx.env_step,  # type: ignore[attr-defined]
            "eval_mean": statistics.mean(returns),
            "eval_episodes": len(returns),
        }


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


PARTS: dict[str, Callable[[float], Config | dict[str, Any]]] = {"speeds": speeds, "kills": kills}
SECONDS = {"speeds": 600.0, "kills": 300.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0; the figures are judged where they are published."""
    parser = argparse.ArgumentParser(prog="python -m proofs.soak", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seconds", type=float, help="how long (speeds 600, kills 300); else nothing is written")
    args = parser.parse_args(argv)
    result = PARTS[args.part](args.seconds or SECONDS[args.part])
    print(json.dumps(result, indent=1))
    if args.seconds is None:
        path = ROOT / "docs" / "results" / f"async_{args.part}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        update(Results(ROOT / "docs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
