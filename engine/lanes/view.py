"""The lanes of a chain as text."""

from __future__ import annotations

from collections.abc import Sequence

from minding.engine.chain.check import pipeline_rows, table
from minding.engine.chain.pipeline import Node
from minding.engine.lanes.division import Division, Part
from minding.engine.lanes.options import CorePlan, LaneOptions


def lanes_view(
    nodes: Sequence[Node], division: Division, options: LaneOptions, cores: CorePlan, free: bool = False
) -> str:
    """Returns the pipeline view with the lane of each middleware, and below it the fields that cross between lanes.

    Args:
      free: whether iterations may run without a rollout.
    """
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
