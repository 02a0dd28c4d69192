"""Networks of the archetypes: actor with a state value, action values, actor and twin critics, state value."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.acting import compositions
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import (
    DeterministicHead,
    GaussianHead,
    SquashedGaussianHead,
    action_mask,
    make_action_head,
)
from minding.policies.networks.layers import MLP, Composed, Dropout, Linear, ScalarLinear
from minding.policies.networks.recurrent import make_memory
from minding.policies.ops.primitives import as_rows


class Decision(NamedTuple):
    """Which output of an acting network decides the action without exploration: scores, a mean or an action."""

    output: int
    name: str
    squash: bool = False
    """Whether the action is the tanh of the mean."""


class StochasticNetwork(Composed):
    """Base of networks whose outputs are the parameters of a distribution over actions, from output `first` on. A
    subclass has an `encoder`, a `memory` or None, a `head` and a `mask` or None.

    Logits of actions that the observation's mask forbids are `ILLEGAL`.
    """

    first = 0

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis."""
        return tuple(self.first + place for place in self.head.shared)

    @property
    def decision(self) -> Decision:
        return Decision(self.first, "mean" if isinstance(self.head, GaussianHead) else "logits")

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an environment or agent; 0 without memory."""
        return 0 if self.memory is None else self.memory.size

    def features_of_rows(self, batch):
        """The features of the rows of a batch with `obs`, after the memory if there is one: the batch then has `index`,
        int32 (T, B), the row indices of sequences ordered by time, `memory`, float32 (T B, S), of which only the first
        B rows are used, and `begun`, float32 (T B,), see `recurrent.Memory.unroll`."""
        features = self.encoder(batch["obs"])
        if self.memory is None:
            return features
        rows = ops.Slice()(batch["memory"], (0, 0), (batch["index"].shape[1], self.memory.size))
        return self.memory.unroll(features, rows, batch["begun"])


class ActorCritic(StochasticNetwork, compositions.ActorCritic):
    """Shared encoder and, if configured, memory, then separate actor and critic.

    Takes the observation leaves and, with memory, the memory rows, float32 (B, S), as the last leaf. Returns (value
    (B,), distribution parameters...) and, with memory, the new memory rows as the last output.
    """

    first = 1

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

    def of_rows(self, batch):
        """The outputs for the rows of a batch, see `features_of_rows`, without the memory rows."""
        return self.heads(self.features_of_rows(batch), batch["obs"])


class PolicyNetwork(StochasticNetwork, compositions.Actor):
    """Encoder, torso and action head; returns the parameters of the head's distribution. ``head.log_prob_entropy``
    computes from these parameters the log-probability of any action, even of one that another policy has taken."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.memory = None
        self.torso = MLP.of(self.encoder.out_features, model, math.sqrt(2), rng, acts=True)
        # The settings of algorithms for discrete actions only lack this key.
        log_std = model.get("log_std", 0.0)
        self.head = make_action_head(spec["action"], self.torso.out_features, rng, log_std=log_std)
        self.mask = action_mask(spec["observation"])


class QNetwork(Composed, compositions.QNetwork):
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

    def unroll(self, obs, rows, begun):
        """Action values (T, B, n) of sequences, leaves (T, B, ...), for a network with memory, whose rows (B, S) come
        before the first observations; `begun`: float32 (T, B), 1 where it is cleared before the observation."""
        leaves = as_rows(obs)
        features = self.memory.unroll(self.encoder(leaves), rows, ops.Reshape()(begun, (-1,)))
        q = self.values(features, leaves)
        return ops.Reshape()(q, (*begun.shape, q.shape[-1]))

    def take_in(self, obs, rows, counted):
        """The memory (B, S) after sequences; `counted`: float32 (T, B), 0 where an observation is left out, else 1."""
        return self.memory.take_in(self.encoder(as_rows(obs)), rows, counted)

    def take_in_one(self, obs, rows):
        """The memory (B, S) after one more observation, leaves (B, ...)."""
        return self.memory(self.encoder(obs), rows)[1]


class BoundedActor(Composed, compositions.Actor):
    """Encoder, torso and a head for actions in [-1, 1]. A subclass defines `head_class` and `decision`, and may have
    another `torso_class`."""

    shared_outputs = ()
    memory_size = 0
    head_class: type[SquashedGaussianHead] | type[DeterministicHead]
    torso_class: type[MLP] = MLP

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = self.torso_class.of(self.encoder.out_features, model, None, rng, acts=True)
        self.head = self.head_class(self.torso.out_features, math.prod(spec["action"]["shape"]), rng)
        self.mask = None


class SquashedActor(BoundedActor):
    """Tanh-normal actions; returns (mean, log standard deviation), each (B, A)."""

    head_class = SquashedGaussianHead
    decision = Decision(0, "mean", squash=True)


class DeterministicActor(BoundedActor, compositions.DeterministicActor):
    """Deterministic actions; returns (action,), (B, A) in [-1, 1]."""

    head_class = DeterministicHead
    decision = Decision(0, "action")


class StateValue(Composed, compositions.StateValue):
    """V(s) as a separate network, which shares nothing with the acting network: float32 (B,) from the observation's
    leaves. A root that holds such a network optimizes it with the group ``Group.of(value, learn)``."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng)
        self.value = ScalarLinear(self.torso.out_features, None, rng)


class ActionValue(nn.Cell):
    """Q(s, a) for continuous actions: float32 (B,) from action (B, *shape), observation leaves and, with dropout, its
    seed. A subclass may have another `torso_class`."""

    torso_class: type[MLP] = MLP

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.action_size = math.prod(spec["action"]["shape"])
        self.torso = self.torso_class.of(self.encoder.out_features + self.action_size, model, None, rng)
        self.value = self.make_head(self.torso.out_features, model, rng)

    def make_head(self, in_features: int, model: Any, rng: np.random.Generator) -> Linear:
        return ScalarLinear(in_features, None, rng)

    def construct(self, action, obs, seed=None):
        features, action = self.encoder(obs), action.reshape((-1, self.action_size))
        return self.torso.into(self.value, ops.Concat(-1)((features, action)), seed)

    def of_many(self, actions, obs):
        """Q(s, a) of M actions for each row: float32 (M, B) from actions (M, B, A); each row is encoded only once."""
        features = ops.ExpandDims()(self.encoder(obs), 0)
        count, rows = actions.shape[0], actions.shape[1]
        features = ops.BroadcastTo((count, rows, features.shape[-1]))(features)
        both = ops.Reshape()(ops.Concat(-1)((features, actions)), (count * rows, -1))
        return ops.Reshape()(self.torso.into(self.value, both), (count, rows))


class ActionQuantiles(ActionValue):
    """The return for continuous actions as M quantiles: float32 (B, M) from action (B, *shape) and observation leaves;
    M is ``model.n_quantiles``."""

    def make_head(self, in_features: int, model: Any, rng: np.random.Generator) -> Linear:
        return Linear(in_features, model["n_quantiles"], None, rng)


class CriticEnsemble(nn.Cell):
    """N independent critics, whose values are stacked: float32 (N, ...).

    The critics are the attributes ``q1``, ``q2``, ... Their dropouts get one seed, and each drops other numbers.
    """

    def __init__(
        self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, count: int = 2, kind: Any = ActionValue
    ) -> None:
        super().__init__()
        self.members = tuple(kind(spec, model, rng) for _ in range(count))
        for k, member in enumerate(self.members, 1):
            setattr(self, f"q{k}", member)
        dropouts = [cell for _, cell in self.cells_and_names() if isinstance(cell, Dropout)]
        for number, dropout in enumerate(dropouts):
            dropout.start(number)

    def construct(self, *inputs):
        """The values for the inputs of a critic: (N, B), of a `QNetwork` (N, B, A), of `ActionQuantiles` (N, B, M)."""
        values: Any = ()
        for member in self.members:
            value = member(*inputs)
            values = (*values, value[0] if isinstance(value, tuple) else value)
        return ops.Stack()(values)

    def of_many(self, actions, obs):
        """`ActionValue.of_many` of all critics: a tuple of N arrays, float32 (M, B) each."""
        values: Any = ()
        for member in self.members:
            values = (*values, member.of_many(actions, obs))
        return values


class SeparateActorCritic(StochasticNetwork, compositions.SeparateActorCritic):
    """A `PolicyNetwork` and a `StateValue`, which share nothing, and a second value as a linear head of the policy.

    Takes the observation leaves and returns (value (B,), distribution parameters...).
    """

    first = 1

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.memory = None
        self.policy = PolicyNetwork(spec, model, rng)
        self.critic = StateValue(spec, model, rng)
        self.auxiliary = ScalarLinear(self.policy.torso.out_features, 1.0, rng)

    @property
    def head(self) -> Any:
        return self.policy.head

    def of_rows(self, batch):
        """The outputs for the rows of a batch."""
        return self.construct(batch["obs"])

    def policy_and_auxiliary(self, obs):
        """The parameters of the distribution, and the value (B,) by the policy's features."""
        features = self.policy.torso(self.policy.encoder(obs))
        return self.policy.params(features, obs), self.auxiliary(features)
