"""Actors and critics of several agents, each agent with its own networks; critics see the observations and actions of
all agents (Lowe et al., 2017, https://arxiv.org/abs/1706.02275, algorithm 1).

Discrete actions are differentiated through the straight-through Gumbel-softmax (Jang et al., 2017,
https://arxiv.org/abs/1611.01144, section 2).
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.config.options import setting_at
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.families.critics_first import CriticsFirst
from minding.policies.families.team import SeparateAgents, TeamPolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.team_networks import AgentActors, AgentCritics, team_parts, team_places
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import half_square, lowest
from minding.policies.settings.teams import TeamCriticSettings


class TeamCritics(CriticsFirst):
    """Root cell: actors, critics, the targets of the critics, and optimizer.

    A subclass defines `next_actions` and `loss_of_actor`, whose batch also has, by name, what `prepare` adds.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value", "grad_norm_actors", "grad_norm_critics")
    of_critics = ("critic_loss", "q_value", "grad_norm_critics")
    of_actor: tuple[str, ...] = ("actor_loss", "grad_norm_actors")
    observed = "own"

    def __init__(
        self,
        actors: AgentActors,
        critics: tuple[AgentCritics, AgentCritics],
        learn: Mapping[str, Any],
        spec: Mapping[str, Any],
    ) -> None:
        super().__init__(actors, critics[0])
        self.target_critics = critics[1]
        self.agents, self.team_reward = len(spec["agents"]["names"]), bool(spec["agents"]["team_reward"])
        self.places = tuple(team_places(spec))
        self.discrete = spec["action"]["kind"] == "discrete"
        self.action_table = ms.Tensor(np.eye(spec["action"]["n"], dtype=np.float32)) if self.discrete else None
        self.temperature = learn["temperature"]
        bound = {"max_grad_norm": learn["grad_norm"]}
        groups = {"actor": Group.of(self.net, learn, **bound), "critics": Group.of(self.critics, learn, **bound)}
        self.optimize(**groups, **self.own_groups(learn))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))

    # Defined by the algorithm.

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        """Further groups of parameters, by name; none by default."""
        return {}

    def next_actions(self, leaves, batch):
        """The agents' next actions, float32 (B, M, A), and what is added to their values, float32 (B, M), or 0, by the
        leaves of all agents' next observations, (B, M, ...) each."""
        raise NotImplementedError

    # Shared by the algorithms.

    def loss_of_critics(self, batch):
        q, counted = self.critics(batch["actions"], batch["own"]), batch["counted"]
        errors = half_square(q - ops.ExpandDims()(batch["target"], 0))
        loss = total(agent_means(ops.ReduceSum()(errors, 0), counted))
        value = total(agent_means(ops.stop_gradient(primitives.item(ops.Unstack()(q), 0)), counted))
        return loss, {"critic_loss": loss / self.agents, "q_value": value / self.agents}

    def prepare(self, batch):
        now = team_parts(batch["obs"], self.places)
        batch["own"], batch["alive"] = now["own"], now["alive"]
        # With a reward of the whole team, every agent has a return, even if it is absent.
        batch["counted"] = ops.OnesLike()(now["alive"]) if self.team_reward else now["alive"]
        batch["actions"] = self.taken(batch["action"], now["alive"])
        return batch

    def follow_actor(self, batch, actor, norms):
        return norms, self.move_critics(batch["tau"], norms["actor"])

    def td_target(self, batch):
        """The target of the critics, y: float32 (B, M)."""
        then = team_parts(batch["next_obs"], self.places)
        action, bonus = self.next_actions(then["own"], batch)
        next_q = lowest(self.target_critics(action * ops.ExpandDims()(then["alive"], -1), then["own"]))
        going, reward = ops.ExpandDims()(batch["discount"] * (1.0 - batch["terminated"]), -1), batch["reward"]
        if self.team_reward:
            return ops.ExpandDims()(reward, -1) + going * (next_q + then["alive"] * bonus)
        return reward + going * then["alive"] * (next_q + bonus)

    def drawn(self, logits, noise):
        """Actions (B, M, A) from logits with Gumbel noise: one-hots through which gradients flow."""
        scores = logits + noise
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


def agent_means(x, counted):
    """The mean of each agent's numbers (B, M) over the rows that count for it, float32 (B, M) with 0 for others: a
    tuple of M scalars."""
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


class TeamCriticsPolicy(SeparateAgents, TeamPolicy):
    """Acts with a network of its own for each agent, and learns from single transitions of the team.

    A subclass defines `make_root`, `make_actor` and `inputs`.
    """

    cfg: TeamCriticSettings
    network_class = AgentActors
    root: TeamCritics

    @property
    def action_size(self) -> int:
        """Number of values in an action as input of the critics."""
        action = self.spec["action"]
        return int(action["n"]) if action["kind"] == "discrete" else math.prod(action["shape"])

    def make_critics(self, rng: np.random.Generator) -> tuple[AgentCritics, AgentCritics]:
        """The critics of all agents, and their equal targets."""
        model = self.cfg.model
        central, count = model.central, setting_at(model, "n_critics", 1)
        critics, targets = (AgentCritics(self.spec, model, rng, central, count) for _ in range(2))
        equalize(critics, targets)
        return critics, targets

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**super().row_fields, "discount": Field(default=self.cfg.learn.gamma)}

    def gumbel_noise(self, batch: IndexedBatch) -> dict[str, Array]:
        """The noise with which discrete actions are drawn: float32 (K, B, M, A) for actions and next actions."""
        noise, next_noise = self.learn_rng.gumbel(size=(2, *self.noise_shape(batch))).astype(np.float32)
        return {"noise": noise, "next_noise": next_noise}

    def noise_shape(self, batch: IndexedBatch) -> tuple[int, ...]:
        """(K, B, M, A)"""
        steps = len(batch.index)
        return steps, batch.index.size // steps, self.agents, self.action_size
