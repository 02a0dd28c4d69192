"""Lanes: collectors, learner and evaluators of one chain in separate workers, running concurrently.

The chain is divided by the roles of its middleware (`division`). The learner stays in the main process, which runs the
chain as in a synchronous run, with one middleware in place of those that run elsewhere (`CollectLane`,
`EvaluateLane`). These send requests to workers (`WorkerGroup`) and collect their answers; a worker that dies is
replaced (`SupervisedWorker`). What workers are and how messages and weights reach them is the business of a
`Transport`: of `processes` with shared memory, of `threads`, or of a cluster (`ray`).
"""

from minding.engine.lanes.options import LaneOptions

__all__ = ["LaneOptions"]
