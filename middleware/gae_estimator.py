"""Advantages for on-policy learning."""

from __future__ import annotations

from collections.abc import Sequence

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.types import CollectMode
from minding.middleware.estimates import rows_with_advantages
from minding.middleware.inputs import rollout_in


@declare(
    role="collect",
    reads=("trajectories",),
    writes=("train_data",),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed",),
)
class gae_estimator:
    """Computes advantages and returns of the rollout (Schulman et al., 2016, https://arxiv.org/abs/1506.02438).

    A time limit bootstraps from the value of the true final observation; a true end does not bootstrap. All values were
    recorded by the collector: the results are the same wherever this runs, and however old the policy was.

    With several agents, each has its own advantages and rows. For an agent that leaves early, leaving is a true end;
    rows of absent agents are not valid. With `death_masking`, if the team has one reward, the rows of an agent that has
    left stay valid, and the rewards that the team earns later belong to its return.

    Reads: trajectories (with `value` in its record).
    Writes: train_data, flat arrays of T * N rows, or T * N * M with M agents: the rollout's own columns (declared info
      as ``info.<key>``), `advantage`, `return`, and `valid` (bool), false for rows in which an environment was reset or
      its agent was absent. A policy with memory adds `begun` (bool), true where the memory was cleared before the row,
      and `sequence` (int64), the number of the row's environment, or of its agent among the agents of all environments.
    Config: policy.learn.gamma, policy.learn.gae_lambda, policy.learn.death_masking if the algorithm has it.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode`` of an actor-critic policy.
    """

    def __init__(self, cfg: Config, policy: CollectMode) -> None:
        learn = cfg.policy.learn
        self._gamma, self._gae_lambda = learn.gamma, learn.gae_lambda
        self._team_outlives = learn.read("death_masking", bool, False)
        self._has_value = "value" in policy.record_fields

    def requirements(self) -> Sequence[str]:
        """Faults of the settings and of the given objects, one sentence each, for the chain check."""
        if not self._has_value:
            return ["the policy records no state value: use an actor-critic policy such as PPO"]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Computes the advantages of the iteration."""
        ctx.train_data = rows_with_advantages(
            rollout_in(ctx, "gae_estimator"),
            gamma=self._gamma,
            gae_lambda=self._gae_lambda,
            team_outlives=self._team_outlives,
        )
