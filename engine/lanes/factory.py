"""Makes the lanes of a chain, see `engine.chain.lanes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.lanes import Lanes, MakeLanes, Run
from minding.engine.chain.pipeline import Node
from minding.engine.lanes.options import LaneOptions


def lane_factory(lanes: LaneOptions | Mapping[str, Any] | None) -> MakeLanes:
    """Checks settings and returns the function that divides a chain into lanes.

    Args:
      lanes: `LaneOptions`, a mapping with their fields, or None.
    Raises:
      ConfigError: a setting is unknown or out of range.
    """
    options = LaneOptions.of(lanes)

    def make(nodes: Sequence[Node], ctx: Context, run: Run) -> Lanes:
        # Processes and shared memory are not part of a synchronous run.
        from minding.engine.lanes.run import WorkerLanes

        return WorkerLanes(nodes, ctx, options, run)

    return make
