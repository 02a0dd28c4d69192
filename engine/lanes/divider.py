"""What the chain gets of lanes, see `engine.chain.division`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.division import Division, Run
from minding.engine.chain.nodes import Node
from minding.engine.lanes.options import LaneOptions


class LaneDivider:
    """Cuts a chain into lanes.

    Args:
      lanes: settings.
    Raises:
      ConfigError: one is unknown or out of range.
    """

    def __init__(self, lanes: LaneOptions | Mapping[str, Any] | None) -> None:
        self._options = LaneOptions.of(lanes)

    def divide(self, nodes: Sequence[Node], ctx: Context, run: Run) -> Division:
        # Processes and shared memory are not part of a synchronous run.
        from minding.engine.lanes.run import Lanes

        return Lanes(nodes, ctx, self._options, run)
