"""MASAC: SAC for several agents, each with its own networks and temperature; critics see all observations and actions.

SAC: Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, algorithm 1; the critics of all agents: Lowe et al., 2017,
https://arxiv.org/abs/1706.02275, algorithm 1; exact entropies of discrete actions: Christodoulou, 2019,
https://arxiv.org/abs/1910.07207; the straight-through Gumbel-softmax: Jang et al., 2017,
https://arxiv.org/abs/1611.01144, section 2.

    y_m = R_m + gamma^k going_m [ min_i Q_target_m,i(o'_1..o'_M, a'_1..a'_M) + alpha_m H_m(o'_m) ],   a'_j ~ pi_j(o'_j)
    L_Q = sum_m mean[ sum_i 1/2 (Q_m,i(o_1..o_M, a_1..a_M) - y_m)^2 ]
    L_pi = sum_m -mean[ min_i Q_m,i(o_1..o_M, a_1.. a ..a_M) + alpha_m H_m(o_m) ],   a ~ pi_m(o_m)
    L_alpha = sum_m log(alpha_m) (mean[ H_m(o_m) ] - H_target_m)
    H_m(o) = -log pi_m(a|o) of the drawn action (continuous), -sum_a pi_m(a|o) log pi_m(a|o) (discrete)

Continuous actions are drawn reparametrised, discrete ones as onehot(argmax(l + g)) with the gradient of
softmax((l + g) / T), where l are logits and g is Gumbel noise. Absent agents count as in MADDPG; they have no entropy.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.acting.actors import Network, SamplingActor
from minding.policies.acting.sampling import Categorical, SquashedGaussian
from minding.policies.families.team_critics import TeamCritics, TeamCriticsPolicy, agent_means, total
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.networks.team_networks import AgentActors, AgentCritics, SoftAgentActors
from minding.policies.ops import distributions, primitives
from minding.policies.ops.values import smaller
from minding.policies.settings.teams import MASACSettings


class MASACCell(TeamCritics):
    """Root cell: that of `TeamCritics`, and the temperatures of the agents.

    Args:
      target_entropy: the entropy in nats at which continuous actions aim.
    """

    metrics = (*TeamCritics.metrics, "alpha_loss", "alpha", "entropy")
    of_actor = ("actor_loss", "alpha_loss", "alpha", "entropy", "grad_norm_actors")

    def __init__(
        self,
        actors: AgentActors,
        critics: tuple[AgentCritics, AgentCritics],
        learn: Mapping[str, Any],
        spec: Mapping[str, Any],
        target_entropy: float,
    ) -> None:
        super().__init__(actors, critics, learn, spec)
        self.squashed = distributions.SquashedGaussian()
        self.target_entropy, self.share = target_entropy, float(learn["target_entropy_share"])
        self.mask = actors.nets[0].mask if self.discrete else None
        self.log_count = ms.Tensor(np.float32(math.log(spec["action"].get("n", 1))))

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        start = np.full(self.agents, math.log(learn["alpha"]), np.float32)
        self.log_alpha = ms.Parameter(ms.Tensor(start), name="log_alpha")
        if not learn["auto_alpha"]:
            return {}
        return {"alpha": dataclasses.replace(Group.of(self.net, learn), params=[self.log_alpha])}

    def next_actions(self, leaves, batch):
        action, entropy = self.action_and_entropy(self.net.of_all(leaves), batch["next_noise"])
        return action, ops.Exp()(self.log_alpha) * entropy

    def loss_of_actor(self, batch):
        there, log_alpha = batch["alive"], ops.stop_gradient(self.log_alpha)
        action, entropy = self.action_and_entropy(self.net.of_all(batch["own"]), batch["noise"])
        alpha, count = ops.Exp()(log_alpha), self.critics.n_critics
        q = ops.Unstack()(self.critics.of_own_actions(batch["actions"], action, batch["own"], count))
        value = primitives.item(q, 0)
        for k in range(1, count):
            value = smaller(value, primitives.item(q, k))
        loss = total(agent_means(-(value + alpha * entropy), there))
        entropy = ops.stop_gradient(entropy)
        excess = primitives.stacked(agent_means(entropy - self.wanted(batch["own"]), there))
        metrics = {
            "actor_loss": loss / self.agents,
            "alpha_loss": primitives.mean(log_alpha * excess),
            "alpha": primitives.mean(alpha),
            "entropy": total(agent_means(entropy, there)) / self.agents,
            "excess": excess,
        }
        return loss, metrics

    def beside_actor(self, batch, actor):
        # The gradient of a temperature is d L_alpha / d log(alpha).
        return actor, {"alpha": (actor["excess"],)}

    def action_and_entropy(self, outputs, noise):
        """Drawn actions, float32 (B, M, A), and H, float32 (B, M), from the actors' outputs, (B, M, A) each, and noise
        (B, M, A): Gumbel noise for logits, else normal noise."""
        output = primitives.item(outputs, 0)
        shape = output.shape
        rows = ops.Reshape()(output, (-1, shape[-1]))
        if self.discrete:
            log_p = ops.LogSoftmax(-1)(rows)
            entropy = -ops.ReduceSum()(ops.Exp()(log_p) * log_p, -1)
            return self.drawn(output, noise), ops.Reshape()(entropy, shape[:-1])
        log_std = ops.Reshape()(primitives.item(outputs, 1), rows.shape)
        action, log_prob = self.squashed(rows, log_std, ops.Reshape()(noise, rows.shape))
        return ops.Reshape()(action, shape), ops.Reshape()(-log_prob, shape[:-1])

    def wanted(self, leaves):
        """H_target: a Python number, a scalar, or float32 (B, M) where actions can be illegal."""
        if not self.discrete:
            return self.target_entropy
        if self.mask is None:
            return self.share * self.log_count
        legal = ops.Cast()(primitives.item(leaves, self.mask.place), ms.float32)
        return self.share * ops.Log()(ops.ReduceSum()(legal, -1))


class MASAC(TeamCriticsPolicy):
    """Multi-agent soft actor-critic for Discrete actions and for Box actions in [-1, 1]."""

    cfg: MASACSettings
    name = "masac"
    network_class = SoftAgentActors

    def make_root(self, net: SoftAgentActors, rng: np.random.Generator) -> MASACCell:
        entropy = self.cfg.learn.target_entropy
        wanted = float(-self.action_size) if entropy is None else float(entropy)
        return MASACCell(net, self.make_critics(rng), self.cfg.learn, self.spec, wanted)

    def make_actor(self, network: Network, rng: np.random.Generator) -> SamplingActor:
        spec = self.acting_spec
        drawn = Categorical() if spec["action"]["kind"] == "discrete" else SquashedGaussian()
        return SamplingActor(self.name, network, spec, rng, drawn)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        if self.root.discrete:
            return Inputs(self.gumbel_noise(batch), self.constants(progress))
        noise = self.learn_rng.standard_normal((2, *self.noise_shape(batch)), dtype=np.float32)
        return Inputs({"noise": noise[0], "next_noise": noise[1]}, self.constants(progress))
