"""PPG: PPO with a value function of its own, and phases in which the network of the policy also learns values.

Cobbe et al., 2021, https://arxiv.org/abs/2009.04416, algorithm 1; the surrogate: Schulman et al., 2017,
https://arxiv.org/abs/1707.06347, eq. 7:

    policy phase, with each rollout:
        L = mean[ max(-A r, -A clip(r, 1-e, 1+e)) ] - c_e mean[ H ],   r = pi(a|s) / pi_old(a|s)
        L_V = 1/2 mean[ (V(s) - R)^2 ]
    auxiliary phase, with each N-th rollout after the policy phase, on the rows of the last N rollouts:
        L_joint = 1/2 mean[ (v(s) - R)^2 ] + b mean[ KL(pi_old(.|s) || pi(.|s)) ],   and L_V

V is a network that shares nothing with the policy. v is a linear head on the last hidden layer of the policy, so that
the features of the policy learn from the returns; pi_old of an auxiliary phase is the policy at its beginning. The rows
of the rollouts since the last auxiliary phase are a part of the policy's state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.data.batch import IndexedBatch, minibatches
from minding.engine.process.runtime import ops
from minding.engine.types import Array, LearnOutput, StateDict
from minding.policies.families.actor_critic import OLD_PARAMS, ActorCriticPolicy, ProximalStep
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import ALL_ROWS, Inputs
from minding.policies.learning.update import Update
from minding.policies.networks.actor_critic import SeparateActorCritic
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import SURROGATE_METRICS, clipped_surrogate, row_mean
from minding.policies.settings.actor_critic import PPGSettings

AUXILIARY = "auxiliary"
"""Name of the group with the head v, and of an input that only the steps of auxiliary phases have."""
PASSES = "passes"
"""Name of the input with the order of the rows in each pass of an auxiliary phase, int (E, R)."""
OF_AUXILIARY = ("auxiliary_loss", "divergence")
"""Metrics of the steps of auxiliary phases."""


class Phases(Update):
    """The gradient steps of a policy phase and, if the inputs have `PASSES`, of an auxiliary phase after it."""

    def __init__(self, root: PPGCell, name: str, fields: Sequence[str]) -> None:
        super().__init__(root, name, fields)
        self._phases, self._parts = root.phases, root.parts
        self._auxiliary = Update(root, f"{name}.auxiliary", fields)
        self._kept: DeviceTables | None = None
        self.rollouts: list[tuple[Array, ...]] = []

    def __call__(self, batch: IndexedBatch, inputs: Inputs, before: Callable[[], None] | None = None) -> LearnOutput:
        constants = {**inputs.constants}
        passes = constants.pop(PASSES, None)
        output = super().__call__(batch, dataclasses.replace(inputs, constants=constants), before)
        self.rollouts.append(tuple(table[learned_rows(batch)] for table in batch.tables.host))
        if passes is None:
            return output
        rows = max(self._phases * batch.tables.rows, sum(len(tables[0]) for tables in self.rollouts))
        if self._kept is None or self._kept.rows < rows:
            self._kept = DeviceTables(batch.layout, rows)
        for table, parts in enumerate(zip(*self.rollouts, strict=True)):
            joined = np.concatenate(parts)
            self._kept.put(table, np.arange(len(joined)), joined)
        self.rollouts = []
        index, valid = minibatches(list(np.asarray(passes)), self._parts, rows)
        constants |= {AUXILIARY: 1.0, ALL_ROWS: np.arange(self._kept.rows, dtype=np.int32)}
        others = dict.fromkeys((name for name in self._root.metrics if name not in OF_AUXILIARY), 0)
        found = self._auxiliary(
            IndexedBatch(batch.layout, self._kept, index, valid=valid), Inputs(constants=constants, counts=others)
        )
        return LearnOutput({**output.metrics, **found.metrics}, output.steps + found.steps)


def learned_rows(batch: IndexedBatch) -> Array:
    """The numbers of the rows from which a batch learns, int (n,)."""
    return np.unique(batch.index if batch.valid is None else batch.index[batch.valid > 0])


class PPGCell(ProximalStep):
    """Root cell: networks and optimizer."""

    metrics = (*SURROGATE_METRICS, "actor_grad_norm", "critic_grad_norm", *OF_AUXILIARY)
    proximal_names = (*ProximalStep.proximal_names, OLD_PARAMS)
    compares = True

    def __init__(self, net: SeparateActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("clip_ratio", "entropy_weight", "clone_weight"))
        self.phases, self.parts = learn["aux_freq"], learn["aux_freq"] * learn["n_minibatch"]
        self.actor = len(net.policy.trainable_params())
        self.both = self.actor + len(net.critic.trainable_params())
        self.auxiliary_gradient = self.optim.gradient(self.auxiliary_loss, *self.optim.names)

    def groups(self, net: SeparateActorCritic, whole: Group, learn: Mapping[str, Any]) -> dict[str, Group]:
        parts: dict[str, Any] = {"policy": net.policy, "critic": net.critic, AUXILIARY: net.auxiliary}
        return {name: dataclasses.replace(whole, params=part.trainable_params()) for name, part in parts.items()}

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        policy_loss, kl, clip_fraction = clipped_surrogate(log_prob, batch, batch, self.cfg["clip_ratio"])
        entropy, of_value = row_mean(entropy, batch), self.half_square(value, batch)
        loss = policy_loss + of_value - self.cfg["entropy_weight"] * entropy
        return loss, self.named((loss, policy_loss, of_value, entropy, kl, clip_fraction))

    def auxiliary_loss(self, batch):
        """L_joint + L_V, and the metrics of the phase."""
        params, value = self.net.policy_and_auxiliary(batch["obs"])
        of_head, divergence = self.half_square(value, batch), self.divergence(batch, params)
        loss = of_head + self.cfg["clone_weight"] * divergence
        of_value = self.half_square(self.net.critic(batch["obs"]), batch)
        return loss + of_value, primitives.named(OF_AUXILIARY, (of_head, divergence))

    def half_square(self, value, batch):
        return 0.5 * row_mean(ops.Square()(value - batch["return"]), batch)

    def construct(self, batch):
        if AUXILIARY in batch:
            (_, metrics), grads = self.auxiliary_gradient(batch)
            moved = self.split(grads)
            moved[AUXILIARY] = grads[self.both :]
            norms = self.optim(moved, batch, metrics)
            for name in self.metrics[:-2]:
                metrics[name] = self.nothing
            # A caller that waits for a metric waits for the step.
            metrics[self.metrics[0]] = 0.0 * norms["policy"]
            return metrics
        (_, metrics), grads = self.gradient(self.with_proximal(batch))
        norms = self.optim(self.split(grads), batch, metrics)
        metrics["actor_grad_norm"], metrics["critic_grad_norm"] = norms["policy"], norms["critic"]
        for name in OF_AUXILIARY:
            metrics[name] = self.nothing
        return metrics

    def split(self, grads):
        return {"policy": grads[: self.actor], "critic": grads[self.actor : self.both]}


class PPG(ActorCriticPolicy):
    """Phasic policy gradient for Discrete, MultiDiscrete, Box and composite actions."""

    cfg: PPGSettings
    name = "ppg"
    step_class = PPGCell
    network_class = SeparateActorCritic
    update_class = Phases
    scalar_fields = ("log_prob", "value", "advantage", "return")
    host_fields = ("advantage",)
    undivided: Phases

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        constants, learn = {**self.constants(progress), **self.all_rows(batch)}, self.cfg.learn
        kept = [len(tables[0]) for tables in self.undivided.rollouts]
        if len(kept) + 1 >= learn.aux_freq:
            count, passes = sum(kept) + len(learned_rows(batch)), range(learn.aux_epoch)
            constants[PASSES] = np.stack([self.learn_rng.permutation(count) for _ in passes])
        return Inputs({"advantage": self.advantage(batch)}, constants, dict.fromkeys(OF_AUXILIARY, 0))

    def all_rows(self, batch: IndexedBatch) -> dict[str, Array]:
        # A policy phase needs the distributions of its beginning only where they differ from the recorded ones.
        return super().all_rows(batch) if batch.lag > 0 else {}

    def state_dict(self) -> StateDict:
        """The state of `BasePolicy`, with the rollouts since the last auxiliary phase."""
        if "learn" not in self.modes:
            return super().state_dict()
        kept = [{str(i): table for i, table in enumerate(tables)} for tables in self.undivided.rollouts]
        return {**super().state_dict(), "rollouts": {str(k): tables for k, tables in enumerate(kept)}}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if "learn" in self.modes:
            saved = [state["rollouts"][str(k)] for k in range(len(state["rollouts"]))]
            self.undivided.rollouts = [tuple(np.asarray(each[str(i)]) for i in range(len(each))) for each in saved]
