"""A chain in lanes, as the main process runs it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from minding.engine.chain import Node
from minding.engine.context import Context
from minding.engine.lanes.collect import CollectLane
from minding.engine.lanes.crew import Crew
from minding.engine.lanes.evaluate import EvaluateLane
from minding.engine.lanes.options import LaneOptions, cores, plan_cores
from minding.engine.lanes.process import close_all
from minding.engine.lanes.split import split
from minding.engine.lanes.view import lanes_view
from minding.engine.middleware import Role
from minding.engine.trace import Trace


class Lanes:
    """A chain whose collectors and evaluators run in processes of their own.

    Attributes:
      nodes: the chain as the main process runs it.

    Args:
      nodes: the chain.
      ctx: the first context.
      options: settings, of which None are filled in here.
      interrupted: whether the run was asked to end.
    """

    def __init__(
        self, nodes: Sequence[Node], ctx: Context, options: LaneOptions, interrupted: Callable[[], bool]
    ) -> None:
        leaves = [leaf for node in nodes for leaf in node.leaves()]
        self.options = options.resolve(leaves)
        staleness = self.options.max_staleness or 0
        self._context = type(ctx)
        self._cut = split(nodes, ctx.kept)
        self._cores = plan_cores(self.options, cores())
        self._crews: list[Crew] = []
        self._evaluators: list[EvaluateLane] = []
        self._unpinned: frozenset[int] | None = None
        places: dict[int, Node] = {}
        if self._cut.collect is not None:
            crew = Crew(self._cut.collect, Role.COLLECT, self._cores.collectors, staleness + 1, staleness == 0)
            self._put(places, nodes, crew, CollectLane(crew, staleness, interrupted))
        for cut in self._cut.evaluate:
            crew = Crew(cut, Role.EVALUATE, [self._cores.evaluator], 1, True)
            lane = EvaluateLane(crew, staleness == 0, interrupted)
            self._evaluators.append(lane)
            self._put(places, nodes, crew, lane)
        away = [id(member) for crew in self._crews for member in crew.cut.members]
        self.nodes = [
            places.get(place, node) for place, node in enumerate(nodes) if place in places or id(node) not in away
        ]

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of all workers that run."""
        pids = [worker.pid for crew in self._crews for worker in crew.workers]
        return tuple(pid for pid in pids if pid is not None)

    @property
    def restarts(self) -> int:
        """How often a worker died and was started again."""
        return sum(worker.restarts for crew in self._crews for worker in crew.workers)

    def begin(self, trace: Trace | None) -> None:
        """Before the first iteration of a run, with all state loaded: packs the lanes, gives this process its cores."""
        for crew in self._crews:
            crew.trace = trace
            crew.prepare(self._context)
        if self._cores.learner and self._unpinned is None:
            self._unpinned = frozenset(cores())
            _pin_process(self._cores.learner)

    def settle(self, ctx: Context) -> None:
        """At the end of a run that was not interrupted: waits for the evaluations that are under way."""
        for lane in self._evaluators:
            lane.settle(ctx)

    def close(self) -> None:
        """Ends all worker processes."""
        close_all([worker for crew in self._crews for worker in crew.workers])
        if self._unpinned is not None:
            _pin_process(self._unpinned)
            self._unpinned = None

    def view(self, nodes: Sequence[Node]) -> str:
        """The chain by lanes, and what crosses between them."""
        return lanes_view(nodes, self._cut, self.options, self._cores)

    def _put(self, places: dict[int, Node], nodes: Sequence[Node], crew: Crew, lane: Any) -> None:
        """Puts the middleware that stands for a crew in the place of the member that matters to others."""
        self._crews.append(crew)
        main = crew.cut.main
        place = next(index for index, node in enumerate(nodes) if node is main)
        places[place] = Node(lane, main.position, lane.declaration.name, None, lane.declaration, crew.nodes())


def _pin_process(to: frozenset[int]) -> None:
    """Keeps all threads of this process on some cores."""
    if not hasattr(os, "sched_setaffinity"):
        return
    for thread in _threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, to)


def _threads() -> Iterator[int]:
    folder = Path("/proc/self/task")
    yield from (int(entry.name) for entry in folder.iterdir()) if folder.is_dir() else [0]
