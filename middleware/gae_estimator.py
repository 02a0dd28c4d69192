"""Advantages for on-policy learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.returns import gae
from minding.engine.data.rollout import named_leaves
from minding.engine.types import Array, CollectMode


@declare(role="collect", reads=("trajectories",), writes=("train_data",))
class gae_estimator:
    """Computes advantages and returns of the rollout (Schulman et al., 2016, https://arxiv.org/abs/1506.02438).

    A time limit bootstraps from the value of the true final observation; a true end does not bootstrap. All values are
    those that the collector recorded: the numbers are the same wherever this runs, and however old the policy was.

    Reads: trajectories (with `value` in its record).
    Writes: train_data, flat arrays of T * N rows: the rollout's own (declared info as ``info.<key>``), `advantage`,
      `return`, and `valid` (bool), false for rows in which an environment was reset; of a policy with memory also
      `begun` (bool), true where the memory was emptied before the row, and `sequence` (int64), the number of the row's
      environment.
    Config: policy.learn.gamma, policy.learn.gae_lambda.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode`` of an actor-critic policy.
    """

    def __init__(self, cfg: Any, policy: CollectMode) -> None:
        self._gamma, self._gae_lambda = cfg.policy.learn.gamma, cfg.policy.learn.gae_lambda
        self._has_value = "value" in policy.record_fields

    def requirements(self) -> Sequence[str]:
        """Anything that does not fit, as sentences for the chain check."""
        if not self._has_value:
            return ["the policy records no state value: use an actor-critic policy such as PPO"]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Computes the advantages of the iteration."""
        rollout = ctx.trajectories
        assert rollout is not None
        value = rollout.record["value"]
        advantage = gae(
            rollout.reward,
            value,
            rollout.next_value(),
            rollout.terminated,
            rollout.cut(),
            gamma=self._gamma,
            gae_lambda=self._gae_lambda,
        )
        columns: dict[str, Array] = {
            **dict(named_leaves("obs", rollout.obs)),
            "action": rollout.action,
            **rollout.record,
            **{f"info.{name}": values for name, values in rollout.info.items()},
            "advantage": advantage,
            "return": advantage + value,
            "valid": np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid,
        }
        if "memory" in rollout.record:
            columns["begun"] = rollout.begun()
            columns["sequence"] = np.broadcast_to(np.arange(rollout.shape[1]), rollout.shape)
        rows = rollout.shape[0] * rollout.shape[1]
        ctx.train_data = {name: array.reshape(rows, *array.shape[2:]) for name, array in columns.items()}
