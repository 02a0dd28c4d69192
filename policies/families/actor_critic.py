"""Policies with an actor and a state value, and their gradient steps."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.acting.actors import Network, StochasticActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import ALL_ROWS, NetworkStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import SURROGATE_METRICS, row_mean


def moments(x: Array, counted: Array | None = None) -> tuple[Array, Array]:
    """Mean and standard deviation of each row of x, float32 (K, R), over the numbers that count (bool (K, R); None:
    all), each ``(K, 1)``: 0 for a row in which no number counts, and 0 and 1 for a single one, so that standardizing
    leaves it unchanged."""
    if counted is None:
        mean, deviation = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
        number = np.full_like(mean, x.shape[1])
    else:
        number = counted.sum(axis=1, keepdims=True).astype(np.float32)
        divisor = np.maximum(number, 1.0)
        mean = np.where(counted, x, 0.0).sum(axis=1, keepdims=True) / divisor
        distance = np.where(counted, x - mean, 0.0)
        deviation = np.sqrt(np.square(distance).sum(axis=1, keepdims=True) / divisor)
    alone = number == 1
    return np.where(alone, np.float32(0.0), mean), np.where(alone, np.float32(1.0), deviation)


def standardized(x: Array, counted: Array | None = None) -> Array:
    """Each row of x ``(K, R)`` with zero mean and unit variance, see `moments`."""
    # If a number becomes infinite here, the loss does too, and its error says more.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = moments(x, counted)
        scaled: Array = (x - mean) / (std + 1e-8)
    return scaled


def actor_and_critic(net: ActorCritic) -> tuple[list[ms.Parameter], list[ms.Parameter]]:
    """The parameters of the actor, with the encoder, and those of the critic."""
    critic = [*net.critic.trainable_params(), *net.value.trainable_params()]
    valued = {id(p) for p in critic}
    return [p for p in net.trainable_params() if id(p) not in valued], critic


def parts_of(net: ActorCritic) -> list[int]:
    """The part of each parameter, as `Group.parts`: 0 for encoder and memory, 1 for the actor, 2 for the critic."""
    _, critic = actor_and_critic(net)
    actor = [*net.actor.trainable_params(), *net.head.trainable_params()]
    part = {**{id(p): 1 for p in actor}, **{id(p): 2 for p in critic}}
    return [part.get(id(p), 0) for p in net.trainable_params()]


class ActorCriticPolicy(BasePolicy):
    """Draws actions from a distribution and records their log-probability and the state's value, if learning uses them.

    A subclass defines `make_root` and `numbers`. A policy whose settings have a memory learns from sequences: the index
    of a batch is then ``(K, T, B)``, and the rows of resets are part of a sequence, but do not count.
    """

    network_class = ActorCritic
    scalar_fields: ClassVar[tuple[str, ...]]
    """Row fields with one number per row."""

    record_fields: ClassVar[tuple[str, ...]] = ("log_prob", "value")
    """Fields recorded at each step. With `value`, collectors also record the values that bootstrap a rollout, for
    `gae_estimator`."""

    def make_actor(self, network: Network, rng: np.random.Generator) -> StochasticActor:
        return StochasticActor(self.name, network, self.spec, rng, self.net.head.distribution, self.record_fields)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = dict.fromkeys(self.scalar_fields, Field())
        return {**self.obs_fields("obs"), "action": self.action_field, **numbers, **self.memory_fields}

    @property
    def memory_fields(self) -> dict[str, Field]:
        """Additional row fields of a policy with memory; empty without memory."""
        size = self.net.memory_size
        return {"memory": Field((size,)), "begun": Field(), "valid": Field()} if size else {}

    def advantage(self, batch: IndexedBatch) -> Array:
        """The advantages for the gradient steps of a batch, float32 ``(K, R)``, standardized within each step if
        `learn.normalize_advantage` is on."""
        steps = len(batch.index)
        advantage = self.read("advantage", batch).reshape(steps, -1)
        if not self.cfg.learn.normalize_advantage:
            return advantage
        counted = self.counted(batch)
        return standardized(advantage, None if counted is None else counted.reshape(steps, -1))

    def all_rows(self, batch: IndexedBatch) -> dict[str, Array]:
        """The input for `GradientStep.proximal`, if an older policy collected the rows, or if `ProximalStep.compares`:
        int32 ``(R,)``; with memory ``(T, N)``, ordered by time and then by environment."""
        if batch.lag <= 0 and not self.root.compares:
            return {}
        rows = np.arange(batch.tables.rows, dtype=np.int32)
        return {ALL_ROWS: rows.reshape(batch.index.shape[1], -1) if self.net.memory_size else rows}


OLD_PARAMS = "old_params"
"""Name of the parameters of the distributions under the policy from which a call starts, float32 (B, P)."""
WEIGHT_BOUND = 2.0
"""Upper bound of the weight of rows that an older policy collected."""


class ActorCriticStep(NetworkStep):
    """Base of the gradient steps of an actor with a state value. A subclass defines `loss`.

    Args:
      net: the network.
      learn: the configuration `policy.learn`.
      names: names of the settings that the loss reads, as `cfg`.
    """

    def __init__(self, net: Any, learn: Mapping[str, Any], names: Sequence[str] = ()) -> None:
        parts = parts_of(net) if learn.get("clip_parts") else ()
        whole = Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"], parts=parts)
        super().__init__(net, self.groups(net, whole, learn))
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {name: learn[name] for name in names}

    def groups(self, net: Any, whole: Group, learn: Mapping[str, Any]) -> dict[str, Group]:
        """The groups of parameters by name: by default one with the whole network."""
        return {"net": whole}

    def evaluate_actions(self, rows):
        """Log-probability, entropy and value of rows by the current network, float32 (B,) each, where the entropy may
        be a scalar, and the parameters of the distributions, see `heads`."""
        outputs = self.net.of_rows(rows)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], rows["action"])
        return log_prob, entropy, outputs[0], outputs[1:]


class ProximalStep(ActorCriticStep):
    """Base of the gradient steps of clipped policy gradients.

    The policy from which the steps of a call start may be newer than the policy that collected the rows. The old
    log-probabilities and values are then its own, and advantages are weighted by `behavior_weight`. With `target_kl`,
    the steps of a call end once the divergence from that policy exceeds 1.5 times this number.

    Args:
      net, learn, names: see `ActorCriticStep`.

    Attributes:
      compares: whether the batch of a step also has `OLD_PARAMS`, the parameters of the distributions of that policy.
    """

    metrics: tuple[str, ...] = (*SURROGATE_METRICS, "grad_norm")
    compares = False
    proximal_names: tuple[str, ...] = ("proximal_log_prob", "proximal_value", "behavior_weight")

    def __init__(self, net: Any, learn: Mapping[str, Any], names: Sequence[str]) -> None:
        super().__init__(net, learn, names)
        if learn.get("target_kl"):
            self.watched, self.limit = "approx_kl", 1.5 * learn["target_kl"]
        self.nothing = ms.Tensor(np.float32(0.0))
        fuse_likelihood(net.head)

    def proximal(self, rows):
        """Log-probability and value of rows under the current policy, and the weight `behavior_weight` of each row."""
        log_prob, _, value, params = self.evaluate_actions(rows)
        behavior_weight = ops.clamp(ops.exp(log_prob - rows["log_prob"]), max=WEIGHT_BOUND)
        found = {"proximal_log_prob": log_prob, "proximal_value": value, "behavior_weight": behavior_weight}
        if self.compares:
            found[OLD_PARAMS] = self.joined(params, log_prob.shape[0])
        return found

    def joined(self, params, rows):
        """Parameters of distributions as one array (B, P); `rows` is B."""
        parts: Any = ()
        for k in range(len(params)):
            part = primitives.item(params, k)
            parts = (*parts, part if part.ndim == 2 else ops.BroadcastTo((rows, part.shape[0]))(part))
        return ops.Concat(-1)(parts)

    def divergence(self, batch, params):
        """Mean KL of the policy from which the call starts to the one with these parameters, a scalar."""
        old: Any = ()
        start, joined = 0, ops.stop_gradient(batch[OLD_PARAMS])
        for k in range(len(params)):
            size = primitives.item(params, k).shape[-1]
            old = (*old, ops.Slice()(joined, (0, start), (joined.shape[0], size)))
            start = start + size
        return row_mean(self.net.head.divergence(old, params), batch)

    def with_proximal(self, batch):
        """The batch, whose old log-probabilities and values are replaced by the proximal ones if it has them."""
        if "behavior_weight" in batch:
            batch["log_prob"], batch["value"] = batch["proximal_log_prob"], batch["proximal_value"]
            batch["advantage"] = batch["advantage"] * batch["behavior_weight"]
        return batch

    def move(self, grads, batch, metrics):
        """Updates the network unless the divergence exceeds the limit; the norm of the gradient is 0 if it does."""
        if self.watched is None:
            return self.move_at_once(grads, batch, metrics)
        norm = self.nothing
        if metrics["approx_kl"] <= self.limit:
            norm = self.move_at_once(grads, batch, metrics)
        return norm

    def move_at_once(self, grads, batch, metrics):
        return self.optim({"net": grads}, batch, (metrics["loss"], metrics["approx_kl"]))["net"]
