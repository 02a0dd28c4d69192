"""Times a save: milliseconds for a small net and for a full buffer, and the share of a training run that saves take.

    python -m benchmarks.checkpoint_cost [--rows N] [--intervals N] [--json PATH]

The buffer holds 1e6 HalfCheetah transitions and gets 1,000 new ones between two saves: at one gradient step a
transition, that is the default interval of `run.ckpt_freq`. Saves are pruned to the three newest, as in a run. The
shares are those of presets with their default interval, SAC with a full buffer of 1e6 rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding import training
from minding.configs import compile_run, load_preset
from minding.configs.chains import get_chain
from minding.engine.buffers import ReplayBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.checkpoint import link_source, prune_checkpoints, save_checkpoint
from minding.engine.data.batch import Field
from minding.engine.types import Array, Policy, StateDict
from minding.envs import make_env_manager
from minding.middleware import CkptSaver, OffPolicyLearner, StepCollector, data_pusher, eps_greedy_handler

ROWS, INTERVAL, SAVES, KEEP_LAST = 1_000_000, 1000, 15, 3
HALF_CHEETAH = {
    "obs": Field((17,)),
    "action": Field((6,)),
    "reward": Field(),
    "next_obs": Field((17,)),
    "terminated": Field((), "bool"),
    "discount": Field(),
}


def small_net() -> StateDict:
    """Two 64-64 networks with their optimizer's two moments, as arrays."""
    shapes = {"w1": (4, 64), "b1": (64,), "w2": (64, 64), "b2": (64,), "w3": (64, 2), "b3": (2,)}
    parts = [f"{net}.{slot}" for net in ("actor", "critic") for slot in ("value", "moment1", "moment2")]
    return {part: {name: np.ones(shape, np.float32) for name, shape in shapes.items()} for part in parts}


def transitions(count: int, rng: np.random.Generator, fields: Mapping[str, Field]) -> dict[str, Array]:
    """Random rows."""
    return {name: rng.random((count, *field.shape)).astype(field.dtype) for name, field in fields.items()}


def full_buffer(rows: int, rng: np.random.Generator, fields: Mapping[str, Field]) -> ReplayBuffer:
    buffer = ReplayBuffer(rows, fields)
    for start in range(0, rows, 50_000):
        buffer.push(transitions(min(50_000, rows - start), rng, fields))
    return buffer


def times_ms(state: Callable[[], StateDict], saves: int = SAVES) -> list[float]:
    """Milliseconds of each of `saves` saves to one folder."""
    taken = []
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        for number in range(saves):
            content = state()
            start = time.perf_counter()
            save_checkpoint(folder / f"iter_{number}", content, {}, previous=link_source(folder))
            prune_checkpoints(folder, KEEP_LAST)
            taken.append((time.perf_counter() - start) * 1000)
    return taken


def measure(rows: int) -> list[dict[str, Any]]:
    """A row of figures for each case; the first two saves write all blocks, the others only those with new rows."""
    rng = np.random.default_rng(0)
    buffer = full_buffer(rows, rng, HALF_CHEETAH)

    def with_buffer() -> StateDict:
        buffer.push(transitions(INTERVAL, rng, HALF_CHEETAH))
        return {"net": small_net(), "buffer": buffer.state_dict()}

    cases = {"small net": times_ms(small_net), f"with {rows:,} transitions": times_ms(with_buffer)}
    return [
        {
            "case": case,
            "first_ms": round(times[0], 1),
            "median_ms": round(statistics.median(times[2:]), 1),
            "max_ms": round(max(times[2:]), 1),
        }
        for case, times in cases.items()
    ]


class TimedSaver(CkptSaver):
    """Adds up the seconds of its periodic saves."""

    seconds, saves = 0.0, 0

    def _save(self, eval_value: float | None) -> bool:
        start = time.perf_counter()
        saved = super()._save(eval_value)
        self.seconds += time.perf_counter() - start
        self.saves += 1
        return saved


def share(preset: str, intervals: int, rows: int = 0) -> dict[str, Any]:
    """Trains a preset for some intervals between saves; the first two are not counted (they write the whole buffer).

    Args:
      rows: of a replay buffer that is full from the start; 0 takes the preset's own.
    """
    cfg = compile_run(load_preset(preset), ["policy.eval.freq=1000000000", "run.max_env_step=1000000000"])
    task, policy = Task(), training.make_policy(cfg)
    start = 0.0

    def watch(ctx: OnlineRLContext) -> None:
        nonlocal start
        if saver.saves == 2 and not start:
            start, saver.seconds = time.perf_counter(), 0.0
        task.finish = saver.saves == 2 + intervals

    with tempfile.TemporaryDirectory(dir=".") as folder, task.start(ctx=OnlineRLContext()):
        saver = TimedSaver(policy, "cost", cfg.run.ckpt_freq, final=False, out_dir=folder, task=task)
        if rows:
            _use_full_buffer(task, cfg, policy, rows)
        else:
            get_chain(cfg.chain).fill(task, cfg, policy)
        task.use(saver).use(watch).run()
        wall = time.perf_counter() - start
    return {"preset": preset, "rows": rows, "saves": intervals, "percent": round(100 * saver.seconds / wall, 2)}


def _use_full_buffer(task: Task, cfg: Any, policy: Policy, rows: int) -> None:
    env = make_env_manager(cfg.env, cfg.env.collector_env_num, cfg.seed)
    buffer = full_buffer(rows, np.random.default_rng(0), policy.learn_mode.fields)
    task.use(eps_greedy_handler(cfg)).use(StepCollector(cfg, policy.collect_mode, env))
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


def main() -> None:
    """Prints the table; writes it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"transitions in the buffer ({ROWS})")
    parser.add_argument("--intervals", type=int, default=3, help="saves counted in each training run (3)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    args = parser.parse_args()
    rows = measure(args.rows)
    print(f"{'case':<28} {'first, ms':>10} {'median, ms':>11} {'slowest, ms':>12}")
    for row in rows:
        print(f"{row['case']:<28} {row['first_ms']:>10.1f} {row['median_ms']:>11.1f} {row['max_ms']:>12.1f}")
    shares = [share("cartpole_ppo", args.intervals), share("cartpole_dqn", args.intervals)]
    shares.append(share("pendulum_sac", args.intervals, args.rows))
    print(f"\n{'training of':<28} {'rows':>10} {'saves':>6} {'% of the time':>14}")
    for row in shares:
        print(f"{row['preset']:<28} {row['rows'] or 'preset':>10} {row['saves']:>6} {row['percent']:>14.2f}")
    if args.json is not None:
        args.json.write_text(json.dumps({"saves": rows, "shares": shares}, indent=2) + "\n")


if __name__ == "__main__":
    main()
