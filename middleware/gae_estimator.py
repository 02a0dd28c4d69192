"""Advantages for on-policy learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data import trees
from minding.engine.data.returns import gae
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.types import Array, CollectMode


@declare(role="collect", reads=("trajectories",), writes=("train_data",))
class gae_estimator:
    """Computes advantages and returns of the rollout (Schulman et al., 2016, https://arxiv.org/abs/1506.02438).

    A time limit bootstraps from the value of the true final observation; a true end does not bootstrap.

    Reads: trajectories (with `value` in its record).
    Writes: train_data, flat arrays of T * N rows: the rollout's own, `advantage`, `return`, and `valid` (bool), false
      for rows in which an environment was reset.
    Config: policy.learn.gamma, policy.learn.gae_lambda.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode`` of an actor-critic policy.
    """

    def __init__(self, cfg: Any, policy: CollectMode) -> None:
        self._gamma, self._gae_lambda = cfg.policy.learn.gamma, cfg.policy.learn.gae_lambda
        self._policy = policy

    def requirements(self) -> Sequence[str]:
        """Anything that does not fit, as sentences for the chain check."""
        if "value" not in self._policy.record_fields:
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
            next_values(rollout, self._policy),
            rollout.terminated,
            rollout.cut(),
            gamma=self._gamma,
            gae_lambda=self._gae_lambda,
        )
        columns: dict[str, Array] = {
            **dict(named_leaves("obs", rollout.obs)),
            "action": rollout.action,
            **rollout.record,
            "advantage": advantage,
            "return": advantage + value,
            "valid": np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid,
        }
        rows = rollout.shape[0] * rollout.shape[1]
        ctx.train_data = {name: array.reshape(rows, *array.shape[2:]) for name, array in columns.items()}


def next_values(rollout: Rollout, policy: CollectMode) -> Array:
    """Value of each row's true successor, float32 (T, N).

    Inside the rollout that is the next row's recorded value, so that the policy is asked once, for the final
    observations of ended episodes and for the last observations.
    """
    value = rollout.record["value"]
    following = np.empty_like(value)
    following[:-1] = value[1:]
    if rollout.final_obs is None:
        following[-1] = policy.value(rollout.last_obs)
        return following
    asked = trees.tree_map(lambda a, b: np.concatenate([a, b]), rollout.last_obs, rollout.final_obs)
    answers = policy.value(asked)
    envs = rollout.shape[1]
    following[-1] = answers[:envs]
    following[rollout.ends[:, 0], rollout.ends[:, 1]] = answers[envs:]
    return following
