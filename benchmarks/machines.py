"""What 100 machines would ask of the main process: ``python -m benchmarks.machines``.

A run whose collectors are not there: each answers a request at once, with a rollout of the given size, so that only the
work of the main process is left. It is measured in processor time, which other programs do not change, with 10 to 1,000
collectors and one rollout per iteration: sending requests, taking answers in, and the status of all workers. Weights
change in every iteration, as with a learner. What is measured is printed; it stands in ``docs/cluster.md``.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import statistics
import time
from collections import deque
from typing import Any

import numpy as np

from benchmarks.cluster import Collector, Learner, Weights
from minding.engine import OnlineRLContext, Task
from minding.engine.lanes import run
from minding.engine.lanes.threads import CopiedWeights, ThreadTransport
from minding.engine.lanes.transport import Answer, Request, serialize

COLLECTORS = (10, 100, 1000)
SIZES = (1 << 10, 100 << 10, 1 << 20)
WEIGHTS = 1 << 20
"""Bytes of the weights."""
ITERATIONS = 2000


class Absent:
    """A worker, its channel and its heartbeat in one: it answers when it is asked for the answer.

    Args:
      size: bytes of a rollout.
    """

    kind, where, node, pid, clock_error, member = "process", "nowhere", "", None, 0.0, -1

    def __init__(self, size: int) -> None:
        self.channel = self.heartbeat = self
        self.place: Any = None
        self._requests: deque[Request] = deque()
        self._rollout = {"x": np.zeros(size // 4, np.float32)}
        self._beats = itertools.count(1)

    @property
    def beats(self) -> int:
        return next(self._beats)

    def expect(self, deadline: float) -> None: ...

    def send(self, message: Any, place: Any = None) -> None:
        if isinstance(message, Request):
            # Requests are pickled, as on every transport.
            header, buffers = serialize(message)
            self._requests.append(pickle.loads(header, buffers=[bytearray(buffer) for buffer in buffers]))  # noqa: S301

    def receive(self, timeout: float | None = None) -> Answer:
        if not self._requests:
            raise TimeoutError
        request = self._requests.popleft()
        fields = {"trajectories": self._rollout, "env_step": request.fields["env_step"] + 1}
        state = {"members": {"0:Collector": {"count": request.number}}, "acting": []}
        answer = Answer(request.number, fields, state, [], False, [])
        header, buffers = serialize(answer)
        return pickle.loads(header, buffers=[bytearray(buffer) for buffer in buffers])  # noqa: S301

    def hindrance(self) -> None:
        return None

    def has_better_place(self) -> bool:
        return False

    def join(self, timeout: float) -> str:
        return "ended"

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Nowhere(ThreadTransport):
    """Starts workers that are `Absent`."""

    def __init__(self, size: int) -> None:
        self._size = size

    def store(self, arrays: Any, slots: int) -> CopiedWeights:
        return CopiedWeights(arrays, slots)

    def start(self, *args: Any) -> Any:
        return Absent(self._size)


def measure(collectors: int, size: int) -> str:
    """Milliseconds of processor time per iteration, and of a look at all workers."""
    weights, task = Weights(WEIGHTS), Task()
    times: list[float] = []
    looks: list[float] = []
    first = min(ITERATIONS // 2, 2 * collectors)

    def each(task: Any, ctx: Any) -> None:
        times.append(time.process_time())
        if ctx.total_step % 500 == 499:
            begin = time.process_time()
            assert len(task.lanes.workers) == collectors
            looks.append(1e3 * (time.process_time() - begin))
            # Without the look.
            times[-1] = time.process_time()

    lanes = {"transport": "threads", "collectors": collectors, "max_staleness": collectors}
    with task.start(True, OnlineRLContext(), lanes=lanes):
        task.use(Collector(weights, size)).use(Learner(weights, [], task, each)).run(max_step=ITERATIONS)
    each = [1e3 * (later - before) for before, later in itertools.pairwise(times[first:])]
    return f"{statistics.median(each):.2f} ms an iteration, {statistics.median(looks):.2f} ms a status"


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.machines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for size in SIZES:
        run.make_transport = lambda options, size=size: Nowhere(size)  # type: ignore[misc]
        for collectors in COLLECTORS:
            print(f"{size >> 10} KB, {collectors} collectors: {measure(collectors, size)}", flush=True)


if __name__ == "__main__":
    main()
