"""Learning from a rollout in several iterations."""

import dataclasses

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.rollout import Rollout
from minding.engine.data.rollout_joins import rollout_of, rollout_state, side_by_side
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.types import StateDict
from minding.middleware.ctx_fields import rollout_in


@declare(
    role="learn",
    reads=("trajectories",),
    optional=("policy_lag",),
    writes=("trajectories", "policy_lag"),
    refuses=("trajectories.summed", "trajectories.used"),
)
class rollout_queue:
    """A queue of rollouts, each of which is sampled a fixed number of times: in its own iteration and those after it.

    In each iteration it replaces the rollout by the newest ones side by side, the newest first, ``(T, times * N)``. As
    in a first-in, first-out table with ``max_times_sampled`` (Reverb: Cassirer et al., 2021,
    https://arxiv.org/abs/2102.04736), a rollout leaves after its last iteration. Rows are not valid where there are no
    earlier rollouts yet. `policy_lag` grows with the age of rollouts, and PPO and IMPALA correct for it. Put it before
    the middleware that uses the rollout, such as `gae_estimator`; rewards are estimated before it.

    Reads: trajectories; policy_lag if present.
    Writes: trajectories, policy_lag.

    Args:
      times: number of iterations that learn from a rollout, at least 1.
    Raises:
      ConfigError: `times` is smaller.
    """

    def __init__(self, times: int) -> None:
        if times < 1:
            raise ConfigError(f"rollout_queue(times={times}): expected at least 1")
        self._times = times
        # The newest first, with the lag that each had in its own iteration.
        self._held: list[tuple[Rollout, dict[str, float]]] = []

    def __call__(self, ctx: OnlineRLContext) -> None:
        newest = rollout_in(ctx, "rollout_queue")
        lag = ctx.policy_lag or {"min": 0, "mean": 0.0, "max": 0}
        self._held = [(newest, lag), *self._held][: self._times]
        rollouts = [rollout for rollout, _ in self._held]
        missing = dataclasses.replace(newest, valid=np.zeros(newest.shape, np.bool_))
        rollouts += [missing] * (self._times - len(rollouts))
        ctx.trajectories = side_by_side(rollouts, newest.shape[1])
        lags = [{name: value + age for name, value in each.items()} for age, (_, each) in enumerate(self._held)]
        ctx.policy_lag = {
            "min": min(each["min"] for each in lags),
            "mean": sum(each["mean"] for each in lags) / len(lags),
            "max": max(each["max"] for each in lags),
        }

    def state_dict(self) -> StateDict:
        return {
            "times": self._times,
            "rollouts": {str(k): rollout_state(rollout) for k, (rollout, _) in enumerate(self._held)},
            "lags": [lag for _, lag in self._held],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the queue; CheckpointError if it was saved with another number of times."""
        if state["times"] != self._times:
            raise CheckpointError(
                f"rollout_queue: the checkpoint samples each rollout {state['times']} times, this run {self._times} "
                "times; resume with the saved number, policy.learn.max_times_sampled"
            )
        rollouts = [rollout_of(state["rollouts"][str(k)]) for k in range(len(state["lags"]))]
        self._held = list(zip(rollouts, map(dict, state["lags"]), strict=True))
