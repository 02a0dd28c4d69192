"""MADDPG: DDPG for several agents, each with its own networks; critics see the observations and actions of all agents.

Lowe et al., 2017, https://arxiv.org/abs/1706.02275, algorithm 1 and appendix; DDPG: Lillicrap et al., 2016,
https://arxiv.org/abs/1509.02971; the straight-through Gumbel-softmax: Jang et al., 2017,
https://arxiv.org/abs/1611.01144, section 2.

    y_m = R_m + gamma^k going_m Q_target_m(o'_1..o'_M, a'_1..a'_M),   a'_i = pi_target_i(o'_i)
    L_Q = sum_m mean[ 1/2 (Q_m(o_1..o_M, a_1..a_M) - y_m)^2 ]
    L_pi = sum_m -mean[ Q_m(o_1..o_M, a_1.. pi_m(o_m) ..a_M) ] + w mean[ l_m^2 ]
    pi(o) = onehot(argmax(l + g)), with the gradient of softmax((l + g) / T)     (discrete: l logits, g Gumbel noise)

Each mean is over the rows in which agent m is present. `going` is 0 after a true end, and where m has left if each
agent has its own reward. A reward of the whole team continues without m, and so does Q_m. For the critics, the actions
of absent agents are 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.acting.actors import Actor, Network, NoisyActor, SamplingActor
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.acting.sampling import Categorical, make_noise
from minding.policies.families.team import TeamPolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.team_networks import AgentActors, AgentCritics, team_parts, team_places
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.primitives import after
from minding.policies.ops.values import half_square


class MADDPGCell(GradientStep):
    """Root cell: actors, critics, the targets of both, and optimizer.

    Args:
      actors, critics: the online networks and their targets.
      learn: the configuration `policy.learn`.
      spec: description of the environment.
    """

    metrics = ("critic_loss", "actor_loss", "q_value", "grad_norm_actors", "grad_norm_critics")

    def __init__(
        self,
        actors: tuple[AgentActors, AgentActors],
        critics: tuple[AgentCritics, AgentCritics],
        learn: Mapping[str, Any],
        spec: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.net, self.target_net = actors
        self.critics, self.target_critics = critics
        self.agents, self.team_reward = len(spec["agents"]["names"]), bool(spec["agents"]["team_reward"])
        self.places = tuple(team_places(spec))
        self.discrete = spec["action"]["kind"] == "discrete"
        self.action_table = ms.Tensor(np.eye(spec["action"]["n"], dtype=np.float32)) if self.discrete else None
        self.temperature, self.logit_weight = learn["temperature"], learn["logit_weight"]
        bound = {"max_grad_norm": learn["grad_norm"]}
        self.optim = Optimizer(
            actors=Group.of(self.net, learn, **bound), critics=Group.of(self.critics, learn, **bound)
        )
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actors"))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actors, "actors")

    def loss_of_critics(self, batch):
        q, counted = self.critics(batch["actions"], batch["own"]), batch["counted"]
        loss = total(agent_means(half_square(q - batch["target"]), counted))
        value = total(agent_means(ops.stop_gradient(q), counted))
        return loss, {"critic_loss": loss / self.agents, "q_value": value / self.agents}

    def loss_of_actors(self, batch):
        decided, there = self.net.of_all(batch["own"]), batch["alive"]
        own = self.chosen(decided, batch, "noise")
        parts = agent_means(-self.critics.of_own_actions(batch["actions"], own, batch["own"]), there)
        if self.discrete:
            squares = agent_means(mean_square(decided), there)
            weighted: Any = ()
            for q, square in zip(parts, squares):
                weighted = (*weighted, q, self.logit_weight * square)
            parts = weighted
        loss = total(parts)
        return loss, {"actor_loss": loss / self.agents}

    def construct(self, batch):
        now = team_parts(batch["obs"], self.places)
        rows = {
            "own": now["own"],
            "alive": now["alive"],
            # With a reward of the whole team, every agent has a return, even if it is absent.
            "counted": ops.OnesLike()(now["alive"]) if self.team_reward else now["alive"],
            "actions": self.taken(batch["action"], now["alive"]),
            "target": self.td_target(batch),
        }
        if self.discrete:
            rows["noise"] = batch["noise"]
        # Critics
        (_, metrics), grads = self.critic_gradient(rows)
        critic_norm = self.optim({"critics": grads}, batch, (metrics, grads))["critics"]
        # Actors
        rows["own"] = after(rows["own"], critic_norm)
        (_, of_actors), grads = self.actor_gradient(rows)
        actor_norm = self.optim({"actors": grads}, batch, (of_actors, grads))["actors"]
        # Targets
        moved = (self.move_net(batch["tau"], actor_norm), self.move_critics(batch["tau"], actor_norm))
        metrics["grad_norm_actors"], metrics["grad_norm_critics"] = actor_norm, critic_norm
        # A caller that waits for a metric waits for the whole step.
        metrics["actor_loss"] = after(of_actors["actor_loss"], moved)
        return metrics

    def td_target(self, batch):
        """The target of the critics, y: float32 (B, M)."""
        then = team_parts(batch["next_obs"], self.places)
        action = self.chosen(self.target_net.of_all(then["own"]), batch, "next_noise")
        next_q = self.target_critics(action * ops.ExpandDims()(then["alive"], -1), then["own"])
        going, reward = ops.ExpandDims()(batch["discount"] * (1.0 - batch["terminated"]), -1), batch["reward"]
        if self.team_reward:
            return ops.ExpandDims()(reward, -1) + going * next_q
        return reward + going * then["alive"] * next_q

    def chosen(self, output, batch, noise):
        """The actions (B, M, A) from the agents' outputs; for logits, drawn one-hots through which gradients flow."""
        if not self.discrete:
            return output
        scores = output + batch[noise]
        soft = softmax(scores / self.temperature)
        hard = ops.Gather()(self.action_table, ops.Argmax(-1)(scores), 0)
        return soft + ops.stop_gradient(hard - soft)

    def taken(self, action, alive):
        """The recorded actions, float32 (B, M, A); 0 for absent agents."""
        if self.discrete:
            action = ops.Gather()(self.action_table, action, 0)
        return ops.Reshape()(action, (action.shape[0], self.agents, -1)) * ops.ExpandDims()(alive, -1)


def softmax(x):
    """Softmax over the last axis of x (B, M, A), computed on rows (B M, A), whose sums do not depend on the number of
    axes."""
    return ops.Reshape()(ops.Softmax(-1)(ops.Reshape()(x, (-1, x.shape[-1]))), x.shape)


def mean_square(logits):
    """The mean square of the logits of legal actions: float32 (B, M, A) -> (B, M)."""
    x = ops.Reshape()(logits, (-1, logits.shape[-1]))
    legal = x > 0.5 * ILLEGAL
    square = ops.Square()(ops.Select()(legal, x, ops.ZerosLike()(x)))
    mean = ops.ReduceSum()(square, -1) / ops.ReduceSum()(ops.Cast()(legal, ms.float32), -1)
    return ops.Reshape()(mean, logits.shape[:-1])


def agent_means(x, counted):
    """The mean of each agent over the rows that count for it: a tuple of M scalars.

    Args:
      x: float32 (B, M).
      counted: float32 (B, M), 0 for rows that do not count.
    """
    made: Any = ()
    for m in range(x.shape[1]):
        made = (*made, row_mean(column(x, m), {"valid": column(counted, m)}))
    return made


def column(x, m):
    return ops.Squeeze(1)(ops.Slice()(x, (0, m), (x.shape[0], 1)))


def total(scalars):
    """The sum of a tuple of scalars, added in order."""
    made = 0.0
    for x in scalars:
        made = made + x
    return made


class MADDPG(TeamPolicy):
    """Multi-agent deep deterministic policy gradient for Discrete actions and for Box actions in [-1, 1]."""

    name = "maddpg"
    network_class = AgentActors

    @property
    def action_size(self) -> int:
        """Number of values in an action as input of the critics."""
        action = self.spec["action"]
        return int(action["n"]) if action["kind"] == "discrete" else math.prod(action["shape"])

    def make_root(self, net: AgentActors, rng: np.random.Generator) -> MADDPGCell:
        model, target_net = self.cfg.model, self.make_network(rng)
        critics, target_critics = (AgentCritics(self.spec, model, rng, model.read("central", bool)) for _ in range(2))
        root = MADDPGCell((net, target_net), (critics, target_critics), self.cfg.learn, self.spec)
        equalize(net, target_net)
        equalize(critics, target_critics)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> Actor:
        spec = self.acting_spec
        if spec["action"]["kind"] == "discrete":
            return SamplingActor(self.name, network, spec, rng, Categorical())
        noise = make_noise(self.cfg.collect.noise, self.action_size, self.name)
        return NoisyActor(self.name, network, spec, rng, noise)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**super().row_fields, "discount": Field(default=self.cfg.learn.gamma)}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        if self.spec["action"]["kind"] != "discrete":
            return super().inputs(batch, progress)
        steps = len(batch.index)
        shape = (2, steps, batch.index.size // steps, self.agents, self.action_size)
        noise, next_noise = self.learn_rng.gumbel(size=shape).astype(np.float32)
        return Inputs({"noise": noise, "next_noise": next_noise}, self.constants(progress))
