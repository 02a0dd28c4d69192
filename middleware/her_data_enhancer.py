"""Hindsight: what was reached counts as what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ShapeError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, Buffer, StateDict
from minding.middleware.data_pusher import transitions

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class GoalEnv(Protocol):
    """Gymnasium's interface of environments with goals; both take goals ``(B, ...)`` and return ``(B,)``."""

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array: ...

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array: ...


@declare(
    role="learn",
    reads=("trajectories",),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed", "trajectories.rewarded"),
)
class her_data_enhancer:
    """Pushes every transition again with goals that were reached later (Andrychowicz et al., 2017, strategy `future`).

    Hindsight experience replay, https://arxiv.org/abs/1707.01495: `k` copies of each transition, each with the goal
    that was achieved after a random later step of the same trajectory, or after this one, and with the reward and the
    end that belong to it. A trajectory goes on to its end or to that of the rollout. Put it behind `data_pusher`.

    Reads: trajectories, whose observations have the entries `achieved_goal` and `desired_goal`.
    Writes: nothing.
    Config: policy.learn.nstep (1), seed.

    Args:
      cfg: the compiled configuration.
      buffer: takes the transitions.
      env: an environment with the goals' rules; ``gymnasium.make(...).unwrapped``.
      k: copies of each transition.
    """

    def __init__(self, cfg: Any, buffer: Buffer, env: GoalEnv, *, k: int = 4) -> None:
        self._buffer, self._env, self._k = buffer, env, k
        self._nstep = cfg.policy.learn.nstep
        self._rng = SeedStreams(cfg.seed).generator("her_data_enhancer")

    def requirements(self) -> Sequence[str]:
        """Anything that does not fit, as sentences for the chain check."""
        problems = []
        if self._nstep > 1:
            problems.append(f"policy.learn.nstep={self._nstep} sums rewards of one goal: use 1")
        if getattr(self._buffer, "takes_order", False):
            problems.append("the buffer stores sequences, in which goals cannot change: use a uniform buffer")
        missing = [name for name in ("compute_reward", "compute_terminated") if not hasattr(self._env, name)]
        if missing:
            problems.append(
                f"the {type(self._env).__name__} has no {' and no '.join(missing)}: give it an environment with "
                "Gymnasium's goals by itself, gymnasium.make(...).unwrapped, and no manager of several"
            )
        return problems

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the copies of one rollout."""
        rollout = ctx.trajectories
        assert rollout is not None
        columns = transitions(rollout)
        for prefix in ("obs", "next_obs"):
            for name in (ACHIEVED, DESIRED):
                if f"{prefix}.{name}" not in columns:
                    raise ShapeError(
                        f"her_data_enhancer: the observation has no entry {name!r}: use an environment with goals"
                    )
        t, n = np.nonzero(rollout.transitions())
        if not len(t):
            return
        last, reached = _last_rows(rollout)[t, n], rollout.next_obs()[ACHIEVED]
        achieved = columns[f"next_obs.{ACHIEVED}"]
        for _ in range(self._k):
            goal = reached[self._rng.integers(t, last + 1), n]
            again = {
                f"obs.{DESIRED}": goal,
                f"next_obs.{DESIRED}": goal,
                "reward": np.asarray(self._env.compute_reward(achieved, goal, {}), np.float32),
                "terminated": np.asarray(self._env.compute_terminated(achieved, goal, {}), np.bool_),
            }
            self._buffer.push({**columns, **again})

    def state_dict(self) -> StateDict:
        return {"rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self._rng, state["rng"])


def _last_rows(rollout: Rollout) -> Array:
    """Int64 ``(T, N)``, the last row of the trajectory that each row belongs to, as far as the rollout reaches."""
    steps = rollout.shape[0]
    cut = rollout.cut()
    cut[-1] = True
    ends = np.where(cut, np.arange(steps)[:, None], steps)
    last: Array = np.minimum.accumulate(ends[::-1], axis=0)[::-1]
    return last
