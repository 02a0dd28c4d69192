"""Networks of centralized training with decentralized execution: actors see the own observation, values the state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import CENTRAL, STATE
from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_central as numpy_forms
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import ObsEncoder, make_encoder
from minding.policies.networks.heads import GaussianHead, make_action_head
from minding.policies.networks.layers import MLP
from minding.policies.networks.masks import action_mask
from minding.policies.networks.popart import PopArt
from minding.policies.networks.recurrent import make_memory
from minding.policies.ops import lean


class CentralValue(nn.Cell):
    """Value of the environment's state for each agent, float32 (B,), from the features of the agent's own observation,
    the state, and the agent number.

    For an absent agent, the input is only the agent number (Yu et al., 2022, https://arxiv.org/abs/2103.01955,
    section 5.4, "death masking").

    Args:
      spec: description of the environment, with several agents and their global state.
      features: number of features of an agent's observation.
      model: the `model` part of the policy's configuration.
      rng: random generator for the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        agents = len(spec["agents"]["names"])
        self.state = ObsEncoder(spec["agents"]["state"], model, rng, f"{CENTRAL}.{STATE}")
        size = features + self.state.out_features + agents
        self.torso = MLP.of(size, model, math.sqrt(2), rng)
        self.value = PopArt(self.torso.out_features, rng)
        self.agents = ms.Tensor(np.eye(agents, dtype=np.float32))

    def construct(self, features, leaves):
        """The normalized value, see `PopArt`, from features and the leaves of `central_view`."""
        there = ops.ExpandDims()(ops.Cast()(lean.item(leaves, 1), ms.float32), -1)
        who = ops.Gather()(self.agents, lean.item(leaves, 0), 0)
        seen = (features * there, self.state(leaves[2:]) * there, who)
        return self.value(self.torso(ops.Concat(-1)(seen)))

    def host(self) -> numpy_forms.CentralValue:
        return numpy_forms.CentralValue(self.state.host(), self.agents.shape[0], self.torso.host(), self.value.host())


class CentralActorCritic(nn.Cell):
    """An actor of one agent and a `CentralValue`, which share the encoder of the agent's observation and, if
    configured, the memory after it.

    Takes the leaves of the observation, then the leaves of `central_view` if the value is needed and, with memory, the
    memory rows, float32 (B, S), as the last leaf. Returns (distribution parameters..., value (B,) in units of the
    returns, new memory rows).

    Logits of actions that the observation's mask forbids are `ILLEGAL`.

    Args:
      spec: description of the environment, with several agents and their global state.
      model: the `model` part of the policy's configuration.
      rng: random generator for the initial weights.
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

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis."""
        return (1,) if isinstance(self.head, GaussianHead) else ()

    @property
    def decision(self) -> Decision:
        return Decision(0, "mean" if isinstance(self.head, GaussianHead) else "logits")

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an agent; 0 without memory."""
        return 0 if self.memory is None else self.memory.size

    def construct(self, leaves):
        own, central = leaves[: self.num_leaves], leaves[self.num_leaves :]
        if self.memory is None:
            return self.outputs(self.encoder(own), own, central)
        features, rows = self.memory(self.encoder(own), leaves[-1])
        return (*self.outputs(features, own, central[:-1]), rows)

    def outputs(self, features, own, central):
        params = self.params(features, own)
        if len(central) == 0:
            return params
        return (*params, self.critic.value.raw(self.critic(features, central)))

    def of_rows(self, batch):
        """The parameters of the distribution and the normalized values for the rows of a batch.

        Args:
          batch: by name: `obs` and `central`; with memory also `index`, `memory` and `begun`, see
            `ActorCritic.of_rows`.
        """
        features = self.encoder(batch["obs"])
        if self.memory is not None:
            rows = ops.Slice()(batch["memory"], (0, 0), (batch["index"].shape[1], self.memory.size))
            features = self.memory.unroll(features, rows, batch["begun"])
        return self.params(features, batch["obs"]), self.critic(features, batch["central"])

    def params(self, features, own):
        params = self.head(self.actor(features))
        return params if self.mask is None else (self.mask(params[0], own),)

    def host(self) -> numpy_forms.CentralActorCritic:
        memory = None if self.memory is None else self.memory.host()
        mask = None if self.mask is None else self.mask.host()
        heads = (self.actor.host(), self.head.host(), self.critic.host())
        return numpy_forms.CentralActorCritic(self.encoder.host(), memory, heads, mask, self.num_leaves)
