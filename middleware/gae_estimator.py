"""Advantages for on-policy learning."""

from collections.abc import Sequence

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.agent_axis import CENTRAL, STATE, agents_view, alive_agents, central_view, fold
from minding.engine.data.returns import gae, over_agents
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.types import Array, CollectMode, Obs
from minding.middleware.ctx_fields import rollout_in


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
        self._team_outlives = learn.death_masking
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


def rows_with_advantages(
    rollout: Rollout, *, gamma: float, gae_lambda: float, team_outlives: bool = False
) -> dict[str, Array]:
    """All rows of a rollout, with `advantage`, `return` (by `engine.data.returns.gae`) and `valid`.

    With several agents, each has its own advantages and rows. For an agent that leaves early, leaving is a true end;
    rows of absent agents are not valid.

    Args:
      rollout: the rollout, with `value` in its record.
      gamma: discount factor.
      gae_lambda: lambda, in [0, 1]; 1 gives the returns up to the end of the trajectory or of the rollout.
      team_outlives: whether, if a team has one reward, the rewards that it earns after an agent has left belong to the
        agent's return, and the agent's rows are valid as long as the episode continues.

    Returns:
      Flat arrays of T * N rows, or T * N * M, by name, see `gae_estimator`.

    Raises:
      ChainError: if no values were recorded.
    """
    value, terminated, cut = rollout.record["value"], rollout.terminated, rollout.cut()
    valid = np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid
    axes = value.ndim
    if axes > 2 and team_outlives and rollout.reward.ndim == 2:
        valid = over_agents(valid, value.shape, "valid")
    elif axes > 2:
        # Leaving ends an agent's trajectory, and the rows of absent agents are not used.
        left = rollout.left()
        terminated, cut = terminated[..., None] | left, cut[..., None] | left
        valid = valid[..., None] & alive_agents(rollout.obs)
    learn = {"gamma": gamma, "gae_lambda": gae_lambda}
    advantage = gae(rollout.reward, value, rollout.next_value(), terminated, cut, **learn)
    columns: dict[str, Array] = {
        **_named_obs(rollout.obs, axes),
        **acted(rollout),
        "advantage": advantage,
        "return": advantage + value,
        "valid": valid,
    }
    if "memory" in rollout.record:
        columns["begun"] = over_agents(rollout.begun(), value.shape, "begun")
        columns["sequence"] = np.broadcast_to(np.arange(value[0].size).reshape(value.shape[1:]), value.shape)
    return {name: fold(array, axes) for name, array in columns.items()}


def acted(rollout: Rollout) -> dict[str, Array]:
    """Actions, the policy's record and declared info (as ``info.<key>``), ``(T, N, ...)``."""
    info = {f"info.{name}": values for name, values in rollout.info.items()}
    return {"action": rollout.action, **rollout.record, **info}


def _named_obs(obs: Obs, axes: int) -> dict[str, Array]:
    """The columns of an observation. With several agents: each agent's own view, and the view of a centralized value
    if the observation has the state."""
    if axes == 2:
        return dict(named_leaves("obs", obs))
    own = {f"obs.{path}": leaf for path, leaf in agents_view(obs).items()}
    if isinstance(obs, np.ndarray) or STATE not in obs:
        return own
    return {**own, **{f"{CENTRAL}.{path}": leaf for path, leaf in central_view(obs).items()}}
