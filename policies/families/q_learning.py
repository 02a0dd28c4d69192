"""Policies that act by action values and learn them from replay, and their gradient steps."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers.base import buffer_class
from minding.engine.buffers.selectors import uses_priority
from minding.engine.config.named import is_named
from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, LearnOutput
from minding.policies.acting.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import PRIORITY, Inputs, NetworkStep
from minding.policies.learning.target import equalize, make_target, target_schedule
from minding.policies.networks.return_distribution import ReturnDistribution
from minding.policies.ops import primitives
from minding.policies.ops.distributional import beyond, cross_entropy, moved, project
from minding.policies.ops.values import chosen_atoms, chosen_value, log_sum_exp, one_step, value_loss

_log = logging.getLogger("minding.policies")
NOISE, NEXT_NOISE, CHOICE_NOISE = "noise", "next_noise", "choice_noise"
"""Names of the inputs with the noise of noisy layers, (1, S) each, the same for all rows of a gradient step: of the
online network, of the target network, and of the online network where it selects the next action."""
CLIPPED = "clipped_mass"
"""Metric: the share of the targets' probability that lies beyond the support and is moved to its ends."""
_MUCH_CLIPPED = 0.2
"""Largest such share without a warning. The arbitrary values of a fresh network put a few per cent there."""


class QLearning(NetworkStep):
    """Root cell: online network, target network and optimizer. A subclass defines `loss`, see `averaged`.

    Args:
      net, target: networks whose first output is the action values (B, A).
    """

    metrics: tuple[str, ...] = ("loss", "q_value", "grad_norm")

    def __init__(self, net: nn.Cell, target: nn.Cell, learn: Mapping[str, Any], prioritized: bool = False) -> None:
        super().__init__(net, self.optimized(net, learn))
        self.target = target
        self.move_target = make_target(self.followed(net), target, self.optim.block("net"), learn["target"]["kind"])
        self.prioritized, self.double = prioritized, bool(learn.get("double"))

    def followed(self, net: Any) -> Any:
        """The part of the online network that the target follows, by default all of it."""
        return net

    def optimized(self, net: Any, learn: Mapping[str, Any]) -> dict[str, Group]:
        """The groups of parameters by name; the group ``net`` is what the target follows."""
        return {"net": Group.of(self.followed(net), learn, max_grad_norm=learn["grad_norm"])}

    def averaged(self, batch, loss, value, priority):
        """The values that `loss` returns: means over the rows of the batch, from loss, value of the chosen action and
        priority of each row, float32 (B,) each."""
        loss = primitives.mean(batch["weight"] * loss if self.prioritized else loss)
        metrics = self.named((loss, primitives.mean(value)))
        if self.prioritized:
            metrics[PRIORITY] = ops.stop_gradient(priority)
        return loss, metrics

    def construct(self, batch):
        metrics = self.step(batch)
        self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics


LOG_LIMIT = -1.0
"""Smallest log-probability, times the temperature, that Munchausen DQN adds to a reward (its l_0)."""


class ExpectedQLearning(QLearning):
    """`QLearning` of expected returns, as in DQN, whose page has the formula."""

    def __init__(self, net: nn.Cell, target: nn.Cell, learn: Mapping[str, Any], prioritized: bool = False) -> None:
        super().__init__(net, target, learn, prioritized)
        self.munchausen = float(learn.get("munchausen", 0.0))
        self.temperature = float(learn.get("munchausen_temperature", 1.0))

    def q(self, net, obs, noise):
        """Action values, float32 (B, A); `noise` is None, or the noise of noisy layers."""
        return net(obs)[0]

    def td_target(self, batch):
        next_q = self.q(self.target, batch["next_obs"], batch.get(NEXT_NOISE))
        if self.munchausen > 0:
            return self.munchausen_target(batch, next_q)
        if self.double:
            choosing = self.q(self.net, batch["next_obs"], batch.get(CHOICE_NOISE))
            return one_step(batch, chosen_value(next_q, ops.Argmax(-1)(choosing)))
        return one_step(batch, primitives.largest(next_q))

    def munchausen_target(self, batch, next_q):
        """y of Munchausen DQN (Vieillard et al., 2020, https://arxiv.org/abs/2007.14430, eq. 1), float32 (B,). With pi
        = softmax(Q_target / tau), ``sum_a pi (Q_target - tau log pi)`` is ``tau log sum_a exp(Q_target/tau)``."""
        q, tau = self.q(self.target, batch["obs"], batch.get(NOISE)), self.temperature
        scaled_log_prob = chosen_value(q, batch["action"]) - tau * log_sum_exp(q / tau)
        bonus = self.munchausen * ops.clamp(scaled_log_prob, LOG_LIMIT, 0.0)
        return one_step(batch, tau * log_sum_exp(next_q / tau)) + bonus

    def loss(self, batch):
        q = self.q(self.net, batch["obs"], batch.get(NOISE))
        loss, value, error = value_loss(q, batch["action"], self.td_target(batch))
        return self.averaged(batch, loss, value, error)


class DistributionalQLearning(QLearning):
    """`QLearning` for a `ReturnDistribution`, with the noise of noisy layers if the batch has it."""

    def atoms(self, batch):
        """The online network's atoms of the chosen actions, float32 (B, N)."""
        return chosen_atoms(self.net.atoms(batch["obs"], batch.get(NOISE)), batch["action"])

    def next_atoms(self, batch):
        """The target network's atoms of the next actions, float32 (B, N)."""
        atoms = self.target.atoms(batch["next_obs"], batch.get(NEXT_NOISE))
        if self.double:
            values = self.net.action_values(batch["next_obs"], batch.get(CHOICE_NOISE))
        else:
            values = self.target.values(atoms, batch["next_obs"])
        return chosen_atoms(atoms, ops.Argmax(-1)(values))


class CategoricalQLearning(DistributionalQLearning):
    """`QLearning` of probabilities over a support, as in C51, whose page has the formula. The atoms of the networks are
    logits, and their `mean` is a `SupportMean`."""

    metrics = (*QLearning.metrics, CLIPPED)

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.low, self.spacing = net.mean.low, net.mean.spacing
        self.places = ms.Tensor(np.arange(net.mean.count, dtype=np.float32))

    def td_target(self, batch):
        """m, float32 (B, N), and the probability beyond the support, float32 (B,)."""
        probability = ops.Softmax(-1)(self.next_atoms(batch))
        decay = batch["discount"] * (1.0 - batch["terminated"])
        places = moved(batch["reward"], decay, self.low, self.spacing, self.places)
        return project(probability, places, self.places), beyond(probability, places, self.places)

    def loss(self, batch):
        target, clipped = self.td_target(batch)
        logits = self.atoms(batch)
        # The relative entropy is the priority: it is 0 for correct predictions, however uncertain their returns are.
        loss, priority = cross_entropy(logits, target)
        loss, metrics = self.averaged(batch, loss, self.net.mean(ops.stop_gradient(logits)), priority)
        metrics[CLIPPED] = primitives.mean(clipped)
        return loss, metrics


def draws_by_priority(other: Mapping[str, Any]) -> bool:
    """Whether the configured replay buffer draws by priority, so that learning must return errors as priorities."""
    kind = other.get("replay")
    if is_named(kind):
        return buffer_class(str(kind)).prioritized
    if kind != "table":
        return bool(kind == "prioritized")
    table = other["table"]
    return uses_priority(table.sampler) or uses_priority(table.remover)


class ActionValuePolicy(BasePolicy):
    """Takes the action of the highest value or, with probability `eps`, a random one; learns from single transitions.

    A subclass defines `network_class`, a class of networks with a `noise_size`, and `step_class`, a `QLearning`.
    """

    sequences = False
    counts_steps = True
    _warned_of_clipping = False

    def make_root(self, net: Any, rng: np.random.Generator) -> QLearning:
        target = self.make_target(net, rng)
        root: QLearning = self.step_class(net, target, self.cfg.learn, draws_by_priority(self.cfg.other))
        return root

    def make_target(self, net: Any, rng: np.random.Generator) -> Any:
        """Returns the target network, equal to what it follows of the online network."""
        target = self.make_network(rng)
        equalize(net, target)
        return target

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        actor = GreedyActor(self.name, network, self.spec, rng)
        actor.noise_size = self.net.noise_size
        return actor

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        """Random numbers of the gradient steps, by name, ``(K, ...)`` each."""
        return {}

    def learn(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        output = super().learn(batch, progress)
        share = output.metrics.get(CLIPPED, 0.0)
        if share > _MUCH_CLIPPED and not self._warned_of_clipping:
            self._warned_of_clipping = True
            model = self.cfg.model
            _log.warning(
                "%s: %.0f %% of the targets' probability lies beyond the support from %g to %g and is moved to its "
                "ends, where returns can no longer be told apart: set policy.model.v_min and policy.model.v_max so "
                "that they enclose the discounted returns (reported once; train/%s shows it from now on)",
                self.name, 100 * share, model.v_min, model.v_max, CLIPPED,
            )  # fmt: skip
        return output

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        tau = target_schedule(self.cfg.learn.target, self.learn_steps, len(batch.index))
        steps = {"tau": tau, **self.draw(batch)}
        if self.root.prioritized:
            steps["weight"] = np.ones(batch.index.shape, np.float32) if batch.weight is None else batch.weight
        return Inputs(steps, self.constants(progress))
