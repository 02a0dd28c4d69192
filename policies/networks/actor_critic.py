"""Networks of the archetypes: actor with a state value, action values, actor and twin critics, state value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.acting import numpy_networks
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import (
    DeterministicHead,
    GaussianHead,
    SquashedGaussianHead,
    action_mask,
    make_action_head,
)
from minding.policies.networks.layers import MLP, Linear, ScalarLinear
from minding.policies.networks.recurrent import make_memory
from minding.policies.ops.primitives import as_rows


class Decision(NamedTuple):
    """Which output of an acting network decides the action without exploration: scores, a mean or an action."""

    output: int
    name: str
    squash: bool = False
    """Whether the action is the tanh of the mean."""


class ActorCritic(nn.Cell):
    """Shared encoder and, if configured, memory, then separate actor and critic.

    Takes the observation leaves and, with memory, the memory rows, float32 (B, S), as the last leaf. Returns (value
    (B,), distribution parameters...) and, with memory, the new memory rows as the last output.

    Logits of actions that the observation's mask forbids are `ILLEGAL`.
    """

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis."""
        return (2,) if isinstance(self.head, GaussianHead) else ()

    @property
    def decision(self) -> Decision:
        return Decision(1, "mean" if isinstance(self.head, GaussianHead) else "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        gain = math.sqrt(2)
        self.encoder = make_encoder(spec["observation"], model, rng)
        features = self.encoder.out_features
        self.memory = make_memory(model, features, rng)
        if self.memory is not None:
            features = self.memory.out_features
        self.actor = MLP.of(features, model, gain, rng)
        self.critic = MLP.of(features, model, gain, rng)
        self.head = make_action_head(spec["action"], self.actor.out_features, rng, log_std=model.log_std)
        self.value = ScalarLinear(self.critic.out_features, 1.0, rng)
        self.mask = action_mask(spec["observation"])

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an environment; 0 without memory."""
        return 0 if self.memory is None else self.memory.size

    def construct(self, obs):
        if self.memory is None:
            return self.heads(self.encoder(obs), obs)
        features, rows = self.memory(self.encoder(obs[:-1]), obs[-1])
        return (*self.heads(features, obs), rows)

    def of_rows(self, batch):
        """The outputs for the rows of a batch, without the memory rows.

        Args:
          batch: by name: `obs`; with memory also `index`, int32 (T, B), the row indices of sequences ordered by time,
            `memory`, float32 (T B, S), of which only the first B rows are used, and `begun`, float32 (T B,), see
            `recurrent.Memory.unroll`.
        """
        features = self.encoder(batch["obs"])
        if self.memory is not None:
            rows = ops.Slice()(batch["memory"], (0, 0), (batch["index"].shape[1], self.memory.size))
            features = self.memory.unroll(features, rows, batch["begun"])
        return self.heads(features, batch["obs"])

    def heads(self, features, obs):
        params = self.head(self.actor(features))
        if self.mask is not None:
            params = (self.mask(params[0], obs),)
        return (self.value(self.critic(features)), *params)

    def host(self) -> numpy_networks.ActorCritic:
        heads = (self.critic.host(), self.value.host(), self.actor.host(), self.head.host())
        memory = None if self.memory is None else self.memory.host()
        mask = None if self.mask is None else self.mask.host()
        return numpy_networks.ActorCritic(self.encoder.host(), memory, heads, mask)


class PolicyNetwork(nn.Cell):
    """Encoder, torso and action head; returns the parameters of the head's distribution. ``head.log_prob_entropy``
    computes from these parameters the log-probability of any action, even of one that another policy has taken.

    Logits of actions that the observation's mask forbids are `ILLEGAL`.
    """

    memory_size = 0

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis."""
        return (1,) if isinstance(self.head, GaussianHead) else ()

    @property
    def decision(self) -> Decision:
        return Decision(0, "mean" if isinstance(self.head, GaussianHead) else "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, math.sqrt(2), rng, acts=True)
        # The settings of algorithms for discrete actions only lack this key.
        log_std = model.get("log_std", 0.0)
        self.head = make_action_head(spec["action"], self.torso.out_features, rng, log_std=log_std)
        self.mask = action_mask(spec["observation"])

    def construct(self, obs):
        params = self.head(self.torso(self.encoder(obs)))
        return params if self.mask is None else (self.mask(params[0], obs),)

    def host(self) -> numpy_networks.Actor:
        mask = self.mask.host() if self.mask is not None else None
        return numpy_networks.Actor(self.encoder.host(), self.torso.host(), self.head.host(), mask)


class QNetwork(nn.Cell):
    """Action values (B, n); with `dueling` as V + A - mean A (Wang et al., 2016, eq. 9;
    https://arxiv.org/abs/1511.06581). Values of actions that the observation's mask forbids are `ILLEGAL`.

    If a memory is configured, the network takes the memory rows, float32 (B, S), as the last leaf, and returns the new
    memory rows as the last output.
    """

    shared_outputs = ()
    noise_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.memory: Any = make_memory(model, self.encoder.out_features, rng)
        features = self.encoder.out_features if self.memory is None else self.memory.out_features
        self.torso = MLP.of(features, model, None, rng)
        self.advantage = Linear(self.torso.out_features, spec["action"]["n"], None, rng)
        self.value = Linear(self.torso.out_features, 1, None, rng) if model.dueling else None
        self.mask = action_mask(spec["observation"])

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an environment; 0 without memory."""
        return 0 if self.memory is None else self.memory.size

    def construct(self, obs):
        if self.memory is None:
            return (self.values(self.encoder(obs), obs),)
        features, rows = self.memory(self.encoder(obs[:-1]), obs[-1])
        return self.values(features, obs), rows

    def unroll(self, obs, rows, begun):
        """Action values (T, B, n) of sequences, for a network with memory.

        Args:
          obs: leaves (T, B, ...).
          rows: memory (B, S) before the first observations.
          begun: float32 (T, B), 1 where the memory is cleared before the observation.
        """
        leaves = as_rows(obs)
        features = self.memory.unroll(self.encoder(leaves), rows, ops.Reshape()(begun, (-1,)))
        q = self.values(features, leaves)
        return ops.Reshape()(q, (*begun.shape, q.shape[-1]))

    def take_in(self, obs, rows, counted):
        """The memory (B, S) after sequences.

        Args:
          obs, rows: as in `unroll`.
          counted: float32 (T, B), 0 where an observation is left out, else 1.
        """
        return self.memory.take_in(self.encoder(as_rows(obs)), rows, counted)

    def take_in_one(self, obs, rows):
        """The memory (B, S) after one more observation, leaves (B, ...)."""
        return self.memory(self.encoder(obs), rows)[1]

    def values(self, features, obs):
        features = self.torso(features)
        q = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(axis=-1, keep_dims=True)
        return q if self.mask is None else self.mask(q, obs)

    def host(self) -> numpy_networks.QNetwork:
        memory = self.memory.host() if self.memory is not None else None
        value = self.value.host() if self.value is not None else None
        mask = self.mask.host() if self.mask is not None else None
        heads = (self.torso.host(), self.advantage.host(), value)
        return numpy_networks.QNetwork(self.encoder.host(), memory, heads, mask)


class BoundedActor(nn.Cell):
    """Encoder, torso and a head for actions in [-1, 1]. A subclass defines `head_class` and `decision`."""

    shared_outputs = ()
    memory_size = 0
    head_class: type[SquashedGaussianHead] | type[DeterministicHead]

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng, acts=True)
        self.head = self.head_class(self.torso.out_features, math.prod(spec["action"]["shape"]), rng)

    def construct(self, obs):
        return self.head(self.torso(self.encoder(obs)))

    def host(self) -> numpy_networks.Actor:
        return numpy_networks.Actor(self.encoder.host(), self.torso.host(), self.head.host())


class SquashedActor(BoundedActor):
    """Tanh-normal actions; returns (mean, log standard deviation), each (B, A)."""

    head_class = SquashedGaussianHead
    decision = Decision(0, "mean", squash=True)


class DeterministicActor(BoundedActor):
    """Deterministic actions; returns (action,), (B, A) in [-1, 1]."""

    head_class = DeterministicHead
    decision = Decision(0, "action")

    def construct(self, obs):
        return (self.torso.into(self.head.linear, self.encoder(obs)),)


class StateValue(nn.Cell):
    """V(s) as a separate network, which shares nothing with the acting network: float32 (B,) from the observation's
    leaves. A root that holds such a network optimizes it with the group ``Group.of(value, learn)``."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, obs):
        return self.torso.into(self.value, self.encoder(obs))


class ActionValue(nn.Cell):
    """Q(s, a) for continuous actions: float32 (B,) from action (B, *shape) and observation leaves."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.action_size = math.prod(spec["action"]["shape"])
        self.torso = MLP.of(self.encoder.out_features + self.action_size, model, None, rng)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, action, obs):
        features, action = self.encoder(obs), action.reshape((-1, self.action_size))
        return self.torso.into(self.value, ops.Concat(-1)((features, action)))

    def of_many(self, actions, obs):
        """Q(s, a) of M actions for each row: float32 (M, B) from actions (M, B, A); each row is encoded only once."""
        features = ops.ExpandDims()(self.encoder(obs), 0)
        count, rows = actions.shape[0], actions.shape[1]
        features = ops.BroadcastTo((count, rows, features.shape[-1]))(features)
        both = ops.Reshape()(ops.Concat(-1)((features, actions)), (count * rows, -1))
        return ops.Reshape()(self.torso.into(self.value, both), (count, rows))


class TwinCritics(nn.Cell):
    """Two independent `ActionValue` networks: a pair of float32 (B,)."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.q1 = ActionValue(spec, model, rng)
        self.q2 = ActionValue(spec, model, rng)

    def construct(self, action, obs):
        return self.q1(action, obs), self.q2(action, obs)

    def of_many(self, actions, obs):
        """`ActionValue.of_many` of both networks: a pair of float32 (M, B)."""
        return self.q1.of_many(actions, obs), self.q2.of_many(actions, obs)
