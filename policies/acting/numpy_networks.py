"""Heads and networks of acting in NumPy, made of the forms of their cells (``cell.host()``).

Networks are functions of the leaves of an observation. A network of action values whose `value` is a layer and not None
is dueling; `memory` and `mask` are None for networks without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import (
    MLP,
    ActionMask,
    Encoder,
    Head,
    Layer,
    Linear,
    Outputs,
    Recurrent,
)


class LayerHead:
    """The outputs of one layer: logits ``(B, n)``, joined if there are several choices, or actions ``(B, A)``."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def __call__(self, x: Array) -> Outputs:
        return (self.layer(x),)


class GaussianHead:
    """Mean ``(B, A)`` and log standard deviation ``(A,)``."""

    def __init__(self, mean: Linear, log_std: Array) -> None:
        self.mean, self.log_std = mean, log_std

    def __call__(self, x: Array) -> Outputs:
        return self.mean(x), self.log_std


class CompositeHead:
    """Joined logits ``(B, sum nvec)``, mean ``(B, A)`` and log standard deviation ``(A,)``."""

    def __init__(self, choices: LayerHead, numbers: GaussianHead) -> None:
        self.choices, self.numbers = choices, numbers

    def __call__(self, x: Array) -> Outputs:
        return *self.choices(x), *self.numbers(x)


class SquashedGaussianHead:
    """Mean and log standard deviation, each ``(B, A)``; the latter is clipped to `limits`."""

    def __init__(self, mean: Linear, log_std: Linear, limits: tuple[float, float]) -> None:
        self.mean, self.log_std, self.limits = mean, log_std, limits

    def __call__(self, x: Array) -> Outputs:
        return self.mean(x), np.clip(self.log_std(x), *self.limits)


class ActorCritic:
    """(value ``(B,)``, distribution parameters...); with memory see `networks.actor_critic`."""

    def __init__(
        self,
        encoder: Encoder,
        memory: Recurrent | None,
        critic: MLP,
        value: Linear,
        actor: Layer,
        head: Head,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.memory, self.value, self.head, self.mask = encoder, memory, value, head, mask
        self.critic, self.actor = critic, actor

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        if self.memory is None:
            return self.outputs(self.encoder(leaves), leaves)
        features, rows = self.memory(self.encoder(leaves[:-1]), leaves[-1])
        return *self.outputs(features, leaves), rows

    def outputs(self, features: Array, leaves: Sequence[Array]) -> Outputs:
        params = self.head(self.actor(features))
        if self.mask is not None:
            params = (self.mask(params[0], leaves), *params[1:])
        return self.value(self.critic(features))[:, 0], *params


class QNetwork:
    """(action values ``(B, n)``,); with memory see `networks.actor_critic`."""

    def __init__(
        self,
        encoder: Encoder,
        memory: Recurrent | None,
        torso: MLP,
        advantage: Linear,
        value: Linear | None,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.memory, self.torso, self.mask = encoder, memory, torso, mask
        self.advantage, self.value = advantage, value

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        if self.memory is None:
            return (self.values(self.encoder(leaves), leaves),)
        features, rows = self.memory(self.encoder(leaves[:-1]), leaves[-1])
        return self.values(features, leaves), rows

    def values(self, features: Array, leaves: Sequence[Array]) -> Array:
        features = self.torso(features)
        q = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(axis=-1, keepdims=True)
        return q if self.mask is None else self.mask(q, leaves)


class QuantileMean:
    """The mean of quantiles, ``(B, A, N)`` -> ``(B, A)``."""

    def __call__(self, atoms: Array) -> Array:
        mean: Array = atoms.mean(axis=-1)
        return mean


class SupportMean:
    """The mean of categorical distributions: logits ``(B, A, N)`` over the support ``(N,)`` -> ``(B, A)``."""

    def __init__(self, support: Array) -> None:
        self.support = support

    def __call__(self, atoms: Array) -> Array:
        weights = np.exp(atoms - atoms.max(axis=-1, keepdims=True))
        mean: Array = (weights @ self.support) / weights.sum(axis=-1)
        return mean


class ReturnDistribution:
    """(action values ``(B, A)``,), each the mean of N atoms.

    Args:
      shape: shape of the atoms, (-1, A, N).
      mean: layer from the atoms to the values.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        encoder: Encoder,
        torso: Any,
        advantage: Any,
        value: Any,
        mean: Layer,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.torso, self.advantage, self.value = encoder, torso, advantage, value
        self.mean, self.mask, self.shape = mean, mask, shape

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        advantage, value = self.streams(leaves)
        atoms = advantage.reshape(self.shape)
        if value is not None:
            atoms = value[:, None] + atoms - atoms.mean(axis=1, keepdims=True)
        values = self.mean(atoms)
        return (values if self.mask is None else self.mask(values, leaves),)

    def streams(self, leaves: Sequence[Array]) -> tuple[Array, Array | None]:
        """Advantages ``(B, A N)``, and values ``(B, N)``, which are None without a `value` layer."""
        features = self.torso(self.encoder(leaves))
        return self.advantage(features), None if self.value is None else self.value(features)


class NoisyReturnDistribution(ReturnDistribution):
    """A `ReturnDistribution` with noisy layers; the noise is the leaf after the `num_leaves` of the observation."""

    def __init__(self, num_leaves: int, *parts: Any) -> None:
        super().__init__(*parts)
        self.num_leaves = num_leaves

    def streams(self, leaves: Sequence[Array]) -> tuple[Array, Array | None]:
        noise = leaves[-1] if len(leaves) > self.num_leaves else None
        features = self.torso(self.encoder(leaves), noise)
        return self.advantage(features, noise), None if self.value is None else self.value(features, noise)


class ImplicitQuantiles:
    """(action values ``(B, A)``,), means of quantiles at fixed fractions.

    Args:
      cosines: ``(K, n)``, cosine features of the fractions, the input of `embedding`.
      embedding: embedding of the fractions.
    """

    def __init__(
        self,
        cosines: Array,
        encoder: Encoder,
        torso: MLP,
        advantage: Linear,
        value: Linear | None,
        embedding: MLP,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.torso, self.advantage, self.value = encoder, torso, advantage, value
        self.embedding, self.mask, self.cosines = embedding, mask, cosines

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features = self.torso(self.encoder(leaves)) * self.embedding(self.cosines).mean(axis=0)
        return self.outputs(features, leaves)

    def outputs(self, features: Array, leaves: Sequence[Array]) -> Outputs:
        """The values for features that the fractions are part of."""
        q = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(axis=-1, keepdims=True)
        return (q if self.mask is None else self.mask(q, leaves),)


class ProposedQuantiles(ImplicitQuantiles):
    """(action values ``(B, A)``,), means of quantiles at fractions that a layer places, weighted by their shares.

    Args:
      frequencies: ``(n,)``, factors of a fraction in its cosine features.
      proposal: layer of the logits of the shares.
      parts: the arguments of `ImplicitQuantiles` after the first one.
    """

    def __init__(self, frequencies: Array, proposal: Linear, *parts: Any) -> None:
        super().__init__(frequencies, *parts)
        self.proposal, self.frequencies = proposal, frequencies

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features = self.torso(self.encoder(leaves))
        logits = self.proposal(features)
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        middles = np.cumsum(shares, axis=-1) - 0.5 * shares
        cosines = np.cos(middles[..., None] * self.frequencies).reshape(-1, len(self.frequencies))
        embedded = self.embedding(cosines).reshape(*shares.shape, -1)
        return self.outputs(features * (embedded * shares[..., None]).sum(axis=1), leaves)


class Actor:
    """The parameters of the head's distribution."""

    def __init__(self, encoder: Encoder, torso: MLP, head: Head, mask: ActionMask | None = None) -> None:
        self.encoder, self.torso, self.head, self.mask = encoder, torso, head, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        params = self.head(self.torso(self.encoder(leaves)))
        return params if self.mask is None else (self.mask(params[0], leaves), *params[1:])


class ReturnNetwork:
    """Observation leaves and memory rows -> (parameters of the head's distribution..., new memory rows), see
    `policies.dt`.

    Args:
      target, scale: target return, and the number that divides returns, ``(1,)`` each.
      chooses: whether the actions are choices.
    """

    def __init__(
        self,
        target: Array,
        scale: Array,
        chooses: bool,
        encoder: Encoder,
        memory: Recurrent,
        torso: MLP,
        head: Head,
        mask: ActionMask | None,
    ) -> None:
        self.target, self.scale, self.chooses = target, scale, chooses
        self.encoder, self.memory, self.torso, self.head, self.mask = encoder, memory, torso, head, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        *leaves, rows = leaves
        rewards, kept, last = np.split(rows, [1, 1 + self.memory.size], axis=1)
        to_go = (self.target - rewards) / np.where(self.scale == 0.0, np.float32(1.0), self.scale)
        h, kept = self.memory(np.concatenate([self.encoder(leaves), to_go, last], axis=1), kept)
        params = self.head(self.torso(h))
        if self.mask is not None:
            params = (self.mask(params[0], leaves), *params[1:])
        decided = one_hot_of_largest(params[0]) if self.chooses else np.clip(params[0], -1.0, 1.0)
        return (*params, np.concatenate([rewards, kept, decided], axis=1))


def one_hot_of_largest(scores: Array) -> Array:
    """The likeliest choice as one-hot, float32 ``(B, n)``."""
    return np.eye(scores.shape[1], dtype=np.float32)[scores.argmax(axis=1)]


class ChoiceValues:
    """Parameters ``(B, A)`` and leaves -> values of the choices ``(B, n)``.

    Args:
      owned: float32 ``(n, 1, A)``, 1 where a parameter belongs to a choice, if a value depends on no others; else None.
    """

    def __init__(self, encoder: Encoder, torso: MLP, values: Linear, owned: Array | None) -> None:
        self.encoder, self.torso, self.values, self.owned = encoder, torso, values, owned

    def __call__(self, numbers: Array, leaves: Sequence[Array]) -> Array:
        features = self.encoder(leaves)
        if self.owned is None:
            return self.values(self.torso(np.concatenate([features, numbers], axis=-1)))
        passes = [self.torso(np.concatenate([features, numbers * own], axis=-1)) for own in self.owned]
        return np.stack([self.values(x)[:, k] for k, x in enumerate(passes)], axis=1)


class ParametrisedNetwork:
    """(values ``(B, n)``, parameters ``(B, A)``), see `networks.parametrised`."""

    def __init__(self, actor: Actor, critic: ChoiceValues, mask: ActionMask | None) -> None:
        self.actor, self.critic, self.mask = actor, critic, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        numbers = self.actor(leaves)[0]
        values = self.critic(numbers, leaves)
        return values if self.mask is None else self.mask(values, leaves), numbers


class PolicyValue:
    """(logits, value), see `networks.policy_value.PolicyValue`."""

    def __init__(
        self, encoder: Encoder, torso: MLP, policy: Linear, critic: MLP, value: MLP, mask: ActionMask | None
    ) -> None:
        self.encoder, self.torso, self.mask = encoder, torso, mask
        self.policy, self.critic, self.value = policy, critic, value

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features = self.torso(self.encoder(leaves))
        logits = self.policy(features)
        value = self.value(self.critic(features))[:, 0]
        return (logits if self.mask is None else self.mask(logits, leaves)), value


class PopArt:
    """The value ``(B,)`` in units of the returns.

    Args:
      linear: linear layer that outputs normalized values.
      mean, deviation: mean and standard deviation of the returns, ``(1,)``.
    """

    def __init__(self, linear: Linear, mean: Array, deviation: Array) -> None:
        self.linear, self.mean, self.deviation = linear, mean, deviation

    def __call__(self, x: Array) -> Array:
        value: Array = self.linear(x)[:, 0] * self.deviation
        value += self.mean
        return value


class CentralValue:
    """Features of the agent's observation and the leaves of `central_view` -> value ``(B,)``.

    Args:
      state: encoder of the global state.
      agents: number of agents.
      torso, value: hidden layers and value head on the joined features.
    """

    def __init__(self, state: Encoder, agents: int, torso: MLP, value: PopArt) -> None:
        self.state, self.torso, self.value = state, torso, value
        self.agents = np.eye(agents, dtype=np.float32)

    def __call__(self, features: Array, leaves: Sequence[Array]) -> Array:
        agent, alive, *state = leaves
        there = alive.astype(np.float32)[:, None]
        seen = (features * there, self.state(state) * there, self.agents[agent])
        return self.value(self.torso(np.concatenate(seen, axis=-1)))


class CentralActorCritic:
    """(distribution parameters..., value ``(B,)``, new memory rows).

    The leaves are those of the observation, of which there are `num_leaves`, then those of `central_view`, then the
    memory rows if the network has a memory. Without the leaves of `central_view`, no value is computed.
    """

    def __init__(
        self,
        num_leaves: int,
        encoder: Encoder,
        memory: Recurrent | None,
        actor: Layer,
        head: Head,
        value: CentralValue,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.memory, self.mask, self.num_leaves = encoder, memory, mask, num_leaves
        self.actor, self.head, self.value = actor, head, value

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features, rows = self.encoder(leaves[: self.num_leaves]), None
        central = leaves[self.num_leaves :]
        if self.memory is not None:
            (features, rows), central = self.memory(features, leaves[-1]), central[:-1]
        outputs = self.head(self.actor(features))
        if self.mask is not None:
            outputs = (self.mask(outputs[0], leaves), *outputs[1:])
        if central:
            outputs = (*outputs, self.value(features, central))
        return outputs if rows is None else (*outputs, rows)


class AgentQNetwork:
    """The leaves, including the agent number, and memory rows -> (action values ``(B, A)``, new memory rows).

    Args:
      agents: number of agents, M.
      place: index of the agent number among the leaves.
      torso, values: hidden layers before the memory, and linear layer after it.
    """

    def __init__(
        self,
        agents: int,
        place: int,
        encoder: Encoder,
        torso: MLP,
        memory: Recurrent | None,
        values: Linear,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.torso, self.memory, self.values = encoder, torso, memory, values
        self.place, self.mask = place, mask
        self.kept = 0 if self.memory is None else self.memory.size
        self.agent_table = np.eye(agents, dtype=np.float32)
        self.action_table = np.eye(len(self.values.bias), dtype=np.float32)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        *seen, rows = leaves
        agent = self.agent_table[seen.pop(self.place).reshape(-1)]
        kept, last = rows[:, : self.kept], rows[:, self.kept :]
        h = self.torso(np.concatenate([self.encoder(seen), last, agent], axis=1))
        if self.memory is not None:
            h, kept = self.memory(h, kept)
        q = self.values(h)
        if self.mask is not None:
            q = self.mask(q, seen)
        return q, np.concatenate([kept, self.action_table[q.argmax(axis=-1)]], axis=1)


class AgentActors:
    """The leaves, including the agent numbers -> the outputs of the agents' networks, ``(B, A)`` each; each row is
    computed by the network of its agent.

    Args:
      nets: one network per agent.
      place: index of the agent numbers among the leaves.
    """

    def __init__(self, nets: Sequence[Actor], place: int) -> None:
        self.nets, self.place = list(nets), place

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        own = list(leaves)
        agent = own.pop(self.place).reshape(-1)
        made: Outputs = ()
        for m, net in enumerate(self.nets):
            rows = np.flatnonzero(agent == m)
            if len(rows):
                outputs = net([leaf[rows] for leaf in own])
                made = made or tuple(np.empty((len(agent), x.shape[-1]), x.dtype) for x in outputs)
                for whole, part in zip(made, outputs, strict=True):
                    whole[rows] = part
        return made


class CentralAgentActors:
    """(distribution parameters..., value ``(B,)``), see `networks.central`; without the leaves of `central_view`, no
    value is computed.

    Args:
      actors: the agents' actors.
      num_leaves: number of leaves of the observation, including the agent number.
      encoder, value: encoder and value of the critic.
    """

    def __init__(self, actors: AgentActors, num_leaves: int, encoder: Encoder, value: CentralValue) -> None:
        self.actors, self.num_leaves, self.encoder, self.value = actors, num_leaves, encoder, value

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        count = self.num_leaves
        outputs = self.actors(leaves[:count])
        if len(leaves) == count:
            return outputs
        own = [*leaves[: self.actors.place], *leaves[self.actors.place + 1 : count]]
        return (*outputs, self.value(self.encoder(own), leaves[count:]))


class SeparateActorCritic:
    """(value ``(B,)``, distribution parameters...), from networks that share nothing."""

    def __init__(self, policy: Actor, value: Actor) -> None:
        self.policy, self.value = policy, value

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        return self.value(leaves)[0][:, 0], *self.policy(leaves)
