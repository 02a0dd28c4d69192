"""Runs that take hours: what ``python -m proofs.run --queue`` trains, one after the other in the background."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from proofs.runs import Job

STEPS = 1_000_000
TASKS = ("halfcheetah", "hopper", "walker2d", "ant")


@dataclasses.dataclass(frozen=True)
class Queued:
    """One run of the queue.

    Attributes:
      preset, seed: what is trained.
      env_step: environment steps.
      priority: runs with a lower number are first; runs with the same number are in the order of the list.
    """

    preset: str
    seed: int
    env_step: int
    priority: int

    @property
    def job(self) -> Job:
        """The learning proof that the run is."""
        return Job("learning", self.preset, self.seed, self.env_step)


QUEUE = (
    *(Queued(f"{task}_ppo", seed, STEPS, 0) for seed in range(5) for task in TASKS),
    *(Queued(f"{task}_{name}", 0, STEPS, 1) for name in ("sac", "td3") for task in TASKS),
    *(Queued(f"{task}_{name}", seed, STEPS, 2) for seed in (1, 2) for name in ("sac", "td3") for task in TASKS),
    *(Queued("halfcheetah_ddpg", seed, STEPS, 3) for seed in range(3)),
)

PRESETS = frozenset(each.preset for each in QUEUE)
"""The presets of the queue, which `make proofs` trains only as parts of it."""


def in_order(queue: Iterable[Queued] = QUEUE) -> list[Job]:
    """The runs of a queue by priority."""
    return [each.job for each in sorted(queue, key=lambda each: each.priority)]
