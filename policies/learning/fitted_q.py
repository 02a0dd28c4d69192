"""Fitted Q evaluation: the value of a policy from recorded data alone.

Le et al., 2019, https://arxiv.org/abs/1903.08738, algorithm 3, with a target that follows softly in place of one
regression after another:

    y = clip(R + gamma (1 - terminated) Q_target(s', pi(s')), low, high)
    L = mean[ 1/2 (Q(s, a) - y)^2 ]

From low to high is what rewards can add up to; the paper's functions are bounded likewise. That, and layer
normalization, keep the values of actions that were not recorded from growing without end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.config.config import Config
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.process import runtime
from minding.engine.process.runtime import nn, ops
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array
from minding.policies.learning.action_values import ActionValues
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.learning.update import Inputs, Update
from minding.policies.networks.actor_critic import ActionValue, QNetwork
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import Clip
from minding.policies.ops import lean
from minding.policies.ops.order import after
from minding.policies.ops.values import chosen_value, half_square

RATE = 1e-3
"""Learning rate of Adam at first; it falls to 0."""


class FittedQCell(GradientStep):
    """Root cell: a network of action values, its target, optimizer.

    Args:
      net, target: `QNetwork` for Discrete actions, else `ActionValue`; of the same shape.
      discrete: which of them.
      gamma: the discount factor.
      limits: of the values.
    """

    metrics = ("loss",)

    def __init__(
        self, net: nn.Cell, target: nn.Cell, discrete: bool, gamma: float, limits: tuple[float, float]
    ) -> None:
        super().__init__(("obs", "next_obs", "action", "next_action", "reward", "terminated"))
        self.net, self.target = net, target
        self.discrete, self.gamma = discrete, gamma
        self.within = Clip(*limits)
        self.optim = Optimizer(net=Group(params=net.trainable_params(), rate=RATE, anneal=True))
        self.move_target = SoftTarget(net, target, self.optim.block("net"))
        self.gradient = self.optim.gradient(self.loss, "net")

    def value(self, net, action, obs):
        return chosen_value(net(obs)[0], action) if self.discrete else net(action, obs)

    def action_value(self, action, obs):
        return self.value(self.net, action, obs)

    def loss(self, batch):
        following = self.value(self.target, batch["next_action"], batch["next_obs"])
        target = batch["reward"] + self.gamma * (1.0 - batch["terminated"]) * ops.stop_gradient(following)
        target = self.within(target)
        loss = lean.mean(half_square(self.value(self.net, batch["action"], batch["obs"]) - target))
        return loss, {"loss": loss}

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        done = self.optim({"net": grads}, batch, metrics)["net"]
        moved = self.move_target(batch["tau"], done)
        # Who waits for the metric waits for the whole step.
        return {"loss": after(metrics["loss"], (done, moved))}


class FittedQ:
    """A network of its own that is fitted to the values of a policy, from the beginning for each policy.

    Args:
      spec: description of the environment's spaces, with Discrete or Box actions.
      model: the configuration `policy.model`.
      fields: of the rows to learn from, by name: those of the observations before and after a step, and `action`.
      gamma: the discount factor.
      limits: between which the values lie.
      seed: of the first weights.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        model: Mapping[str, Any],
        fields: Mapping[str, Field],
        gamma: float,
        limits: tuple[float, float],
        seed: int,
    ) -> None:
        rng, discrete = SeedStreams(seed).generator("fitted_q"), spec["action"]["kind"] == "discrete"
        # Some algorithms have no such keys.
        complete = Config({"dueling": False, **model, "memory": "none", "norm": "layer"})
        net, target = ((QNetwork if discrete else ActionValue)(spec, complete, rng) for _ in range(2))
        equalize(net, target)
        self.root = FittedQCell(net, target, discrete, gamma, limits)
        fuse_layers(self.root)
        self._layout = RowLayout({**fields, "next_action": fields["action"], "reward": Field(), "terminated": Field()})
        self._tables: DeviceTables | None = None
        self._update = Update(self.root, "fitted_q")
        paths = [name.partition(".")[2] for name in fields if name.partition(".")[0] == "obs"]
        self.values: ActionValues = ActionValues(self.root, paths, "fitted_q.values")
        self._params = dict(self.root.parameters_and_names())
        self._initial = {name: p.asnumpy().copy() for name, p in self._params.items()}

    @property
    def fields(self) -> Sequence[str]:
        """Names of the fields of the rows of `learn`."""
        return tuple(self._layout.fields)

    def restart(self) -> None:
        """Puts weights, target and optimizer back to the beginning; moments of observations stay."""
        moments = (".normalizer.",)
        for name, p in self._params.items():
            if not any(part in name for part in moments):
                runtime.assign(p, self._initial[name])

    def learn(self, rows: Mapping[str, Array], steps: int, progress: float, tau: float) -> float:
        """Makes gradient steps in one compiled call; returns the mean loss.

        Args:
          rows: by name, `fields`, ``(steps * B, ...)`` each, B for each step; `next_action` is what the policy does in
            the next state.
          steps: how many.
          progress: share of all steps that has been made.
          tau: weight of the online network in the moving average of the target.
        """
        count = len(rows["reward"])
        if self._tables is None or self._tables.rows != count:
            self._tables = DeviceTables(self._layout, count)
        self._tables.refill(rows, "fitted Q evaluation")
        index = np.arange(count, dtype=np.int32).reshape(steps, -1)
        rates = self.root.optim.rates(progress)
        batch = IndexedBatch(self._layout, self._tables, index)
        return self._update(batch, Inputs(constants={**rates, "tau": tau})).metrics["loss"]
