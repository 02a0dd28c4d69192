"""Acting locally against an inference server: ``python -m benchmarks.inference [--pairs 3]``.

1, 4 and 8 collectors with 8 environments each share an iteration of 16 steps per environment; nothing learns. Each
network acts in NumPy (small MLPs) or as a compiled graph (a large MLP, convolutions). Local runs and runs through a
server alternate, each with workers of its own. Measured are environment steps per second in the steady state, and the
memory that the collectors and the server have resident at the end. ``auto`` is then asked what it takes.

What is measured is printed; it stands in ``docs/results/async_runs.md``.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from pathlib import Path
from typing import Any

from minding.configs import compile_run, load_preset
from minding.engine import OnlineRLContext, Task, declare
from minding.envs import make_collector_env
from minding.middleware import StepCollector
from minding.policies import get_policy_class

_ENVS, _STEPS = 8, 16
_WARM, _TIMED = 4, 12
"""Iterations before the clock starts, and those on it."""
_CASES = {
    "MLP 64-64, NumPy": ("cartpole_ppo", ()),
    "MLP 64-64, graph": ("cartpole_ppo", ("policy.collect.backend=graph",)),
    "MLP 2048-2048, graph": ("cartpole_ppo", ("policy.model.hidden=[2048,2048]", "policy.collect.backend=graph")),
    "convolutions, graph": ("pixelcatch_ppo", ("policy.collect.backend=graph",)),
}
_COLLECTORS = (1, 4, 8)


@declare(role="learn", reads=("trajectories",), writes=())
def nothing() -> Any:
    """Learns nothing."""
    return lambda ctx: None


def collect(preset: str, settings: tuple[str, ...], collectors: int, inference: str) -> tuple[float, float]:
    """Environment steps per second of a run, and MB that its workers have resident."""
    envs = _ENVS * collectors
    sizes = (f"env.collector_env_num={envs}", f"policy.collect.n_sample={envs * _STEPS}")
    cfg = compile_run(load_preset(preset), [*settings, *sizes])
    policy = get_policy_class(cfg.policy.type)(cfg, ("collect",))
    lanes = {"shards": collectors, "collectors": collectors, "max_staleness": 0, "inference": inference}
    task: Task[OnlineRLContext] = Task()
    times: list[float] = []
    with task.start(True, OnlineRLContext(), lanes=lanes):
        task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg))).use(nothing())
        task.use(lambda ctx: times.append(time.monotonic()))
        task.run(max_step=_WARM + _TIMED)
        assert task.lanes is not None
        memory = sum(_resident(pid) for pid in task.lanes.worker_pids)
    seconds = statistics.median(b - a for a, b in zip(times[_WARM - 1 :], times[_WARM:]))
    return envs * _STEPS / seconds, memory


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if "lanes.inference=auto" in record.getMessage():
            self.text = record.getMessage().rpartition(": ")[2]


def main() -> None:
    """Measures all cases and prints the rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases with this in their name")
    args = parser.parse_args()
    heard, log = _Heard(), logging.getLogger("minding")
    log.addHandler(heard)
    log.setLevel(logging.INFO)
    print("| network | collectors | local, steps/s | server, steps/s | server / local | memory, MB | auto takes |")
    print("|---|---:|---:|---:|---:|---|---|", flush=True)
    for name, (preset, settings) in _CASES.items():
        for collectors in _COLLECTORS if args.only in name else ():
            pairs = [
                [collect(preset, settings, collectors, inference) for inference in ("local", "server")]
                for _ in range(args.pairs)
            ]
            collect(preset, settings, collectors, "auto")
            (local, here), (server, there) = ([statistics.median(x) for x in zip(*side)] for side in zip(*pairs))
            ratios = sorted(server[0] / local[0] for local, server in pairs)
            print(
                f"| {name} | {collectors} | {local:,.0f} | {server:,.0f} | {statistics.median(ratios):.2f} "
                f"({ratios[0]:.2f} - {ratios[-1]:.2f}) | {here:,.0f}, {there:,.0f} | {heard.text} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
