"""Mixers: they compute the value of a team from the values of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import STATE
from minding.engine.process.runtime import nn, ops
from minding.policies.networks.encoder import ObsEncoder
from minding.policies.networks.layers import MLP, Linear, ScalarLinear


class MonotonicMixer(nn.Cell):
    """The value of a team, which never falls when an agent's value rises (Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485, section 4.1).

        Q_tot = |W_2(s)|^T elu(|W_1(s)|^T q + b_1(s)) + V(s)

    The weights are outputs of hypernetworks, whose input is the state s. W_1 and W_2 each have a hypernetwork with one
    hidden layer, b_1 has a linear layer, and V has a hypernetwork with one hidden layer of E units.

    Args:
      spec: description of the environment, with several agents and their global state.
      model: the `model` part of the policy's configuration: `mixer_dim` is E.
      rng: random generator for the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        team, size, hidden = spec["agents"], model.mixer_dim, [model.hypernet_dim]
        self.shape = (len(team["names"]), size)
        self.encoder = ObsEncoder(team["state"], model, rng, f"obs.{STATE}")
        state = self.encoder.out_features
        self.hidden = nn.CellList([MLP(state, layers, "relu", None, rng) for layers in (hidden, hidden, [size])])
        self.weight1 = Linear(hidden[0], self.shape[0] * size, None, rng)
        self.bias1 = Linear(state, size, None, rng)
        self.weight2 = Linear(hidden[0], size, None, rng)
        self.bias2 = ScalarLinear(size, None, rng)
        self.elu = ops.Elu()
        self.fused: ops.Primitive | None = None

    def construct(self, q, state):
        """Values (B,) for the agents' values (B, M) and the leaves of the state, (B, ...) each."""
        state = self.encoder(state)
        agents, size = self.shape
        weight1, weight2 = self.weight1(self.hidden[0](state)), self.weight2(self.hidden[1](state))
        bias1, bias2 = self.bias1(state), self.bias2(self.hidden[2](state))
        if self.fused is not None:
            return self.fused(q, weight1, bias1, weight2, bias2)
        each = ops.ExpandDims()(q, -1) * ops.Abs()(weight1).reshape((-1, agents, size))
        return ops.ReduceSum()(self.elu(ops.ReduceSum()(each, 1) + bias1) * ops.Abs()(weight2), -1) + bias2
