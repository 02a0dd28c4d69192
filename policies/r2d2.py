"""R2D2: Q-learning with a memory, from prioritized replay of sequences, which start from their recorded memory.

Kapturowski et al., 2019, https://openreview.net/forum?id=r1lyTjAqYX, section 2.3; the rescaling h: Pohlen et al., 2018,
https://arxiv.org/abs/1805.11593, section 3.2; dueling and double Q-learning as in DQN.

    y_t = h( R_t + gamma^k (1 - terminated) h^-1( Q_target(o_{t+k}, m'_{t+k}; a*) ) ),   k <= n within the sequence
    a* = argmax_a Q(o_{t+k}, m_{t+k}; a)                                               (double; else of Q_target)
    L = mean_{b,t} w_b huber(Q(o_t, m_t; a_t) - y_t)     (prioritized: w importance weights of the sequences, else 1)
    p = eta max_t |Q - y_t| + (1 - eta) mean_t |Q - y_t|

The memories m of the network and m' of the target network start from the memory that was recorded before the first
transition. Both networks process the burn-in with their own weights; no gradient flows through it. `R_t` is the
discounted sum of k rewards, where k is smaller than n if the sequence or its episode ends before. The observation after
the last transition is processed as well, so that time limits bootstrap. With `learn.rescale` off, h is the identity.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.acting.actors import GreedyActor, Network, ValuingActor
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.learning.steps import PRIORITY, Inputs
from minding.policies.learning.target import sequence_targets
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.ops import primitives
from minding.policies.ops.primitives import at_first, in_time, parts
from minding.policies.ops.values import chosen_value, rescaled, unscaled, value_loss


class R2D2Cell(QLearning):
    """Root cell: see `QLearning`. Rows are sequences, (T, B), which begin with the burn-in."""

    def __init__(self, net: QNetwork, target: QNetwork, learn: Mapping[str, Any], prioritized: bool) -> None:
        super().__init__(net, target, learn, prioritized)
        self.rescale = bool(learn["rescale"])

    def loss(self, batch):
        """The loss and the metrics by name, for transitions (T, B) after the burn-in, by the row indices `index`, int32
        (T, B) including the burn-in, the fields of these rows, and the results of `R2D2.targets` for this step."""
        learned, count = batch["learned"], batch["index"].shape[1]
        steps = learned.shape[0]
        burn_in = batch["index"].shape[0] - steps
        obs, next_obs = in_time(batch["obs"], count), in_time(batch["next_obs"], count)
        action = primitives.item(in_time((batch["action"],), count), 0)
        # Burn-in
        remembered = primitives.part(batch["memory"], 0, count)
        rows, target_rows = remembered, remembered
        if burn_in:
            before = parts(obs, 0, burn_in)
            rows = ops.stop_gradient(self.net.take_in(before, remembered, batch["filled"]))
            target_rows = ops.stop_gradient(self.target.take_in(before, remembered, batch["filled"]))
        obs, next_obs = parts(obs, burn_in, steps), parts(next_obs, burn_in, steps)
        action = primitives.part(action, burn_in, steps)
        # Target
        begun, first = ops.ZerosLike()(batch["return"]), at_first(obs)
        next_q = self.target.unroll(next_obs, self.target.take_in_one(first, target_rows), begun)
        if self.double:
            choosing = self.net.unroll(next_obs, self.net.take_in_one(first, rows), begun)
            next_value = chosen_value(next_q, ops.Argmax(-1)(choosing))
        else:
            next_value = primitives.largest(next_q)
        if self.rescale:
            next_value = unscaled(next_value)
        bootstrap = ops.gather(ops.Reshape()(next_value, (-1,)), batch["bootstrap"], 0)
        target = batch["return"] + batch["decay"] * bootstrap
        if self.rescale:
            target = rescaled(target)
        # Loss
        loss, value, error = value_loss(self.net.unroll(obs, rows, begun), action, ops.stop_gradient(target))
        share = learned / primitives.mean(primitives.mean(learned))
        weight = share * batch["weight"] if self.prioritized else share
        loss = primitives.mean(primitives.mean(weight * loss))
        metrics = self.named((loss, primitives.mean(primitives.mean(share * value))))
        if self.prioritized:
            error = ops.stop_gradient(error * learned)
            metrics[PRIORITY] = ops.Pad(((burn_in, 0), (0, 0)))(error) if burn_in else error
        return loss, metrics


class R2D2(ActionValuePolicy):
    """Recurrent deep Q-network for Discrete actions."""

    name = "r2d2"
    step_class = R2D2Cell
    network_class = QNetwork
    sequences = True
    host_fields = ("reward", "terminated")

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        kind = ValuingActor if self.cfg.other.replay == "prioritized" else GreedyActor
        return kind(self.name, network, self.spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        transition = {name: field for name, field in self.transition_fields.items() if name != "discount"}
        return {**transition, "memory": Field((self.net.memory_size,))}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        if batch.weight is None:
            steps, _, sequences = batch.index.shape
            batch = dataclasses.replace(batch, weight=np.ones((steps, sequences), np.float32))
        inputs = super().inputs(batch, progress)
        return dataclasses.replace(inputs, steps={**inputs.steps, **self.targets(batch)})

    def targets(self, batch: IndexedBatch) -> dict[str, Array]:
        """The parts of a batch's targets that do not depend on action values, see `sequence_targets`."""
        return sequence_targets(batch, self.cfg.learn.nstep, self.cfg.learn.gamma)
