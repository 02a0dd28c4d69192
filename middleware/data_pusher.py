"""From the collector into the replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minding.engine.context import OnlineRLContext
from minding.engine.middleware import declare
from minding.engine.rollout import Rollout, named_leaves
from minding.engine.types import Array, Buffer


@declare(role="learn", reads=("trajectories",))
def data_pusher(cfg: Any, buffer: Buffer) -> Callable[[OnlineRLContext], None]:
    """Pushes the rollout's transitions into the buffer; rows in which an environment was reset are left out.

    Reads: trajectories.
    Writes: nothing.
    """
    del cfg

    def push(ctx: OnlineRLContext) -> None:
        assert ctx.trajectories is not None
        buffer.push(transitions(ctx.trajectories))

    return push


def transitions(rollout: Rollout) -> dict[str, Array]:
    """The transitions of a rollout as flat arrays ``(n, ...)``, ordered by time, then environment.

    Successor and `terminated` are those of the row that `rollout.bootstrap_row` names (n-step returns).
    """
    next_obs, terminated = rollout.next_obs(), rollout.terminated
    columns: dict[str, Array] = {"action": rollout.action, "reward": rollout.reward, **rollout.record}
    successors = dict(named_leaves("next_obs", next_obs))
    if rollout.bootstrap_row is not None:
        rows = (rollout.bootstrap_row, np.arange(rollout.shape[1])[None, :])
        terminated = terminated[rows]
        successors = {name: leaf[rows] for name, leaf in successors.items()}
    columns.update(successors)
    columns.update(named_leaves("obs", rollout.obs))
    columns["terminated"] = terminated
    steps, envs = rollout.shape
    flat = {name: value.reshape(steps * envs, *value.shape[2:]) for name, value in columns.items()}
    if rollout.valid is not None:
        keep = rollout.valid.reshape(-1)
        flat = {name: value[keep] for name, value in flat.items()}
    return flat
