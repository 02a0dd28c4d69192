"""The trial that decides, with ``lanes.inference=auto``, where collectors compute their networks."""

import time

from minding.engine.chain.context import Context
from minding.engine.console import console_logger
from minding.engine.lanes.group import WorkerGroup, close_groups

_WARM, _TRIALS = 2, 6
"""Iterations of a trial; the first number counts those that start workers and compile graphs."""


def choose_inference(group: WorkerGroup, ctx: Context) -> None:
    """Once, in the first iteration: with ``lanes.inference=auto``, measures which of the two is faster. All workers run
    some iterations in either way, whose results are dropped, and then begin with their first state."""
    if group.inference != "auto":
        return
    local, server = trial(group, ctx)
    chosen = "server" if server < local else "local"
    console_logger().info(
        "lanes.inference=auto: an iteration of all collectors took %.1f ms acting locally and %.1f ms through a "
        "server: %s",
        1e3 * local,
        1e3 * server,
        chosen,
    )
    group.settle(chosen)


def trial(group: WorkerGroup, ctx: Context) -> tuple[float, float]:
    """The time of an iteration of all workers in seconds, locally and through a server: the fastest of several. The two
    alternate, so that other load on the machine affects both; it affects the fastest iteration least."""
    groups: list[WorkerGroup] = []
    times: list[list[float]] = [[], []]
    try:
        for where in ("local", "server"):
            groups.append(group.like(where))
            groups[-1].publish()
        for number in range(_WARM + _TRIALS):
            for each, its_times in zip(groups, times, strict=True):
                its_times.append(_seconds(each, number, ctx))
    finally:
        close_groups(groups)
    local, server = (min(its_times[_WARM:]) for its_times in times)
    return local, server


def _seconds(group: WorkerGroup, number: int, ctx: Context) -> float:
    """The time of an iteration of all workers."""
    began = time.monotonic()
    for index in range(len(group.workers)):
        group.submit(index, number, group.fields(ctx))
    for worker in group.workers:
        worker.wait(group.interrupted)
        worker.poll()
    return time.monotonic() - began
