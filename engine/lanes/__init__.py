"""Lanes: collectors, learner and evaluators of one chain in separate workers, running concurrently.

The chain is divided by the roles of its middleware (`division`). The learner stays in the main process, which runs the
chain as in a synchronous run, with one middleware in place of those that run elsewhere (`CollectLane`,
`EvaluateLane`). These send requests to workers (`WorkerGroup`) and collect their answers; a worker that dies is
replaced (`SupervisedWorker`). A `Transport` determines the kind of workers and how messages and weights reach them:
`processes` with shared memory, `threads`, or actors on a cluster (`ray`).
"""

from minding.engine.lanes.options import LaneOptions

__all__ = ["LaneOptions"]
