"""n-step returns for replay."""

import dataclasses

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declaration_of, declare
from minding.engine.config.config import Config
from minding.engine.data.returns import nstep
from minding.engine.data.rollout import Rollout
from minding.engine.data.rollout_joins import join, last_rows, rollout_of, rollout_state
from minding.engine.types import StateDict
from minding.middleware.ctx_fields import rollout_in


@declare(
    role="collect",
    reads=("trajectories",),
    writes=("trajectories", "trajectory_end_idx"),
    leaves=("trajectories.summed",),
    refuses=("trajectories.summed",),
)
class nstep_reward_enhancer:
    """Turns rewards into n-step returns within each trajectory (Hessel et al., 2018, https://arxiv.org/abs/1710.02298).

    The successor, `terminated` and the discount are taken from the n-th step, or from the last step if the trajectory
    ends before. The end of a rollout does not cut returns: rows whose n steps are not complete wait, and come with a
    later rollout, before its own rows, so that the rows and their returns do not depend on the length of rollouts. They
    are saved with this middleware until then.

    Reads: trajectories.
    Writes: trajectories (the rows that waited, in front; reward, bootstrap_row, ready, and `discount` in the record),
      trajectory_end_idx.
    Config: policy.learn.nstep, policy.learn.gamma.
    """

    def __init__(self, cfg: Config) -> None:
        self._n: int = cfg.policy.learn.nstep
        self._gamma = cfg.policy.learn.gamma
        # By collector: the rows that the next rollout's returns may need; `ready` marks those that wait for their own.
        self._tails: dict[int, Rollout] = {}
        if self._n == 1:
            # Returns of one step are the rewards themselves.
            declared = declaration_of(self)
            assert declared is not None
            self.declaration = dataclasses.replace(declared, leaves=(), refuses=())

    @property
    def n(self) -> int:
        """Number of steps of a return."""
        return self._n

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Replaces the rollout by the rows whose returns are complete."""
        rollout = rollout_in(ctx, "nstep_reward_enhancer")
        if rollout.collector in self._tails:
            rollout = join(self._tails[rollout.collector], rollout)
        cut = rollout.cut()
        reward, last, discount = nstep(rollout.reward, cut, n=self._n, gamma=self._gamma)
        # Agents of one environment share its steps.
        steps, envs = rollout.shape
        last, discount = (values.reshape(steps, envs, -1)[..., 0] for values in (last, discount))
        complete = np.take_along_axis(cut, last, axis=0) | (last == np.arange(steps)[:, None] + self._n - 1)
        due = np.ones(cut.shape, np.bool_) if rollout.ready is None else rollout.ready
        if self._n > 1:
            waiting = dataclasses.replace(rollout, ready=due & ~complete)
            self._tails[rollout.collector] = last_rows(waiting, self._n - 1)
        ctx.trajectories = dataclasses.replace(
            rollout,
            reward=reward,
            bootstrap_row=last,
            record={**rollout.record, "discount": discount},
            ready=due & complete,
        )
        ctx.trajectory_end_idx = ctx.trajectories.end_idx()

    def state_dict(self) -> StateDict:
        return {"tails": {str(number): rollout_state(tail) for number, tail in self._tails.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        self._tails = {int(number): rollout_of(tail) for number, tail in state["tails"].items()}
