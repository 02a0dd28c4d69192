"""The rows of a rollout with what is estimated of them: what estimators write."""

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

    With several agents each has its own advantages and rows. One that leaves early has come to its own true end; rows
    of agents that are not there are not valid.

    Args:
      rollout: with `value` in its record.
      gamma: discount.
      gae_lambda: in [0, 1]; with 1 returns are those to the end of the trajectory or of the rollout.
      team_outlives: where a team has one reward, what it earns when an agent has left belongs to the agent's return,
        and its rows are valid as long as the episode continues.

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
        # An agent that leaves has come to its end, and nothing is learned of one that is not there.
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
    """The columns of an observation; of several agents what they themselves see, and what a centralised value sees
    where the state is there."""
    if axes == 2:
        return dict(named_leaves("obs", obs))
    own = {f"obs.{path}": leaf for path, leaf in agents_view(obs).items()}
    if isinstance(obs, np.ndarray) or STATE not in obs:
        return own
    return {**own, **{f"{CENTRAL}.{path}": leaf for path, leaf in central_view(obs).items()}}
