"""Where the time of an iteration goes: ``python -m benchmarks.profile SIDE CASE [--seed S] [--scale F]``.

SIDE is `minding`, or a peer of the case: `sb3` or `sb3_contrib`, which run in the interpreter of the peers. The process
is looked at every few milliseconds of its processor time, that of all threads. What it has used since the last look
counts for the innermost function that belongs to a part: libraries count for the part that calls them, and a call into
compiled code for the function that made it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, TracebackType

from benchmarks.cases import Case
from benchmarks.window import Measurement, parse_options

INTERVAL = 1e-3
"""Seconds of processor time between two looks; many systems make it 4 ms."""
REST = "the rest"
MODULES = {
    "minding": "benchmarks.ours", "sb3": "benchmarks.peers.sb3", "sb3_contrib": "benchmarks.peers.sb3_contrib",
}  # fmt: skip
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "minding": {
        "environment library": ("/gymnasium/", "/mujoco/", "/mpe2/", "/pettingzoo/", "/envs/games/"),
        "environment layers: actions, checks, episodes": ("/envs/", "/engine/data/actions.py"),
        "acting: networks": ("/acting/numpy_", "/acting/compositions.py", "/policies/kernels/library.py"),
        "acting: draws": ("/policies/acting/sampling.py",),
        "acting: modes and actors": ("/policies/acting/actors.py", "/policies/core/modes.py"),
        "collector": ("/middleware/collector.py", "/engine/data/rollout.py"),
        "advantages": ("/engine/data/returns.py", "/middleware/return_estimators.py"),
        "rows: storing, drawing, shuffling": (
            "/engine/buffers/", "/engine/data/batch.py", "/middleware/data_pusher.py", "/middleware/trainer.py",
        ),
        "update: compiled call": ("/engine/process/compiled.py",),
        "update: its inputs and metrics": ("/policies/", "/engine/process/runtime.py", "/middleware/learner.py"),
    },
    "sb3": {
        "environment library": ("/gymnasium/", "/mujoco/"),
        "environment layers: vector, monitor": ("/common/vec_env/", "/common/monitor.py"),
        "rows: storing, drawing": ("/common/buffers.py",),
        "update: gradients": ("/torch/autograd/", "/torch/_tensor.py"),
        "update: optimizer": ("/torch/optim/", "/nn/utils/clip_grad.py"),
        "update: forward pass and losses": (":train",),
        "acting and collecting": (":collect_rollouts",),
    },
}  # fmt: skip
"""The parts of each side: what the path of a function's file contains, or after a colon its name."""
PARTS["sb3_contrib"] = PARTS["sb3"]


class Sampler(contextlib.AbstractContextManager["Sampler"]):
    """Tells apart the parts of what its thread, the main one, does in the body of a ``with``.

    Args:
      parts: see `PARTS`; the first one that fits counts.

    Attributes:
      seconds: processor time by part.
      looks: how often it looked.
    """

    def __init__(self, parts: Mapping[str, Sequence[str]]) -> None:
        self.seconds: collections.Counter[str] = collections.Counter()
        self.looks = 0
        self._parts = parts
        self._known: dict[CodeType, str | None] = {}
        self._last = 0.0

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGPROF, self._look)
        self._last = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def part_of(self, frame: FrameType | None) -> str:
        """The part of the innermost frame that belongs to one."""
        while frame is not None:
            code = frame.f_code
            if code not in self._known:
                self._known[code] = self._find(code)
            part = self._known[code]
            if part is not None:
                return part
            frame = frame.f_back
        return REST

    def _find(self, code: CodeType) -> str | None:
        place = f"{code.co_filename}:{code.co_name}"
        for part, patterns in self._parts.items():
            if any(place.endswith(pattern) if pattern[0] == ":" else pattern in place for pattern in patterns):
                return part
        return None

    def _look(self, number: int, frame: FrameType | None) -> None:
        now = time.process_time()
        self.seconds[self.part_of(frame)] += now - self._last
        self._last = now
        self.looks += 1


def table(case: Case, measured: Measurement, sampler: Sampler) -> str:
    """The parts as a Markdown table, in the order of `PARTS`."""
    total, iterations = sum(sampler.seconds.values()), measured.env_steps / case.iteration_steps
    lines = ["| part | share | ms per iteration |", "| --- | --- | --- |"]
    for part in (*PARTS[measured.peer], REST):
        seconds = sampler.seconds[part]
        lines.append(f"| {part} | {100 * seconds / total:.1f} % | {1e3 * seconds / iterations:.3f} |")
    lines.append(f"| total | {iterations:,.0f} iterations, {sampler.looks:,} looks | {1e3 * total / iterations:.3f} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("side", choices=list(MODULES))
    side, rest = parser.parse_known_args(argv)
    sampler = Sampler(PARTS[side.side])
    options = parse_options(rest, around=sampler)
    if side.side not in ("minding", *options.case.targets):
        peers = ", ".join(sorted(options.case.targets))
        parser.error(f"{side.side} does not run {options.case.name}: its peers are {peers}")
    run_case: Callable[..., Measurement] = importlib.import_module(MODULES[side.side]).run_case
    measured = run_case(options)
    print(f"{measured.peer} on {options.case.name}: {measured.steps_per_second:,.0f} env steps/s\n")
    print(table(options.case, measured, sampler))


if __name__ == "__main__":
    main()
