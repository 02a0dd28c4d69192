"""Pushes collected rollouts into the replay buffer, with the rewards of imitation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.types import Buffer, StateDict
from minding.middleware.data_pusher import data_pusher
from minding.middleware.inputs import rollout_in


@declare(
    role="learn",
    reads=("trajectories",),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed", "trajectories.rewarded"),
)
class sqil_data_pusher:
    """Pushes the rollout's transitions with a reward of 1 if an expert acted, and of 0 if the agent did.

    Soft Q imitation learning (Reddy et al., 2020, https://arxiv.org/abs/1905.11108, algorithm 1). Transitions of the
    expert make up half of every minibatch: push expert and agent into two parts of a `MixedBuffer`. The rewards of the
    environment stay in the context, but no policy learns from them.

    Reads: trajectories.
    Writes: nothing.
    Config: policy.learn.nstep (1), policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the transitions; it is saved with this middleware.
      expert: whether an expert acts in the rollout.
    """

    def __init__(self, cfg: Config, buffer: Buffer, expert: bool) -> None:
        self._pusher, self._reward = data_pusher(cfg, buffer), float(expert)
        self._nstep = cfg.policy.learn.nstep

    def requirements(self) -> Sequence[str]:
        """Faults of the settings and of the given objects, one sentence each, for the chain check."""
        if self._nstep == 1:
            return []
        return [
            f"policy.learn.nstep={self._nstep} sums rewards of the environment, which sqil_data_pusher replaces: use 1"
        ]

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the rollout of an iteration."""
        rollout = rollout_in(ctx, "sqil_data_pusher")
        self._pusher.push(dataclasses.replace(rollout, reward=np.full_like(rollout.reward, self._reward)))

    @property
    def resume_guarantee(self) -> str:
        """Whether the buffer is saved."""
        return self._pusher.resume_guarantee

    def state_dict(self) -> StateDict:
        return self._pusher.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self._pusher.load_state_dict(state)
