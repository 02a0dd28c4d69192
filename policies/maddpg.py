"""MADDPG: DDPG for several agents, each with its own networks; critics see the observations and actions of all agents.

Lowe et al., 2017, https://arxiv.org/abs/1706.02275, algorithm 1 and appendix; DDPG: Lillicrap et al., 2016,
https://arxiv.org/abs/1509.02971; the straight-through Gumbel-softmax: Jang et al., 2017,
https://arxiv.org/abs/1611.01144, section 2. MATD3 has N critics, and from TD3 (Fujimoto et al., 2018,
https://arxiv.org/abs/1802.09477, algorithm 1) delayed updates and the noise e: Ackermann et al., 2019,
https://arxiv.org/abs/1910.01465.

    y_m = R_m + gamma^k going_m min_i Q_target_m,i(o'_1..o'_M, a'_1..a'_M),   a'_j = pi_target_j(o'_j)
    L_Q = sum_m mean[ sum_i 1/2 (Q_m,i(o_1..o_M, a_1..a_M) - y_m)^2 ]
    L_pi = sum_m -mean[ Q_m,1(o_1..o_M, a_1.. pi_m(o_m) ..a_M) ] + w mean[ l_m^2 ]
    pi(o) = onehot(argmax(l + g)), with the gradient of softmax((l + g) / T)     (discrete: l logits, g Gumbel noise)
    pi_target(o) = clip(mu(o) + e, -1, 1),   e = clip(N(0, sigma), -c, c)        (continuous)

Each mean is over the rows in which agent m is present. `going` is 0 after a true end, and where m has left if each
agent has its own reward. A reward of the whole team continues without m, and so does Q_m. For the critics, the actions
of absent agents are 0.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.acting.actors import Actor, Network, NoisyActor, SamplingActor
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.acting.sampling import Categorical, make_noise
from minding.policies.families.critics_first import delayed
from minding.policies.families.team_critics import TeamCritics, TeamCriticsPolicy, agent_means, total
from minding.policies.learning.steps import Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.layers import Clip
from minding.policies.networks.team_networks import AgentActors, AgentCritics
from minding.policies.ops import primitives
from minding.policies.settings.teams import MATD3Settings


class MADDPGCell(TeamCritics):
    """Root cell: that of `TeamCritics`, and targets of the actors."""

    def __init__(
        self,
        actors: tuple[AgentActors, AgentActors],
        critics: tuple[AgentCritics, AgentCritics],
        learn: Mapping[str, Any],
        spec: Mapping[str, Any],
    ) -> None:
        super().__init__(actors[0], critics, learn, spec)
        self.target_net, self.logit_weight = actors[1], learn["logit_weight"]
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.limit_action = Clip(-1.0, 1.0)

    def next_actions(self, leaves, batch):
        output = primitives.item(self.target_net.of_all(leaves), 0)
        if "next_noise" not in batch:
            return output, 0.0
        if self.discrete:
            return self.drawn(output, batch["next_noise"]), 0.0
        return self.limit_action(output + batch["next_noise"]), 0.0

    def loss_of_actor(self, batch):
        decided, there = primitives.item(self.net.of_all(batch["own"]), 0), batch["alive"]
        own = self.drawn(decided, batch["noise"]) if self.discrete else decided
        q = self.critics.of_own_actions(batch["actions"], own, batch["own"], 1)
        parts = agent_means(-ops.Squeeze(0)(q), there)
        if self.discrete:
            squares = agent_means(mean_square(decided), there)
            weighted: Any = ()
            for value, square in zip(parts, squares):
                weighted = (*weighted, value, self.logit_weight * square)
            parts = weighted
        loss = total(parts)
        return loss, {"actor_loss": loss / self.agents}

    def follow_actor(self, batch, actor, norms):
        return self.move_net(batch["tau"], norms["actor"]), self.move_critics(batch["tau"], norms["actor"])


def mean_square(logits):
    """The mean square of the logits of legal actions: float32 (B, M, A) -> (B, M)."""
    x = ops.Reshape()(logits, (-1, logits.shape[-1]))
    legal = x > 0.5 * ILLEGAL
    square = ops.Square()(ops.Select()(legal, x, ops.ZerosLike()(x)))
    mean = ops.ReduceSum()(square, -1) / ops.ReduceSum()(ops.Cast()(legal, ms.float32), -1)
    return ops.Reshape()(mean, logits.shape[:-1])


class MADDPG(TeamCriticsPolicy):
    """Multi-agent deep deterministic policy gradient for Discrete actions and for Box actions in [-1, 1]."""

    cfg: MATD3Settings
    name = "maddpg"
    counts_steps = True

    @property
    def policy_delay(self) -> int:
        """Gradient steps of the critics per step of the actors and targets."""
        return self.cfg.learn.policy_delay

    def make_root(self, net: AgentActors, rng: np.random.Generator) -> MADDPGCell:
        target_net = self.make_network(rng)
        equalize(net, target_net)
        return MADDPGCell((net, target_net), self.make_critics(rng), self.cfg.learn, self.spec)

    def make_actor(self, network: Network, rng: np.random.Generator) -> Actor:
        spec = self.acting_spec
        if spec["action"]["kind"] == "discrete":
            return SamplingActor(self.name, network, spec, rng, Categorical())
        noise = make_noise(self.cfg.collect.noise, self.action_size, self.name)
        return NoisyActor(self.name, network, spec, rng, noise)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        steps: dict[str, Array] = {}
        if self.root.discrete:
            steps = self.gumbel_noise(batch)
        elif "target_noise" in learn:
            noise = self.learn_rng.standard_normal(self.noise_shape(batch), dtype=np.float32)
            limit = np.float32(learn.noise_clip)
            steps = {"next_noise": np.clip(np.float32(learn.target_noise) * noise, -limit, limit)}
        own, constants, due = delayed(self.learn_steps, count, self.policy_delay, float(learn.tau))
        return Inputs(
            {**steps, **own}, {**self.root.optim.rates(progress), **constants}, dict.fromkeys(self.root.of_actor, due)
        )
