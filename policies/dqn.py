"""DQN: Q-learning with a replay buffer and a target network; double, dueling and prioritized replay as switches.

Mnih et al., 2015, https://doi.org/10.1038/nature14236; double: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461, eq. 4; dueling: Wang et al., 2016, https://arxiv.org/abs/1511.06581, eq. 9;
prioritized replay: Schaul et al., 2016, https://arxiv.org/abs/1511.05952, algorithm 1.

    y = R + gamma^k (1 - terminated) Q_target(s', argmax_a Q(s', a))      (double; else argmax of Q_target)
    L = mean[ w huber(Q(s, a) - y) ]           (prioritized: w importance weights, priorities |Q(s, a) - y|; else w = 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ops
from minding.engine.types import Array, StateDict
from minding.policies.core.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.core.update import Inputs
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.networks.optim import Group, Optimizer
from minding.policies.networks.steps import PRIORITY, GradientStep
from minding.policies.networks.target import CopyTarget, SoftTarget, equalize
from minding.policies.ops import lean
from minding.policies.ops.values import chosen_value, huber


def dqn_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A); action: int32 (B,); target: float32 (B,), no gradient flows into it.

    Returns:
      (loss, metrics by name), scalars; `q_value` is the mean chosen value.
    """
    chosen = chosen_value(q, action)
    loss = lean.mean(huber(chosen - ops.stop_gradient(target)))
    return loss, {"loss": loss, "q_value": lean.mean(chosen)}


def weighted_dqn_loss(q, action, target, weight):
    """The same for rows drawn by priority.

    Args:
      weight: float32 (B,), importance weights; the others as in `dqn_loss`.

    Returns:
      (loss, metrics by name), scalars, and among them the priorities under `PRIORITY`: float32 (B,), the size of each
      row's error.
    """
    chosen = chosen_value(q, action)
    error = chosen - ops.stop_gradient(target)
    loss = lean.mean(weight * huber(error))
    return loss, {"loss": loss, "q_value": lean.mean(chosen), PRIORITY: ops.Abs()(ops.stop_gradient(error))}


class DQNCell(GradientStep):
    """Root cell: online and target network, optimizer. With `prioritized`, steps take weights and return priorities."""

    metrics = ("loss", "q_value", "grad_norm")

    def __init__(self, net: QNetwork, target: QNetwork, learn: Mapping[str, Any], prioritized: bool = False) -> None:
        super().__init__(["obs", "next_obs", "action", "reward", "terminated", "discount"])
        self.prioritized = prioritized
        self.net = net
        self.target = target
        self.optim = Optimizer(net=Group.of(net, learn, max_grad_norm=learn["grad_norm"]))
        moving = SoftTarget if learn["target"]["kind"] == "soft" else CopyTarget
        self.move_target = moving(net, target, self.optim.block("net"))
        self.double = bool(learn["double"])
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        if self.prioritized:
            return weighted_dqn_loss(self.net(batch["obs"])[0], batch["action"], batch["target"], batch["weight"])
        return dqn_loss(self.net(batch["obs"])[0], batch["action"], batch["target"])

    def construct(self, batch):
        # Target
        next_q = self.target(batch["next_obs"])[0]
        if self.double:
            next_value = chosen_value(next_q, ops.Argmax(-1)(self.net(batch["next_obs"])[0]))
        else:
            next_value = lean.largest(next_q)
        target = batch["reward"] + batch["discount"] * (1.0 - batch["terminated"]) * next_value
        # Loss
        rows = {"obs": batch["obs"], "action": batch["action"], "target": target}
        if self.prioritized:
            rows["weight"] = batch["weight"]
        (_, metrics), grads = self.gradient(rows)
        # Update
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        if "tau" in batch:
            self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics


class DQN(BasePolicy):
    """Deep Q-network for Discrete actions."""

    name = "dqn"
    _learn_steps = 0

    def _network(self, rng: np.random.Generator) -> QNetwork:
        return QNetwork(self.spec, self.cfg.model, rng)

    def _root(self, net: QNetwork, rng: np.random.Generator) -> DQNCell:
        prioritized = self.cfg.other.replay == "prioritized"
        root = DQNCell(net, QNetwork(self.spec, self.cfg.model, rng), self.cfg.learn, prioritized)
        equalize(root.net, root.target)
        return root

    def _actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        return GreedyActor(self.name, network, self.spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def _tau(self, steps: int) -> Array:
        """Share of the online weights that moves into the target after each of the next `steps` gradient steps."""
        target = self.cfg.learn.target
        if target.kind == "soft":
            return np.full(steps, target.tau, np.float32)
        number = self._learn_steps + 1 + np.arange(steps)
        return (number % target.freq == 0).astype(np.float32)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        tau = self._tau(len(batch.index))
        self._learn_steps += len(batch.index)
        # Most calls move nothing; their graph has no branch for it, which makes it faster.
        steps = {"tau": tau} if tau.any() else {}
        if self.root.prioritized:
            steps["weight"] = np.ones(batch.index.shape, np.float32) if batch.weight is None else batch.weight
        return Inputs(steps, self.root.optim.rates(progress))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
