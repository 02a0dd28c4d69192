"""What a second learner gains: ``python -m benchmarks.learners``, with two idle cores.

The same learn calls of PPO with one learner and with two, alternating in one process, by network and rows of a
minibatch: two layers of 512 units on 17 numbers, and the convolutions of Mnih et al. (2015) on four images of 84 x 84.
Each learner computes with one thread, and each network is measured in a process of its own. What is measured is
printed; it stands in ``docs/learners.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.config.compiler import compile_config
from minding.engine.data.batch import IndexedBatch, RowLayout
from minding.engine.process import collectives
from minding.policies import get_algorithm, get_policy_class

LEARNERS = 2
STEPS = 4
"""Gradient steps of a call."""
PAIRS = 7
_LIMITS = {"low": -10.0, "high": 10.0}
VECTOR = {"kind": "box", "shape": [17], "dtype": "float32", **_LIMITS}
IMAGE = {"kind": "box", "shape": [4, 84, 84], "dtype": "uint8", "low": 0, "high": 255}
CASES = {"vectors": (VECTOR, {"hidden": [512, 512]}, (256, 1024, 4096)), "images": (IMAGE, {}, (256, 1024))}
_WAIT = "60"
"""Seconds that a learner waits for the other one, which may be slow on a machine that is not idle."""


def policy_of(kind: str, observation: dict[str, Any], model: dict[str, Any], learners: int = 1) -> Any:
    """A policy of this type that learns six continuous actions, with one thread in each learner."""
    action = {"kind": "box", "shape": [6], "dtype": "float32", "low": [-1.0] * 6, "high": [1.0] * 6}
    spec = {
        "observation": observation, "action": action, "env_action": {**action, "rescaled": True},
        "max_episode_steps": 1000, "num_agents": 1,
    }  # fmt: skip
    user = {"env": {"env_id": "none"}, "policy": {"type": kind, "model": model}}
    entry = get_algorithm(kind)
    cfg = compile_config(user, entry, lambda env: spec, overrides=[f"lanes.learners={learners}", "run.jit_threads=1"])
    return get_policy_class(kind)(cfg, ("learn",))


def batch_of(policy: Any, steps: int, size: int) -> IndexedBatch:
    """Random rows for so many gradient steps with minibatches of this size."""
    rng = np.random.default_rng(0)
    index = np.arange(steps * size, dtype=np.int32).reshape(steps, size)
    layout = RowLayout(policy.learn_mode.fields)
    tables = DeviceTables(layout, index.size)
    values = {
        field: rng.integers(0, 256, (index.size, *each.shape), dtype=np.uint8)
        if each.dtype == "uint8"
        else rng.standard_normal((index.size, *each.shape), np.float32)
        for field, each in layout.fields.items()
    }
    tables.write(0, layout.pack(values))
    return IndexedBatch(layout, tables, index)


def main() -> None:
    """Measures the networks that the command line names, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learners", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"{' or '.join(CASES)} (all)")
    parser.add_argument("--here", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        measure(args.here)
        return
    if unknown := set(args.networks) - set(CASES):
        parser.error(f"unknown networks {sorted(unknown)}; expected {', '.join(CASES)}")
    for name in args.networks or CASES:
        # MindSpore is prepared, and forms a group, only once per process.
        command = [sys.executable, "-m", "benchmarks.learners", "--here", name]
        subprocess.run(command, env={collectives.NODE_TIMEOUT: _WAIT, **os.environ}, check=True)


def measure(name: str) -> None:
    """Prints a line per number of rows."""
    observation, model, sizes = CASES[name]
    for size in sizes:
        # Policies of their own, because the compiled steps of a policy belong to one buffer.
        policies = {learners: policy_of("ppo", observation, model, learners) for learners in (1, LEARNERS)}
        print(f"{name}, {size} rows: {_compared(policies, size)}; load {os.getloadavg()[0]:.1f}", flush=True)


def _compared(policies: dict[int, Any], size: int) -> str:
    batches = {learners: batch_of(policy, STEPS, size) for learners, policy in policies.items()}
    for learners, policy in policies.items():
        # Compiles.
        policy.learn_mode.forward(batches[learners])
    times: dict[int, list[float]] = {learners: [] for learners in policies}
    for _ in range(PAIRS):
        for learners, policy in policies.items():
            begin = time.perf_counter()
            policy.learn_mode.forward(batches[learners])
            times[learners].append(1e3 * (time.perf_counter() - begin) / STEPS)
    ratios = [one / two for one, two in zip(*times.values(), strict=True)]
    one, two = (statistics.median(each) for each in times.values())
    return (
        f"{one:.1f} ms a step with 1 learner, {two:.1f} ms with {LEARNERS}; {statistics.median(ratios):.2f} times "
        f"({min(ratios):.2f} - {max(ratios):.2f}), n={PAIRS} pairs"
    )


if __name__ == "__main__":
    main()
