"""Advantages and full returns for on-policy learning."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.agent_axis import CENTRAL, IDENTITY, STATE, agents_view, alive_agents, central_view, fold
from minding.engine.data.returns import gae, outcome, over_agents, reverse_scan
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.data.rollout_joins import join, last_rows, rollout_of, rollout_state
from minding.engine.types import Array, CollectMode, Obs, StateDict
from minding.middleware.ctx_fields import rollout_in

_estimates = declare(
    role="collect",
    reads=("trajectories",),
    writes=("train_data",),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed",),
)


@_estimates
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
        if not self._has_value:
            return ["the policy records no state value: use an actor-critic policy such as PPO"]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "gae_estimator")
        ctx.train_data = rows_with_advantages(rollout, self._gamma, self._gae_lambda, self._team_outlives)


def rows_with_advantages(rollout: Rollout, gamma: float, gae_lambda: float, outlives: bool = False) -> dict[str, Array]:
    """All rows of a rollout, with `advantage`, `return` (by `engine.data.returns.gae`) and `valid`. With several
    agents, each has its own advantages and rows. For an agent that leaves early, leaving is a true end; rows of absent
    agents are not valid."""
    value, terminated, cut = rollout.record["value"], rollout.terminated, rollout.cut()
    valid = np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid
    axes = value.ndim
    if axes > 2 and outlives and rollout.reward.ndim == 2:
        valid = over_agents(valid, value.shape, "valid")
    elif axes > 2:
        # Leaving ends an agent's trajectory, and the rows of absent agents are not used.
        left = rollout.left()
        terminated, cut = terminated[..., None] | left, cut[..., None] | left
        valid = valid[..., None] & alive_agents(rollout.obs)
    advantage = gae(rollout.reward, value, rollout.next_value(), terminated, cut, gamma=gamma, gae_lambda=gae_lambda)
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
    alive = alive_agents(obs)
    own[f"obs.{IDENTITY}"] = np.broadcast_to(np.arange(alive.shape[-1]), alive.shape)
    if isinstance(obs, np.ndarray) or STATE not in obs:
        return own
    return {**own, **{f"{CENTRAL}.{path}": leaf for path, leaf in central_view(obs).items()}}


@_estimates
class montecarlo_return_estimator:
    """Computes discounted returns to the end of each episode (Williams, 1992, https://doi.org/10.1007/BF00992696).

        G_t = sum_k gamma^k r_{t+k}

    Without a critic there is no value to bootstrap from. Rows wait until their episode is over, through any number of
    rollouts, and are then used exactly once: leaving out episodes that a rollout cuts would favor short ones.
    train_data always has as many rows as the rollout, so that every minibatch has the same size: these are the oldest
    rows whose return is known; while there are too few of them, no row is valid. The others wait for later rollouts,
    and are saved until then. A time limit ends the sum, as a true end does. The returns of an aborted episode, for
    instance after a fault, are unknown, and its rows are left out.

    With a critic, a time limit and the end of the rollout bootstrap from the values that the collector recorded; a true
    end does not bootstrap. The rows are then those of `gae_estimator` with lambda 1.

    Reads: trajectories.
    Writes: train_data, flat arrays: the rollout's own columns (declared info as ``info.<key>``), `return` and `valid`
      (bool); with a critic also the other fields of `gae_estimator`.
    Config: policy.learn.gamma.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode``; it has a critic if it records `value`.
    """

    def __init__(self, cfg: Config, policy: CollectMode) -> None:
        self._gamma = cfg.policy.learn.gamma
        self._has_value = "value" in policy.record_fields
        self._agents = "agents" in cfg.env.spec
        # Both by collector: the rows of episodes that are not over, and the rows whose return is known.
        self._tails: dict[int, Rollout] = {}
        self._known: dict[int, dict[str, Array]] = {}

    def requirements(self) -> Sequence[str]:
        if self._agents and not self._has_value:
            return ["the policy records no state value, without which it serves one agent: use an actor-critic policy"]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "montecarlo_return_estimator")
        if self._has_value:
            ctx.train_data = rows_with_advantages(rollout, gamma=self._gamma, gae_lambda=1.0)
            return
        count, known = rollout.terminated.size, self._take_in(rollout)
        enough = len(known["return"]) >= count
        if enough:
            self._known[rollout.collector] = {name: values[count:].copy() for name, values in known.items()}
        rows = {
            name: values[:count] if enough else np.zeros((count, *values.shape[1:]), values.dtype)
            for name, values in known.items()
        }
        ctx.train_data = {**rows, "valid": np.full(count, enough)}

    def _take_in(self, rollout: Rollout) -> dict[str, Array]:
        """Adds a rollout to the waiting rows; returns the rows of its collector whose return is known."""
        number = rollout.collector
        if number in self._tails:
            rollout = join(self._tails.pop(number), rollout)
        due = rollout.transitions()
        over, running = outcome(rollout.terminated | rollout.truncated, rollout.cut())
        new = _rows(rollout, self._gamma)
        chosen = fold(due & over)
        known = {name: values[chosen] for name, values in new.items()}
        if number in self._known:
            known = {name: np.concatenate([values, known[name]]) for name, values in self._known[number].items()}
        self._known[number] = known
        if running.any():
            start = int(running.any(axis=1).argmax())
            waiting = dataclasses.replace(rollout, ready=due & running)
            self._tails[number] = last_rows(waiting, len(running) - start)
        return known

    def state_dict(self) -> StateDict:
        return {
            "tails": {str(number): rollout_state(tail) for number, tail in self._tails.items()},
            "known": {str(number): dict(rows) for number, rows in self._known.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._tails = {int(number): rollout_of(tail) for number, tail in state["tails"].items()}
        self._known = {int(number): dict(rows) for number, rows in state["known"].items()}


def _rows(rollout: Rollout, gamma: float) -> dict[str, Array]:
    """All rows, flat, with the sum of the rewards from each to the end of its trajectory in these rows."""
    total = reverse_scan(rollout.reward, np.where(rollout.cut(), 0.0, gamma))
    columns = {**dict(named_leaves("obs", rollout.obs)), **acted(rollout), "return": total.astype(np.float32)}
    return {name: fold(array) for name, array in columns.items()}
