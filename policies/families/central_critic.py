"""Policies of agents that act by their own observations, with values that see the state of the whole environment."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agent_axis import ALIVE, CENTRAL, IDENTITY, STATE
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.process.runtime import assign, ms, ops
from minding.engine.types import Array
from minding.policies.acting import compositions
from minding.policies.acting.actors import Network
from minding.policies.acting.team_actors import CENTRAL_PARTS, CentralActor
from minding.policies.families.actor_critic import ActorCriticPolicy, standardized
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import PolicyNetwork, StochasticNetwork
from minding.policies.networks.encoder import ObsEncoder, make_encoder
from minding.policies.networks.heads import action_mask, make_action_head
from minding.policies.networks.layers import MLP, Composed, ScalarLinear
from minding.policies.networks.recurrent import make_memory
from minding.policies.networks.team_networks import AgentActors, of_agent
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import huber

_SMALLEST_DEVIATION = 1e-2


class PopArt(Composed, compositions.PopArt):
    """A linear value head with the moments of the returns (van Hasselt et al., 2016, https://arxiv.org/abs/1602.07714,
    section 2): v = (w^T x + b) sigma + mu.

    The moments are weighted means over the updates; each update has `decay` times the weight of the next one. Before
    the first update, mu is 0 and sigma 1.
    """

    def __init__(self, in_features: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = ScalarLinear(in_features, 1.0, rng)
        self.mean, self.deviation = _number("mean", 0.0), _number("deviation", 1.0)
        self.variance, self.updates = _number("variance", 1.0), _number("updates", 0.0)

    def normalized(self, value):
        """The inverse of `raw`."""
        return (value - self.mean) / self.deviation

    def update(self, returns: Array, decay: float) -> None:
        """Adds returns ``(B,)``, B > 0, to the moments, before they are learned from. The values in units of the
        returns stay the same, because the head's weights are rescaled to the new moments. Only the first update leaves
        the weights unchanged, so that a head that has learned nothing starts at the mean."""
        mean, variance, deviation, updates = (
            float(p.asnumpy()[0]) for p in (self.mean, self.variance, self.deviation, self.updates)
        )
        # This share gives the moments from before the first update no weight.
        share = (1.0 - decay) / (1.0 - decay ** (updates + 1.0))
        seen, spread = float(returns.mean(dtype=np.float64)), float(returns.var(dtype=np.float64))
        new_mean = mean + share * (seen - mean)
        new_variance = (1.0 - share) * (variance + share * (seen - mean) ** 2) + share * spread
        new_deviation = max(np.sqrt(new_variance), _SMALLEST_DEVIATION)
        if updates:
            weight, bias = self.linear.weight, self.linear.bias
            assign(weight, (weight.asnumpy() * (deviation / new_deviation)).astype(np.float32))
            assign(bias, ((bias.asnumpy() * deviation + (mean - new_mean)) / new_deviation).astype(np.float32))
        moments = (self.mean, new_mean), (self.variance, new_variance), (self.deviation, new_deviation)
        for parameter, number in (*moments, (self.updates, updates + 1.0)):
            assign(parameter, np.full(1, number, np.float32))


def _number(name: str, start: float) -> ms.Parameter:
    return ms.Parameter(ms.Tensor(np.full(1, start, np.float32)), name=name, requires_grad=False)


class CentralValue(Composed, compositions.CentralValue):
    """Value of the environment's state for each agent, float32 (B,), from the features of the agent's own observation,
    the state, and the agent number.

    For an absent agent, the input is only the agent number (Yu et al., 2022, https://arxiv.org/abs/2103.01955,
    section 5.4, "death masking").
    """

    def __init__(self, spec: Mapping[str, Any], features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        agents = len(spec["agents"]["names"])
        self.state = ObsEncoder(spec["agents"]["state"], model, rng, f"{CENTRAL}.{STATE}")
        size = features + self.state.out_features + agents
        self.torso = MLP.of(size, model, math.sqrt(2), rng)
        self.value = PopArt(self.torso.out_features, rng)
        self.agents = ms.Tensor(np.eye(agents, dtype=np.float32))


class CentralActorCritic(StochasticNetwork, compositions.CentralActorCritic):
    """An actor of one agent and a `CentralValue`, which share the encoder of the agent's observation and, if
    configured, the memory after it.

    Takes the leaves of the observation, then the leaves of `central_view` if the value is needed and, with memory, the
    memory rows, float32 (B, S), as the last leaf. Returns (distribution parameters..., value (B,) in units of the
    returns, new memory rows).
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.num_leaves = len(observation_leaves(spec["observation"]))
        self.encoder = make_encoder(spec["observation"], model, rng)
        features = self.encoder.out_features
        self.memory = make_memory(model, features, rng)
        if self.memory is not None:
            features = self.memory.out_features
        self.actor = MLP.of(features, model, math.sqrt(2), rng)
        self.head = make_action_head(spec["action"], self.actor.out_features, rng, log_std=model.log_std)
        self.critic = CentralValue(spec, features, model, rng)
        self.mask = action_mask(spec["observation"])

    def of_rows(self, batch):
        """The normalized values and the parameters of the distribution for the rows of a batch, see `features_of_rows`,
        which also contain `central`."""
        features = self.features_of_rows(batch)
        return self.critic(features, batch["central"]), *self.params(self.actor(features), batch["obs"])


class DrawingAgentActors(AgentActors):
    """`AgentActors` that return the parameters of a distribution over actions of any kind."""

    box_class = PolicyNetwork


class CentralAgentActors(Composed, compositions.CentralAgentActors):
    """A separate actor for each agent, and one `CentralValue` with an encoder of its own.

    Takes the leaves of the observation, including `IDENTITY`, then the leaves of `central_view` if the value is needed.
    Returns (distribution parameters..., value (B,) in units of the returns); each parameter is (B, A).
    """

    shared_outputs = ()
    memory_size = 0

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.actors = DrawingAgentActors(spec, model, rng)
        self.members = tuple(self.actors.nets)
        self.decision = self.actors.decision
        self.place, self.num_leaves = self.actors.place, self.actors.num_leaves + 1
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.critic = CentralValue(spec, self.encoder.out_features, model, rng)

    @property
    def head(self) -> Any:
        """The head of the first actor; those of all have the same distribution."""
        return self.members[0].head

    def log_probs(self, leaves, action):
        """Log-probabilities of the actions (B, M, ...) of all agents, float32 (B, M), by the leaves of their
        observations without `IDENTITY`, (B, M, ...) each."""
        made: Any = ()
        for m in range(len(self.members)):
            own = of_agent((*leaves, action), m)
            params = self.members[m](own[:-1])
            made = (*made, self.members[m].head.log_prob_entropy(params, own[-1])[0])
        return ops.Stack(1)(made)


_ALIVE = CENTRAL_PARTS.index(ALIVE)


def in_units_of_head(batch, head):
    """The batch with returns and recorded values in the units of a `PopArt` head, and with `acting`, float32 (B,): 0
    for rows from which no actor learns."""
    batch["return"] = head.normalized(batch["return"])
    batch["value"] = (batch["value"] - batch["recorded_mean"]) / batch["recorded_deviation"]
    acting = primitives.item(batch[CENTRAL], _ALIVE)
    if "valid" in batch:
        acting = acting * batch["valid"]
    batch["acting"] = acting
    return batch


def value_loss(value, batch, cfg):
    """The Huber loss of normalized values (B,), a scalar (Yu et al., 2022, https://arxiv.org/abs/2103.01955, appendix
    A), by the old `value`, `return` and, if some rows do not count, `valid` of the batch, float32 (B,) each."""
    clip, delta = cfg["clip_ratio"], cfg["huber_delta"]
    error = huber((value - batch["return"]) / delta)
    if cfg["value_clip"]:
        clipped = batch["value"] + ops.clamp(value - batch["value"], -clip, clip)
        error = ops.maximum(error, huber((clipped - batch["return"]) / delta))
    return delta * delta * row_mean(error, batch)


class CentralCriticPolicy(ActorCriticPolicy):
    """Learns from the rows of single agents, each with the state of the whole environment.

    The network of a subclass has its `CentralValue` as the attribute ``critic``.
    """

    scalar_fields = ("log_prob", "value", "advantage", "return")
    host_fields = ("advantage",)

    def make_actor(self, network: Network, rng: np.random.Generator) -> CentralActor:
        return CentralActor(self.name, network, self.acting_spec, rng, self.net.head.distribution, self.record_fields)

    @property
    def acting_spec(self) -> Any:
        """The description of the environment for actors."""
        return self.spec

    @property
    def row_fields(self) -> dict[str, Field]:
        leaves = observation_leaves(self.spec["agents"]["state"])
        state = {leaf_name(f"{CENTRAL}.{STATE}", leaf): leaf.field for leaf in leaves}
        # The fields have the order of `central_view`.
        central = {f"{CENTRAL}.{IDENTITY}": Field((), "int32"), f"{CENTRAL}.{ALIVE}": Field(), **state}
        return {**self.obs_fields("obs"), **central, **super().row_fields}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, steps, value = self.cfg.learn, len(batch.index), self.net.critic.value
        before_first = not value.updates.asnumpy()[0]
        if learn.value_norm:
            self._update_moments(batch)
        # The first update of the moments keeps the head's weights, and later ones keep its values in units of the
        # returns, so that the old normalized values of rows equal the head's values before the first gradient step.
        mean, deviation = (0.0, 1.0) if before_first else (float(p.asnumpy()[0]) for p in (value.mean, value.deviation))
        recorded = {"recorded_mean": mean, "recorded_deviation": deviation}
        advantage = self.read("advantage", batch).reshape(steps, -1)
        if learn.normalize_advantage:
            advantage = standardized(advantage, self._learned_by_actor(batch).reshape(steps, -1))
        return Inputs({"advantage": advantage}, {**self.constants(progress), **recorded, **self.all_rows(batch)})

    def observed(self, batch: IndexedBatch) -> Array:
        return np.unique(batch.index[self._learned_by_actor(batch)])

    def _learned_by_actor(self, batch: IndexedBatch) -> Array:
        """The rows from which the actor learns: bool, shaped like the index."""
        alive: Array = self.read(f"{CENTRAL}.{ALIVE}", batch) > 0
        counted = self.counted(batch)
        return alive if counted is None else alive & counted

    def _update_moments(self, batch: IndexedBatch) -> None:
        """Adds the returns of a batch, each once, to the moments of the value head."""
        counted = self.counted(batch)
        rows = np.unique(batch.index if counted is None else batch.index[counted])
        if len(rows):
            returns = batch.layout.read(batch.tables.host, "return", rows)
            self.net.critic.value.update(returns, self.cfg.learn.value_norm_decay)
