"""The network of AlphaZero: logits of a policy and the value of a position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.acting import numpy_layers as numpy_forms
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, Linear, TanhLinear
from minding.policies.networks.masks import action_mask
from minding.policies.networks.residual import ResidualTower


class PolicyValue(nn.Cell):
    """Takes the observation leaves; returns (logits (B, A), value (B,) in [-1, 1]).

    With ``model.net=mlp`` both heads follow the hidden layers. With ``residual`` the logits follow the convolutions,
    and the value follows hidden layers after them. Logits of actions that the observation's mask forbids are
    `ILLEGAL`.
    """

    memory_size = 0
    shared_outputs = ()
    decision = Decision(0, "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        space = spec["observation"]
        if model.net == "residual":
            self.encoder: Any = ResidualTower(space, model.channels, model.blocks, rng)
            shared: list[int] = []
            own = model.hidden
        else:
            self.encoder = make_encoder(space, model, rng)
            shared, own = model.hidden, []
        features = self.encoder.out_features
        self.torso = MLP(features, shared, model.activation, None, rng, model.norm)
        self.critic = MLP(self.torso.out_features, own, model.activation, None, rng, model.norm)
        self.policy = Linear(self.torso.out_features, spec["action"]["n"], 0.01, rng)
        self.value = TanhLinear(self.critic.out_features, 1, 0.01, rng)
        self.mask = action_mask(space)

    def construct(self, obs):
        features = self.torso(self.encoder(obs))
        logits, value = self.policy(features), self.value(self.critic(features))
        if self.mask is not None:
            logits = self.mask(logits, obs)
        return logits, ops.Reshape()(value, (-1,))

    def host(self) -> numpy_forms.PolicyValue:
        mask = None if self.mask is None else self.mask.host()
        heads = (self.policy.host(), self.critic.host(), self.value.host())
        return numpy_forms.PolicyValue(self.encoder.host(), self.torso.host(), heads, mask)
