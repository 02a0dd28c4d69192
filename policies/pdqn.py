"""P-DQN: Q-learning over choices, each with parameters that an actor computes; multi-pass (MP-DQN) as a switch.

Xiong et al., 2018, https://arxiv.org/abs/1810.06394, eq. 4.2 and algorithm 1; multi-pass: Bester et al., 2019,
https://arxiv.org/abs/1905.04388, section 4. An action is a choice k with parameters x, the numbers of all Boxes:

    y = R + gamma^j (1 - terminated) max_k Q_target(s', k, x_target(s'))
    L_Q = mean[ 1/2 (Q(s, k, x) - y)^2 ]
    L_x = -mean[ sum_k Q(s, k, x(s)) ]         (over legal k, with the updated critic; then both targets are updated)

Multi-pass computes Q(s, k, .) with the parameters of all other choices set to 0. Otherwise a value depends on all
parameters, and L_x changes those of a choice also for the sake of the others.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import number_owners
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_networks
from minding.policies.acting.actors import Network, ParametrisedActor
from minding.policies.acting.sampling import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.families.critics_first import CriticsFirst
from minding.policies.learning.optim import Group
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import Decision, DeterministicActor
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear, host_of
from minding.policies.ops import primitives
from minding.policies.ops.values import chosen_value, half_square, one_step
from minding.policies.settings.replayed_critics import PDQNSettings


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


class PDQNCell(CriticsFirst):
    """Root cell: see `CriticsFirst`; every step updates everything."""

    def __init__(self, net: ParametrisedNetwork, target: ParametrisedNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, net.critic)
        self.target = target
        self.optimize(actor=Group.of(net.actor, learn), critics=Group.of(net.critic, learn))
        self.move_net = SoftTarget(net.actor, target.actor, self.optim.block("actor"))
        self.move_critics = SoftTarget(net.critic, target.critic, self.optim.block("critics"))

    def prepare(self, batch):
        batch["numbers"], batch["choice"] = batch["action"][:, 1:], ops.Cast()(batch["action"][:, 0], ms.int32)
        return batch

    def td_target(self, batch):
        return one_step(batch, primitives.largest(self.target(batch["next_obs"])[0]))

    def loss_of_critics(self, batch):
        q = chosen_value(self.critics(batch["numbers"], batch["obs"]), batch["choice"])
        loss = primitives.mean(half_square(q - batch["target"]))
        return loss, {"critic_loss": loss, "q_value": primitives.mean(q)}

    def loss_of_actor(self, batch):
        obs = batch["obs"]
        values = self.critics(self.net.actor(obs)[0], obs)
        if self.net.mask is not None:
            values = values * ops.Cast()(obs[self.net.mask.place], ms.float32)
        loss = -primitives.mean(ops.ReduceSum()(values, -1))
        return loss, {"actor_loss": loss}

    def follow_actor(self, batch, actor, norms):
        return self.move_net(batch["tau"], norms["actor"]), self.move_critics(batch["tau"], norms["actor"])


class PDQN(BasePolicy):
    """Parametrised deep Q-network for actions of one choice and numbers in [-1, 1]."""

    cfg: PDQNSettings
    name = "pdqn"
    network_class = ParametrisedNetwork
    sequences = False

    def make_root(self, net: ParametrisedNetwork, rng: np.random.Generator) -> PDQNCell:
        target = self.make_network(rng)
        equalize(net, target)
        return PDQNCell(net, target, self.cfg.learn)

    def make_actor(self, network: Network, rng: np.random.Generator) -> ParametrisedActor:
        noise = make_noise(self.cfg.collect.noise, len(self.spec["action"]["low"]), self.name)
        return ParametrisedActor(self.name, network, self.spec, rng, noise)
