"""The rows of a rollout with their estimated advantages and returns, as estimators write them."""

from __future__ import annotations

import numpy as np

from minding.engine.data.agents import CENTRAL, STATE, agents_view, alive_agents, central_view, fold
from minding.engine.data.returns import gae, over_agents
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.types import Array, Obs


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
