"""Advantages for on-policy learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.agents import agents_view, alive_agents, fold
from minding.engine.data.returns import gae, over_agents
from minding.engine.data.rollout import named_leaves
from minding.engine.types import Array, CollectMode, Obs


@declare(role="collect", reads=("trajectories",), writes=("train_data",))
class gae_estimator:
    """Computes advantages and returns of the rollout (Schulman et al., 2016, https://arxiv.org/abs/1506.02438).

    A time limit bootstraps from the value of the true final observation; a true end does not bootstrap. All values are
    those that the collector recorded: the numbers are the same wherever this runs, and however old the policy was.

    With several agents each has its own advantages and rows. One that leaves early has come to its own true end; rows
    of agents that are not there are not valid.

    Reads: trajectories (with `value` in its record).
    Writes: train_data, flat arrays of T * N rows, or T * N * M: the rollout's own (declared info as ``info.<key>``),
      `advantage`, `return`, and `valid` (bool), false for rows in which an environment was reset or its agent was not
      there; of a policy with memory also `begun` (bool), true where the memory was emptied before the row, and
      `sequence` (int64), the number of the row's environment, or of its agent among those of all environments.
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
        value, terminated, cut = rollout.record["value"], rollout.terminated, rollout.cut()
        valid = np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid
        axes = value.ndim
        if axes > 2:
            # An agent that leaves has come to its end, and nothing is learned of one that is not there.
            left = rollout.left()
            terminated, cut = terminated[..., None] | left, cut[..., None] | left
            valid = valid[..., None] & alive_agents(rollout.obs)
        learn = {"gamma": self._gamma, "gae_lambda": self._gae_lambda}
        advantage = gae(rollout.reward, value, rollout.next_value(), terminated, cut, **learn)
        columns: dict[str, Array] = {
            **_named_obs(rollout.obs, axes),
            "action": rollout.action,
            **rollout.record,
            **{f"info.{name}": values for name, values in rollout.info.items()},
            "advantage": advantage,
            "return": advantage + value,
            "valid": valid,
        }
        if "memory" in rollout.record:
            columns["begun"] = over_agents(rollout.begun(), value.shape, "begun")
            columns["sequence"] = np.broadcast_to(np.arange(value[0].size).reshape(value.shape[1:]), value.shape)
        ctx.train_data = {name: fold(array, axes) for name, array in columns.items()}


def _named_obs(obs: Obs, axes: int) -> dict[str, Array]:
    """The columns of an observation; of several agents what they themselves see."""
    if axes == 2:
        return dict(named_leaves("obs", obs))
    return {f"obs.{path}": leaf for path, leaf in agents_view(obs).items()}
