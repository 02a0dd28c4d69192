"""The network of parametrised actions: the parameters of all choices, and the value of each choice with them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import number_owners
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_networks
from minding.policies.networks.actor_critic import Decision, DeterministicActor
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear, host_of


class ChoiceValues(nn.Cell):
    """Q(s, k, x) of all choices k: float32 (B, n) from parameters x (B, A) and observation leaves.

    With ``model.multi_pass``, the value of a choice is computed with the parameters of all other choices set to 0
    (Bester et al., 2019, https://arxiv.org/abs/1905.04388, section 4), in one pass over n B rows.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        (self.count,), size = spec["action"]["nvec"], len(spec["action"]["low"])
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features + size, model, None, rng)
        self.values = Linear(self.torso.out_features, self.count, None, rng)
        self.owned: Any = None
        if model["multi_pass"]:
            owners = np.array(number_owners(spec["env_action"]))
            self.owned = ms.Tensor((owners == np.arange(self.count)[:, None, None]).astype(np.float32))
            self.own = ms.Tensor(np.eye(self.count, dtype=np.float32)[:, None])
            self.every = ms.Tensor(np.ones((self.count, 1, 1), np.float32))

    def construct(self, numbers, obs):
        features = self.encoder(obs)
        if self.owned is None:
            return self.torso.into(self.values, ops.Concat(-1)((features, numbers)))
        joined = ops.Concat(-1)((features * self.every, numbers * self.owned))
        values = self.torso.into(self.values, ops.Reshape()(joined, (-1, joined.shape[-1])))
        values = ops.Reshape()(values, (self.count, -1, self.count)) * self.own
        return ops.Transpose()(ops.ReduceSum()(values, -1), (1, 0))

    def host(self) -> numpy_networks.ChoiceValues:
        return numpy_networks.ChoiceValues(*host_of((self.encoder, self.torso, self.values, self.owned)))


class ParametrisedNetwork(Composed, compositions.ParametrisedNetwork):
    """An actor, from observation leaves to the parameters x of all choices, float32 (B, A) in [-1, 1], and a critic.

    Returns (values (B, n), x). Values of choices that the observation's mask forbids are `ILLEGAL`.
    """

    shared_outputs = ()
    memory_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        numbers = {**spec, "action": {"kind": "box", "shape": [len(spec["action"]["low"])]}}
        self.actor = DeterministicActor(numbers, model, rng)
        self.critic = ChoiceValues(spec, model, rng)
        self.mask = action_mask(spec["observation"])
