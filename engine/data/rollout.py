"""Rollouts, the product of collectors: T steps of N environments, with true ends."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import alive_agents
from minding.engine.errors import ChainError
from minding.engine.types import Array, Obs


@dataclasses.dataclass(slots=True)
class Rollout:
    """A rollout: arrays with leading axes ``(T, N)``. With several agents, a third axis M follows in the arrays of each
    agent: observation (see `engine.data.agent_axis`), action, reward and the policy's record.

    Attributes:
      obs: observations acted on, ``(T, N, ...)`` (an array or a tree of them).
      last_obs: observation after the last step, ``(N, ...)``.
      final_obs: true final observations of the ended episodes, ``(E, ...)``, in the order of `ends`; None if E = 0.
      ends: int64 ``(E, 2)``, the (t, n) of each ended episode, ordered by t, then n.
      action: ``(T, N, ...)``.
      reward: float32 ``(T, N)``, with several agents ``(T, N, M)``.
      terminated, truncated: bool ``(T, N)``.
      valid: bool ``(T, N)``, False for rows in which an environment was reset (no transition); None if all are valid.
      bootstrap_row: int64 ``(T, N)``, the row whose successor, end and discount belong to this row's return (n-step);
        None: each row's own.
      record: values that the policy recorded at each step, ``(T, N, ...)`` by name (log_prob, value, memory, ...).
      last_value: value of `last_obs`, float32 ``(N,)`` or ``(N, M)``, by the weights and the memory that acted;
        None for a policy that does not record values.
      final_value: likewise of `final_obs`, float32 ``(E,)`` or ``(E, M)``.
      info: declared keys of the environments' `info`, ``(T, N, ...)`` by name.
      fresh: bool ``(T, N)``, true in rows in which an episode begins, whatever the row before was, as in the first row
        of a rollout; None if it is not known.
      ready: bool ``(T, N)``, the rows to learn from now; the return of the others is not complete, or they were ready
        in an earlier rollout (n-step). None: all valid rows.
    """

    obs: Obs
    last_obs: Obs
    final_obs: Obs | None
    ends: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array | None
    record: dict[str, Array]
    bootstrap_row: Array | None = None
    last_value: Array | None = None
    final_value: Array | None = None
    info: dict[str, Array] = dataclasses.field(default_factory=dict)
    fresh: Array | None = None
    ready: Array | None = None
    collector: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(T, N)."""
        return self.terminated.shape  # type: ignore[return-value]

    def next_obs(self) -> Obs:
        """True successors ``(T, N, ...)``: the next row's observation, or the final observation of an ended episode."""
        successor: Obs
        successor = obs_trees.tree_map(lambda obs, last: np.concatenate([obs[1:], last[None]]), self.obs, self.last_obs)
        if self.final_obs is not None:
            t, n = self.ends[:, 0], self.ends[:, 1]
            for (_, target), (_, final) in zip(
                obs_trees.leaves(successor), obs_trees.leaves(self.final_obs), strict=True
            ):
                target[t, n] = final
        return successor

    def cut(self) -> Array:
        """Bool ``(T, N)``, true where the next row does not continue this one: at ends, at reset rows, and before them
        (an environment that was restarted after a fault has no end flag)."""
        cut = self.terminated | self.truncated
        if self.valid is not None:
            cut |= ~self.valid
            cut[:-1] |= ~self.valid[1:]
        if self.fresh is not None:
            cut[:-1] |= self.fresh[1:]
        return cut

    def transitions(self) -> Array:
        """Bool ``(T, N)``, true in rows that are transitions to learn from now."""
        rows = np.ones(self.shape, np.bool_) if self.valid is None else self.valid
        return rows if self.ready is None else rows & self.ready

    def left(self) -> Array:
        """Bool ``(T, N, M)``, true where an agent that acted is absent from the true successor: the end of this agent,
        whether or not the others continue."""
        alive = alive_agents(self.obs)
        following = np.concatenate([alive[1:], alive_agents(self.last_obs)[None]])
        if self.final_obs is not None:
            following[self.ends[:, 0], self.ends[:, 1]] = alive_agents(self.final_obs)
        left: Array = alive & ~following
        return left

    def begun(self) -> Array:
        """Bool ``(T, N)``, true where the row does not continue the row before, so that earlier memory does not apply:
        see `EnvStep.begun`, and where `fresh` is true."""
        begun = np.zeros(self.shape, np.bool_) if self.fresh is None else self.fresh.copy()
        over = self.terminated | self.truncated
        begun[1:] |= over[:-1] if self.valid is None else over[:-1] | ~self.valid[:-1]
        return begun

    def next_value(self) -> Array:
        """Value of each row's true successor, float32 ``(T, N)`` or ``(T, N, M)``: the value recorded in the next row,
        or the value of the final or last observation."""
        if self.last_value is None:
            raise ChainError(
                "ctx.trajectories has no values: the collector's policy does not record any; use an actor-critic "
                "policy such as PPO"
            )
        following: Array = np.concatenate([self.record["value"][1:], self.last_value[None]])
        if self.final_value is not None:
            following[self.ends[:, 0], self.ends[:, 1]] = self.final_value
        return following

    def end_idx(self) -> Array:
        """Flat indices ``t * N + n`` of the last step of each trajectory: at episode ends and at the rollout's end."""
        steps, envs = self.shape
        cut = self.cut()
        cut[-1] = True
        return np.flatnonzero(cut.reshape(steps * envs))


def named_leaves(prefix: str, tree: Obs) -> Iterator[tuple[str, Array]]:
    """Names the leaves of an observation: ``prefix`` for a plain array, ``prefix.path`` inside a tree."""
    for path, leaf in obs_trees.leaves(tree):
        yield (f"{prefix}.{path}" if path else prefix), leaf


def uneven(n_sample: int, name: str, parts: Mapping[str, int]) -> list[str]:
    """Returns a sentence if a rollout does not split into equal parts, else an empty list."""
    count = parts[name]
    if n_sample % count == 0:
        return []
    every = math.lcm(*parts.values())
    fitting = -(-n_sample // every) * every
    return [
        f"policy.collect.n_sample={n_sample} does not divide by {name}={count}: use policy.collect.n_sample={fitting}"
    ]
