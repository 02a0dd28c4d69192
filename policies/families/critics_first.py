"""Critics, an actor and their targets, updated one after the other, and policies with a deterministic actor."""

import math
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.acting.actors import Network, NoisyActor
from minding.policies.acting.sampling import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import CriticEnsemble, DeterministicActor
from minding.policies.networks.layers import Clip
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import critic_objectives
from minding.policies.settings.shared import DeterministicSettings, TwinDelayedSettings


class CriticsFirst(GradientStep):
    """Root cell of an actor and critics (Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971, algorithm 1).

    A step updates the critics and then, if this is due, the actor with the new critics and whatever follows it. An
    input `due`, a scalar, is 1 where it is due; without this input it is due in all steps of a call that has the input
    `tau`. A subclass calls `optimize` and defines `td_target`, `loss_of_actor` and `follow_actor`.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value")
    of_critics: tuple[str, ...] = ("critic_loss", "q_value")
    of_actor: tuple[str, ...] = ("actor_loss",)
    observed = "obs"

    def __init__(self, net: nn.Cell, critics: nn.Cell) -> None:
        super().__init__()
        self.net, self.critics = net, critics
        objectives = critic_objectives()
        self.critic_loss, self.value_target = objectives.critic_loss, objectives.value_target
        self.zeros = tuple(ms.Tensor(np.float32(0.0)) for _ in self.of_actor)

    def optimize(self, **groups: Group) -> None:
        """Makes the optimizer of `actor`, `critics` and further groups of parameters."""
        self.optim = Optimizer(**groups)
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # Defined by the algorithm.

    def prepare(self, batch):
        """The batch with additional entries that the losses need; by default unchanged."""
        return batch

    def td_target(self, batch):
        """The `target` in the batch of `loss_of_critics`, y, float32 (B,); no gradient flows into it."""
        raise NotImplementedError

    def loss_of_critics(self, batch):
        """The loss, and by name the metrics `of_critics` and what `follow_critics` reads."""
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"]), batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def follow_critics(self, batch, critics, norm):
        """Whatever follows the step of the critics; returns a result that comes after it, by default `norm`."""
        return norm

    def loss_of_actor(self, batch):
        """The loss, and by name the metrics `of_actor` and what `follow_actor` reads."""
        raise NotImplementedError

    def beside_actor(self, batch, actor):
        """The named results of `loss_of_actor`, completed, and the gradients of groups that move with the actor."""
        return actor, {}

    def follow_actor(self, batch, actor, norms):
        """Whatever follows the step of the actor, such as all targets; returns a result that comes after it."""
        raise NotImplementedError

    # Shared by the algorithms.

    def construct(self, batch):
        return self.critics_first(batch)

    def critics_first(self, batch):
        batch = self.prepare(batch)
        # Critics
        batch["target"] = self.td_target(batch)
        (_, critics), grads = self.critic_gradient(batch)
        norm = self.optim({"critics": grads}, batch, (critics, grads))["critics"]
        critics["grad_norm_critics"] = norm
        done = self.follow_critics(batch, critics, norm)
        # Actor
        if "due" in batch:
            values = self.move_actor_if_due(batch, done)
        elif "tau" in batch:
            values = self.move_actor(batch, done)
        else:
            values = self.zeros
        metrics = {}
        for name in self.of_critics:
            metrics[name] = critics[name]
        # A caller that waits for a metric waits for the whole step.
        for k in range(len(self.of_actor)):
            metrics[self.of_actor[k]] = after(primitives.item(values, k), done)
        return metrics

    def move_actor_if_due(self, batch, done):
        values = self.zeros
        if after(batch["due"], done) > 0.0:
            values = self.move_actor(batch, done)
        return values

    def move_actor(self, batch, done):
        """Updates the actor and what follows it; returns the metrics `of_actor` in order, available after that."""
        batch[self.observed] = after(batch[self.observed], done)
        (_, actor), own = self.actor_gradient(batch)
        actor, grads = self.beside_actor(batch, actor)
        grads["actor"] = own
        norms = self.optim(grads, batch, (actor, own))
        actor["grad_norm_actors"] = norms["actor"]
        moved = self.follow_actor(batch, actor, norms)
        values: Any = ()
        for name in self.of_actor:
            values = (*values, after(actor[name], moved))
        return values


def delayed(done: int, count: int, delay: int, tau: float) -> tuple[dict[str, Array], dict[str, float], int]:
    """The inputs by which every `delay`-th gradient step of a run updates actor and targets, see `CriticsFirst`. The
    graph has a branch for the actor's step only if some steps of the call are due and others are not."""
    due = (done + 1 + np.arange(count)) % delay == 0
    steps = {"due": due.astype(np.float32)} if due.any() and not due.all() else {}
    return steps, {"tau": tau} if due.any() else {}, int(due.sum())


class DeterministicPolicy(BasePolicy):
    """Acts deterministically, explores with noise, and learns from single transitions; a subclass defines
    `make_root`."""

    cfg: DeterministicSettings
    network_class = DeterministicActor
    sequences = False

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    def make_actor(self, network: Network, rng: np.random.Generator) -> NoisyActor:
        noise = make_noise(self.cfg.collect.noise, self.action_size, self.name)
        return NoisyActor(self.name, network, self.spec, rng, noise)


class TwinDelayed(CriticsFirst):
    """Root cell with targets of actor and critics, which move with the actor (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477, algorithm 1). A subclass defines `td_target` and `loss_of_actor`."""

    def __init__(self, actors: tuple[nn.Cell, nn.Cell], critics: tuple[nn.Cell, nn.Cell], learn: Any) -> None:
        super().__init__(actors[0], critics[0])
        self.target_net, self.target_critics = actors[1], critics[1]
        self.optimize(actor=Group.of(self.net, learn), critics=Group.of(self.critics, learn))
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))
        self.limit_action = Clip(-1.0, 1.0)

    def next_actions(self, batch):
        """The actions of the target actor with the clipped noise of the batch, float32 (B, A) in [-1, 1]."""
        return self.limit_action(self.target_net(batch["next_obs"])[0] + batch["noise"])

    def follow_actor(self, batch, actor, norms):
        return self.move_net(batch["tau"], norms["actor"]), self.move_critics(batch["tau"], norms["actor"])


class TwinDelayedPolicy(DeterministicPolicy):
    """A policy with the root cell `TwinDelayed`; a subclass defines `step_class`."""

    cfg: TwinDelayedSettings
    counts_steps = True
    root: TwinDelayed

    def make_root(self, net: Any, rng: np.random.Generator) -> TwinDelayed:
        target_net = self.make_network(rng)
        critics, target_critics = (CriticEnsemble(self.spec, self.cfg.model, rng) for _ in range(2))
        equalize(net, target_net)
        equalize(critics, target_critics)
        root: TwinDelayed = self.step_class((net, target_net), (critics, target_critics), self.cfg.learn)
        return root

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        noise = self.learn_rng.standard_normal((*batch.index.shape, self.action_size), dtype=np.float32)
        limit = np.float32(learn.noise_clip)
        steps, constants, due = delayed(self.learn_steps, count, learn.policy_delay, float(learn.tau))
        steps["noise"] = np.clip(np.float32(learn.target_noise) * noise, -limit, limit)
        return Inputs(steps, {**self.root.optim.rates(progress), **constants}, dict.fromkeys(self.root.of_actor, due))
