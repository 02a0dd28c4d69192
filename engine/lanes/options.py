"""The layout of an asynchronous run: settings, and values for those that the user did not give."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Node
from minding.engine.config.config import LanesSection
from minding.engine.errors import ConfigError, nearest

LOCAL = "local"
"""The address of a cluster that a run starts on this machine."""
KINDS = {"collector": "collector", "evaluator": "evaluator", "server": "inference server"}
"""The kinds of workers in ``lanes.resources``, and the beginnings of their names."""
_TIMEOUT, _TIMEOUT_ON_RAY = 300.0, 30.0  # s
LANES = {key: option for key, option in LanesSection.options().items() if key != "async_mode"}
"""The options of the section `lanes`, but for the one that says whether a run is asynchronous at all."""


class LaneOptions(LanesSection):
    """Settings of an asynchronous run: the section `lanes` of a configuration, whose fields state their meaning.

    What they leave open (None) is filled in by `resolve`.
    """

    def __init__(self, **given: object) -> None:
        for name in given.keys() - LANES.keys():
            raise ConfigError(f"lanes.{name} is not a setting{nearest(name, LANES)}; known: {', '.join(LANES)}")
        super().__init__(
            {name: option.check(given.get(name, option.default), f"lanes.{name}") for name, option in LANES.items()}
        )
        if self.order == "arrival" and self.max_staleness == 0:
            raise ConfigError(
                "lanes.order='arrival' with lanes.max_staleness=0: each iteration then has one rollout only; raise "
                "lanes.max_staleness, or leave lanes.order at exact"
            )
        if self.pin == "on" and self.transport == "threads":
            raise ConfigError(
                "lanes.pin='on': threads of one process take turns and are not pinned; leave lanes.pin at auto, or use "
                "lanes.transport=processes"
            )
        if self.pin == "on" and self.transport == "ray":
            raise ConfigError("lanes.pin='on': Ray places its actors itself; leave lanes.pin at auto")
        # Other transports ignore the address, which a run keeps that was resumed without its cluster.
        if self.insecure and self.transport == "ray" and self.address == LOCAL:
            raise ConfigError(
                "lanes.insecure=true (--insecure-cluster) is for a Ray cluster that you started: also give its "
                "address, as in --cluster HOST:PORT"
            )
        if self.transport == "ray":
            self._check_resources()
        if self.collectors is not None and self.collectors % self.shards:
            fitting = -(-self.collectors // self.shards) * self.shards
            raise ConfigError(
                f"lanes.shards={self.shards} does not divide lanes.collectors={self.collectors}, and each iteration is "
                f"shared by as many collectors: use lanes.collectors={fitting}"
            )
        if self.collectors is not None and self.max_staleness is not None:
            self._check_staleness(self.collectors, self.max_staleness)

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> LaneOptions:
        """Returns the options of the section `lanes` of a configuration, or of a part of it."""
        # The section also says whether a run is asynchronous at all.
        return cls(**{name: value for name, value in (options or {}).items() if name != "async_mode"})

    def resolve(self, leaves: Sequence[Node], max_collectors: int) -> LaneOptions:
        """Fills in the settings that are None."""
        staleness = self.max_staleness
        if staleness is None:
            staleness = default_staleness([leaf.middleware for leaf in leaves if leaf.role is Role.LEARN])
        collectors = self.collectors
        if collectors is None:
            collectors = self.shards * max(1, min(max_collectors // self.shards, staleness))
        self._check_staleness(collectors, staleness)
        timeout = self.timeout
        if timeout is None:
            timeout = _TIMEOUT_ON_RAY if self.transport == "ray" else _TIMEOUT
        return LaneOptions(**{**self, "collectors": collectors, "max_staleness": staleness, "timeout": timeout})

    def _check_resources(self) -> None:
        if self.code is not None and self.address == LOCAL:
            raise ConfigError(
                "lanes.code is for machines that lack modules of yours; a cluster on this machine finds them: leave it "
                "out, or give the address of a cluster that you started, as in --cluster HOST:PORT"
            )
        if self.resources and self.address == LOCAL:
            raise ConfigError(
                "lanes.resources is for a cluster that you started, whose machines offer them: also give its address, "
                "as in --cluster HOST:PORT"
            )
        for kind, wanted in self.resources.items():
            if kind not in KINDS:
                raise ConfigError(f"lanes.resources.{kind}: unknown{nearest(kind, KINDS)}; expected {', '.join(KINDS)}")
            amounts = wanted.values() if isinstance(wanted, Mapping) else [None]
            if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and n >= 0 for n in amounts):
                raise ConfigError(
                    f"lanes.resources.{kind}={wanted!r}: expected a number of each resource, such as {{CPU: 1, NPU: 1}}"
                )

    def check_collectors(self, learner: object) -> None:
        """Refuses more collectors than can work at the same time with the staleness that the chain's learner
        states."""
        if self.collectors is not None and self.max_staleness is None:
            self._check_staleness(self.collectors, default_staleness([learner]))

    def _check_staleness(self, collectors: int, staleness: int) -> None:
        """Refuses more collectors than can work at the same time."""
        most = self.shards * (staleness + 1)
        if collectors > most:
            raise ConfigError(
                f"lanes.collectors={collectors}: with lanes.max_staleness={staleness}"
                f"{f' and lanes.shards={self.shards}' if self.shards > 1 else ''}, at most {most} can work at the same "
                f"time: let all of them share each iteration (lanes.shards={collectors}), or use "
                f"lanes.max_staleness={-(-collectors // self.shards) - 1} or fewer collectors"
            )


def default_staleness(learners: Sequence[object]) -> int:
    """The smallest value that learners state in their attribute `staleness`; 1 if none states any."""
    said = [int(value) for value in (getattr(learner, "staleness", None) for learner in learners) if value is not None]
    return min(said, default=1)


def cores() -> list[int]:
    """Numbers of the processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@dataclasses.dataclass(frozen=True)
class CorePlan:
    """The processor cores of each lane; an empty set leaves the choice to the system."""

    learner: frozenset[int]
    collectors: tuple[frozenset[int], ...]
    evaluator: frozenset[int]


def plan_cores(options: LaneOptions, available: Sequence[int]) -> CorePlan:
    """Gives each collector its own core, starting from the last; learner and evaluator get the remaining cores. The
    evaluator gets its own core if three or more remain. Lanes that would have to share all cores are not pinned,
    because the system distributes them better, and neither are lanes of a transport that offers no cores."""
    count = options.collectors or 1
    free = list(available)
    enough = len(free) >= max(3, count + 1)
    wanted = options.pin == "on" or (options.pin == "auto" and enough)
    if not wanted or len(free) < 2:
        nowhere: frozenset[int] = frozenset()
        return CorePlan(nowhere, (nowhere,) * count, nowhere)
    own = free[max(1, len(free) - count) :]
    left = free[: len(free) - len(own)]
    evaluator = [left.pop()] if len(left) >= 3 else own
    return CorePlan(
        learner=frozenset(left),
        collectors=tuple(frozenset({own[k % len(own)]}) for k in range(count)),
        evaluator=frozenset(evaluator),
    )
