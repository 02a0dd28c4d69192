"""Lanes: collectors, learner and evaluators of one chain in separate workers, running concurrently.

The chain is divided by the roles of its middleware (`division`). The learner stays in the main process, which runs the
chain as in a synchronous run, with one middleware in place of those that run elsewhere (`CollectLane`,
`EvaluateLane`). These send requests to workers (`WorkerGroup`) and collect their answers; a worker that dies is
replaced (`SupervisedWorker`). A `Transport` determines the kind of workers and how messages and weights reach them:
`processes` with shared memory, `threads`, or actors on a cluster (`ray`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.lanes import Lanes, MakeLanes, Run
from minding.engine.chain.pipeline import Node
from minding.engine.lanes.options import LaneOptions

__all__ = ["LaneOptions", "lane_factory"]


def lane_factory(lanes: Mapping[str, Any] | None) -> MakeLanes:
    """Checks settings and returns the function that divides a chain into lanes."""
    options = LaneOptions.of(lanes)

    def make(nodes: Sequence[Node], ctx: Context, run: Run) -> Lanes:
        # Processes and shared memory are not part of a synchronous run.
        from minding.engine.lanes.run import WorkerLanes

        return WorkerLanes(nodes, ctx, options, run)

    return make
