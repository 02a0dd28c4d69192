"""A chain in lanes as seen from the main process."""

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minding.engine.chain.check import pipeline_rows, table
from minding.engine.chain.context import Context
from minding.engine.chain.lanes import Run, WorkerStatus
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Node, all_leaves
from minding.engine.chain.trace import Trace
from minding.engine.console import console_logger
from minding.engine.lanes.collect import CollectLane
from minding.engine.lanes.division import Division, Part, collects, divide
from minding.engine.lanes.evaluate import EvaluateLane
from minding.engine.lanes.free_running import WithRollout, free_run
from minding.engine.lanes.group import WorkerGroup, close_groups
from minding.engine.lanes.options import CorePlan, LaneOptions, cores, plan_cores
from minding.engine.lanes.order import ArrivalOrder, ExactOrder, FreeOrder
from minding.engine.lanes.transport import Transport

_log = logging.getLogger("minding.lanes")
_SOON = 0.2  # s


class WorkerLanes:
    """A chain whose collectors and evaluators run in workers."""

    def __init__(self, nodes: Sequence[Node], ctx: Context, options: LaneOptions, run: Run) -> None:
        leaves = list(all_leaves(nodes))
        self._transport = make_transport(options)
        self.options = options.resolve(leaves, self._transport.max_collectors)
        staleness = self.options.max_staleness or 0
        self._context = type(ctx)
        self._division = divide(nodes, ctx.kept, [field.name for field in dataclasses.fields(ctx)])
        self._cores = plan_cores(self.options, self._transport.cores)
        self._groups: list[WorkerGroup] = []
        self._collector: CollectLane | None = None
        self._evaluators: list[EvaluateLane] = []
        self._not_in_lane = _not_in_lane(leaves, self._division)
        self._unpinned: frozenset[int] | None = None
        self.processors: tuple[str, ...] = ()
        self._inspected = False
        places: dict[int, Node] = {}
        if self._division.collect is not None:
            part, cores_of = self._division.collect, self._cores.collectors
            group = WorkerGroup(part, Role.COLLECT, cores_of, self.options, self._transport, run)
            order = ExactOrder if self.options.order == "exact" else ArrivalOrder
            self._collector = CollectLane(group, order(group, staleness), staleness, ctx.kept)
            self._put(places, nodes, group, self._collector)
        for part in self._division.evaluate:
            group = WorkerGroup(part, Role.EVALUATE, [self._cores.evaluator], self.options, self._transport, run)
            lane = EvaluateLane(group, staleness == 0)
            self._evaluators.append(lane)
            self._put(places, nodes, group, lane)
        away = [id(member) for group in self._groups for member in group.part.members]
        self.nodes = [
            places.get(place, node) for place, node in enumerate(nodes) if place in places or id(node) not in away
        ]
        if self._collector is not None and self.options.order == "arrival":
            self._run_freely(self._collector, ctx, staleness)

    def _run_freely(self, collector: CollectLane, ctx: Context, staleness: int) -> None:
        """Lets learner and collectors run independently if a limiter of replay bounds them."""
        part = self._division.collect
        assert part is not None
        place = next(place for place, node in enumerate(self.nodes) if node.middleware is collector)
        earlier, later = self.nodes[:place], self.nodes[place + 1 :]
        names = [field.name for field in dataclasses.fields(ctx)]
        free = free_run(earlier, later, part, names, ctx.kept, self.options.limiter_timeout)
        if free is None:
            return
        collector.order = FreeOrder(self._groups[0], staleness, free)
        needing = [node.position for node in free.needing]
        for k, node in enumerate(self.nodes):
            if node.position in needing:
                only = WithRollout(node, collector)
                self.nodes[k] = Node(only, node.position, node.name, node.role, node.declaration, (node,))

    @property
    def division(self) -> dict[str, int]:
        """The number of collectors, and of those that share an iteration, by the names of the settings."""
        return {"lanes.collectors": self.options.collectors or 1, "lanes.shards": self.options.shards}

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of all workers that run and are processes of this machine."""
        pids = [worker.pid for group in self._groups for worker in group.everyone]
        return tuple(pid for pid in pids if pid is not None)

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        """The present status of the workers that were started."""
        everyone = [worker for group in self._groups for worker in group.everyone]
        # All of them have this time together, however many they are.
        deadline = time.monotonic() + _SOON
        for worker in everyone:
            worker.expect(deadline)
        found = [worker.status for worker in everyone]
        return tuple(status for status in found if status is not None)

    @property
    def restarts(self) -> int:
        """The number of times that a worker died and was restarted."""
        return sum(worker.restarts for group in self._groups for worker in group.everyone)

    def check(self) -> None:
        """Refuses members that would behave differently in a lane; called before the first step."""
        if self._collector is not None:
            self._collector.check()
        for leaf in self._not_in_lane:
            _log.warning("%s at position %s %s", leaf.name, leaf.position, self._why_not_in_lane(leaf))

    def _why_not_in_lane(self, leaf: Node) -> str:
        if self._collector is None:
            return (
                "collects in the main process: it is composed with middleware that do not have the role collect, so "
                "that it cannot run in a lane"
            )
        return (
            "has the role collect but stays in the main process, where a policy has newer weights than when it "
            "collected: something without that role stands between it and the collector. Move that elsewhere, or give "
            'it the role, too: task.use(fn, role="collect")'
        )

    def begin(self, trace: Trace | None) -> None:
        """Called before the first iteration, with all state loaded: pickles members of lanes and pins processes."""
        if not self._inspected:
            self.processors = self._transport.inspect(sum(group.most for group in self._groups))
            self._inspected = True
        if self.options.order == "arrival" and self._collector is not None:
            most = self.options.max_staleness
            console_logger().info(
                "lanes.order=arrival: rollouts are used in the order in which they come, so that this run cannot be "
                "repeated; %s",
                f"their weights are at most {most} iteration{'' if most == 1 else 's'} old"
                if not self._is_free
                else f"the learner does not wait for them as long as the limiter of its table lets it sample, and "
                f"none is overtaken by more than {most} other{'' if most == 1 else 's'}",
            )
        for group in self._groups:
            group.trace = trace
            group.prepare(self._context)
        if self._cores.learner and self._unpinned is None:
            self._unpinned = frozenset(cores())
            _pin_process(self._cores.learner)

    def settle(self, ctx: Context) -> None:
        """Called at the end of a run that was not interrupted: waits for running evaluations."""
        for lane in self._evaluators:
            lane.settle(ctx)

    def close(self) -> None:
        close_groups(self._groups)
        self._transport.close()
        if self._unpinned is not None:
            _pin_process(self._unpinned)
            self._unpinned = None

    def view(self, nodes: Sequence[Node]) -> str:
        """The chain by lanes, and the fields that cross between them."""
        return lanes_view(nodes, self._division, self.options, self._cores, self._is_free)

    @property
    def _is_free(self) -> bool:
        """Whether iterations may run without a rollout."""
        return self._collector is not None and isinstance(self._collector.order, FreeOrder)

    def _put(self, places: dict[int, Node], nodes: Sequence[Node], group: WorkerGroup, lane: Any) -> None:
        """Replaces the main member of a part by the middleware of its lane."""
        self._groups.append(group)
        main = group.part.main
        place = next(index for index, node in enumerate(nodes) if node is main)
        places[place] = Node(lane, main.position, lane.declaration.name, None, lane.declaration, group.nodes())


def _not_in_lane(leaves: Sequence[Node], division: Division) -> list[Node]:
    """The middleware that concern collecting but are not in the collect lane."""
    if division.collect is None:
        return [leaf for leaf in leaves if collects(leaf)]
    away = {leaf.position for leaf in division.collect.leaves}
    return [leaf for leaf in leaves if leaf.role is Role.COLLECT and leaf.position not in away]


def _pin_process(to: frozenset[int]) -> None:
    """Restricts all threads of this process to the given cores."""
    if not hasattr(os, "sched_setaffinity"):
        return
    folder = Path("/proc/self/task")
    for thread in [int(entry.name) for entry in folder.iterdir()] if folder.is_dir() else [0]:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, to)


def make_transport(options: LaneOptions) -> Transport:
    """Returns the transport that the options name, with its settings; it is imported now."""
    if options.transport == "processes":
        from minding.engine.lanes.processes import ProcessTransport

        return ProcessTransport()
    if options.transport == "threads":
        from minding.engine.lanes.threads import ThreadTransport

        return ThreadTransport()
    from minding.engine.lanes.ray.transport import RayTransport

    resources: Any = options.resources
    return RayTransport(options.address, options.insecure, resources, options.code)


def check_transport(options: LaneOptions) -> None:
    """Refuses a transport that cannot work on this machine, before anything is built."""
    if options.transport == "ray":
        from minding.engine.lanes.ray.cluster import check_ray

        check_ray(options.address, options.insecure)


def lanes_view(
    nodes: Sequence[Node], division: Division, options: LaneOptions, cores: CorePlan, free: bool = False
) -> str:
    """Returns the pipeline view with the lane of each middleware, and below it the fields that cross between
    lanes."""
    lane_of = {}
    for lane, parts in (("collect", [division.collect] if division.collect else []), ("evaluate", division.evaluate)):
        for part in parts:
            lane_of.update({node.position: lane for member in part.members for node in member.walk()})
    rows = [("lane", *pipeline_rows(nodes)[0])]
    rows += [(lane_of.get(row[0].strip(), "main"), *row) for row in pipeline_rows(nodes)[1:]]
    lines = [table(rows), ""]
    one, many = {"processes": ("process", "processes"), "threads": ("thread", "threads"), "ray": ("actor", "actors")}[
        options.transport
    ]
    if division.collect is not None:
        count = options.collectors or 1
        shards = f", {options.shards} share an iteration" if options.shards > 1 else ""
        shards += ", rollouts in the order of arrival" if options.order == "arrival" else ""
        shards += {
            "local": "",
            "server": ", networks in an inference server",
            "auto": ", networks where a trial is faster",
        }[options.inference]
        lines.append(
            f"collect lane: {count} {many if count > 1 else one}{shards}, weights at most {options.max_staleness} "
            f"{'rollouts' if free else 'learner iterations'} old{_pinned(cores.collectors)}"
        )
        lines += _crossing("collect", division.collect)
    for part in division.evaluate:
        lines.append(f"evaluate lane: 1 {one}, on a snapshot of the weights{_pinned([cores.evaluator])}")
        lines += _crossing("evaluate", part)
    return "\n".join(lines)


def _crossing(lane: str, part: Part) -> list[str]:
    if part.written is None:
        # A member that declares nothing may read and write any.
        return [f"  main -> {lane}: weights, all fields", f"  {lane} -> main: all fields that are set there"]
    return [
        f"  main -> {lane}: weights, {', '.join(part.inputs) or 'nothing else'}",
        f"  {lane} -> main: {', '.join(part.outputs) or 'nothing'}",
    ]


def _pinned(cores: Sequence[frozenset[int]]) -> str:
    used = sorted(frozenset().union(*cores))
    return f", on cores {', '.join(map(str, used))}" if used else ""
