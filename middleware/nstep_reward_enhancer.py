"""n-step returns for replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.returns import nstep


@declare(role="collect", reads=("trajectories",), writes=("trajectories",))
class nstep_reward_enhancer:
    """Turns rewards into n-step returns within each trajectory.

    Successor, `terminated` and discount become those of the n-th step, or of the last step before the trajectory or
    the rollout ends, never across one (Hessel et al., 2018, https://arxiv.org/abs/1710.02298).

    Reads: trajectories.
    Writes: trajectories (reward, bootstrap_row, and `discount` in the record).
    Config: policy.learn.nstep, policy.learn.gamma, policy.collect.n_sample.
    """

    def __init__(self, cfg: Any) -> None:
        self._n = cfg.policy.learn.nstep
        self._gamma = cfg.policy.learn.gamma
        self._steps = cfg.policy.collect.n_sample // cfg.env.collector_env_num

    def requirements(self) -> Sequence[str]:
        """Anything that does not fit, as sentences for the chain check."""
        if self._steps < self._n:
            return [
                f"policy.learn.nstep={self._n}, but a rollout has only {self._steps} steps per environment, so that "
                "every return would be cut short: raise policy.collect.n_sample or lower env.collector_env_num"
            ]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Rewrites the rollout's rewards."""
        rollout = ctx.trajectories
        assert rollout is not None
        reward, last, discount = nstep(rollout.reward, rollout.cut(), n=self._n, gamma=self._gamma)
        ctx.trajectories = dataclasses.replace(
            rollout,
            reward=reward,
            bootstrap_row=last,
            record={**rollout.record, "discount": discount},
        )
