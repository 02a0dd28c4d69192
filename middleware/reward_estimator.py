"""Rewards of a model, in addition to the environment's rewards or in place of them."""

import dataclasses
import math
import numbers

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.error_origin import in_code_of
from minding.engine.errors import ConfigError, ShapeError
from minding.engine.types import RewardModel, StateDict
from minding.middleware.ctx_fields import metrics_in, rollout_in


@declare(
    role="learn",
    reads=("trajectories",),
    optional=("train_output",),
    writes=("trajectories", "train_output"),
    leaves=("trajectories.rewarded",),
    refuses=("trajectories.summed", "trajectories.prioritized", "trajectories.used"),
)
class reward_estimator:
    """Adds the rewards of a model, such as RND, to the rewards of the rollout; the model learns from the rollout.

    With ``own=0`` the rewards of the model replace the environment's. Put it after the collector and before the
    middleware that uses the rewards: `gae_estimator`, `data_pusher`, or `nstep_reward_enhancer` and
    `priority_calculator`, which then need the role `learn`. The returns of episodes and evaluations stay those of the
    environment.

    Reads: trajectories; train_output if present.
    Writes: trajectories (reward), train_output (the model's metrics).

    Args:
      model: the model that computes rewards and learns; it is saved with this middleware.
      weight: factor of the model's rewards.
      own: factor of the environment's rewards.
    Raises:
      ConfigError: a factor is not a finite number, or both are 0.
    """

    def __init__(self, model: RewardModel, weight: float, own: float = 1.0) -> None:
        for name, value in (("weight", weight), ("own", own)):
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise ConfigError(f"reward_estimator({name}={value!r}): expected a finite number")
        if not weight and not own:
            raise ConfigError("reward_estimator(weight=0, own=0): every reward would be 0; give one of them a weight")
        self._model, self._weight, self._own = model, weight, own

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "reward_estimator")
        estimate = self._model.estimate(rollout)
        if estimate.reward.shape != rollout.reward.shape:
            raise ShapeError(
                f"reward_estimator: the model's rewards have shape {estimate.reward.shape}, those of the rollout "
                f"{rollout.reward.shape}: use a model that gives each agent a reward of its own"
            )
        reward = self._weight * estimate.reward
        if self._own:
            reward = self._own * rollout.reward + reward
        ctx.trajectories = dataclasses.replace(rollout, reward=reward.astype(rollout.reward.dtype))
        ctx.train_output = {**metrics_in(ctx, "reward_estimator"), **estimate.metrics}

    def state_dict(self) -> StateDict:
        return {"model": self._model.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        with in_code_of(self._model, "in load_state_dict() of the reward model"):
            self._model.load_state_dict(state["model"])
