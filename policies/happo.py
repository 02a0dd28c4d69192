"""HAPPO: PPO for a team whose agents have networks of their own and learn one after another; HATRPO as a switch.

Kuba et al., 2022, https://arxiv.org/abs/2109.11251, section 4; HATRPO takes the steps of TRPO: Schulman et al., 2015,
https://arxiv.org/abs/1502.05477, appendix C:

    F_m = prod of pi_j(a_j|o_j) / pi_j,old(a_j|o_j) over the agents j that have learned before m from this rollout
    r_m = pi_m(a_m|o_m) / pi_m,old(a_m|o_m)
    HAPPO:   L_m = mean[ max(-F_m A r_m, -F_m A clip(r_m, 1-e, 1+e)) ] - c_e mean[ H ]
    HATRPO:  maximize    mean[ F_m A r_m ] + c_e mean[ H ]
             subject to  mean[ KL(pi_m,old(.|o_m) || pi_m(.|o_m)) ] <= d

The order of the agents is drawn for each rollout. The turn of an agent consists of all passes over its own rows. F is 1
for the first agent, and absent agents do not count in it. The value function, which all agents share, is MAPPO's, with
an encoder of its own; it learns in each turn from the rows of the turn.

In an asynchronous run, the ratios in F are those to the older policies that acted, and A is weighted as in PPO.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data.agent_axis import ALIVE, CENTRAL
from minding.engine.data.batch import IndexedBatch, minibatches
from minding.engine.errors import ShapeError
from minding.engine.process import runtime
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array, LearnOutput
from minding.policies.acting.team_actors import CENTRAL_PARTS
from minding.policies.families.actor_critic import WEIGHT_BOUND
from minding.policies.families.central_critic import (
    CentralAgentActors,
    CentralCriticPolicy,
    in_units_of_head,
    value_loss,
)
from minding.policies.families.team import SeparateAgents
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.trust_region import OF_STEP, TrustRegionStep
from minding.policies.learning.update import Update
from minding.policies.networks.actor_critic import PolicyNetwork
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.networks.team_networks import of_agents
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import SURROGATE_METRICS, clipped_surrogate, row_mean

ORDER = "order"
"""Name of the input with the agents in the order of their turns, int (M,)."""


class Turns(Update):
    """All gradient steps of a call, agent by agent; one graph serves all agents.

    A turn has as many gradient steps as the batch, on the rows of one agent. Rows are ordered by step and then by
    agent.
    """

    def __call__(self, batch: IndexedBatch, inputs: Inputs, before: Callable[[], None] | None = None) -> LearnOutput:
        constants = {**inputs.constants}
        order, root, outputs = np.asarray(constants.pop(ORDER)), self._root, []
        counted = np.ones(batch.index.shape, bool) if batch.valid is None else batch.valid > 0
        places = [np.flatnonzero(counted & (batch.index % len(order) == m)) for m in range(len(order))]
        steps, rows = batch.index.shape
        # Agents that leave have fewer rows; the size of their minibatches stays.
        size = max(-(-rows // len(order)), *(-(-len(own) // steps) for own in places))

        def part(values: Array, chosen: Array) -> Array:
            if values.shape[:2] != batch.index.shape:
                return values[: len(chosen)]
            taken: Array = values.reshape(-1, *values.shape[2:])[chosen]
            return taken

        for k, m in enumerate(order):
            if not len(places[m]):
                continue
            chosen, valid = minibatches([places[m]], steps, steps * size)
            turn = dataclasses.replace(batch, index=part(batch.index, chosen), valid=valid)
            given = {name: part(values, chosen) for name, values in inputs.steps.items()}
            root.begin(m, order[:k])
            outputs.append(super().__call__(turn, Inputs(given, constants, inputs.counts)))
            root.end(m)
        means = {name: sum(x.metrics[name] for x in outputs) / len(outputs) for name in outputs[0].metrics}
        return LearnOutput(means, steps)


class TurnStep(GradientStep):
    """Base of the gradient steps of an agent in its turn. A subclass defines `construct` and `loss`."""

    proximal_names = ("proximal_log_prob", "factor")
    compares = True

    def __init__(
        self, net: CentralAgentActors, actor: PolicyNetwork, learn: Mapping[str, Any], groups: Sequence[str]
    ) -> None:
        super().__init__()
        self.net, self.actor, self.agents = net, actor, len(net.members)
        self.cfg = {name: learn[name] for name in ("clip_ratio", "value_clip", "entropy_weight", "huber_delta")}
        bound = {"eps": 1e-5, "max_grad_norm": learn["grad_norm"]}
        of_critic = {**learn, "learning_rate": learn["critic_learning_rate"]}
        critic = [*net.encoder.trainable_params(), *net.critic.trainable_params()]
        made = {"actor": Group.of(actor, learn, **bound), "critic": Group.of(critic, of_critic, **bound)}
        self.optim = Optimizer(**{name: made[name] for name in groups})
        self.gradient = self.optim.gradient(self.loss, *groups)
        self.updated = ms.Parameter(ms.Tensor(np.zeros(self.agents, np.float32)), name="updated", requires_grad=False)
        # The optimizer's averages of each agent.
        self.kept = ms.ParameterTuple(
            [
                ms.Parameter(ms.Tensor(np.stack([p.asnumpy()] * self.agents)), name=f"kept.{k}", requires_grad=False)
                for k, p in enumerate(self.averages())
            ]
        )

    def loss(self, batch):
        """The loss and its metrics by name."""
        raise NotImplementedError

    # Turns

    def begin(self, agent: int, before: Array) -> None:
        """Begins the turn of an agent, after the turns of the agents `before`, int (n,)."""
        runtime.assign(self.updated, np.isin(np.arange(self.agents), before).astype(np.float32))
        for own, working in self.weights(agent):
            runtime.assign(working, own.asnumpy())
        for kept, working in zip(self.kept, self.averages(), strict=True):
            runtime.assign(working, kept.asnumpy()[agent])

    def end(self, agent: int) -> None:
        """Ends the turn: the agent acts with what it has learned."""
        for own, working in self.weights(agent):
            runtime.assign(own, working.asnumpy())
        for kept, working in zip(self.kept, self.averages(), strict=True):
            each = kept.asnumpy().copy()
            each[agent] = working.asnumpy()
            runtime.assign(kept, each)

    def weights(self, agent: int) -> list[tuple[ms.Parameter, ms.Parameter]]:
        """Pairs of a weight with which the agent acts and its counterpart in `actor`."""
        own = self.net.members[agent].trainable_params()
        return list(zip(own, self.actor.trainable_params(), strict=True))

    def averages(self) -> list[ms.Parameter]:
        """The averages that the optimizer keeps for the actor; empty if it does not update the actor."""
        if "actor" not in self.optim.names:
            return []
        weights = {id(p) for p in self.actor.get_parameters()}
        step = self.optim.steps[self.optim.names.index("actor")]
        return [p for p in step.get_parameters() if id(p) not in weights]

    # Steps

    def proximal(self, rows):
        """Log-probability of each row under the current policy of its agent, and F."""
        alive = primitives.item(rows[CENTRAL], CENTRAL_PARTS.index(ALIVE))
        # (B, M, ...)
        leaves = primitives.in_time((*rows["obs"], rows["action"], rows["log_prob"], alive), self.agents)
        log_prob = self.net.log_probs(leaves[:-3], leaves[-3])
        log_ratio = (log_prob - leaves[-2]) * leaves[-1] * self.updated
        factor = ops.Exp()(ops.ReduceSum()(log_ratio, -1))
        return {"proximal_log_prob": ops.Reshape()(log_prob, (-1,)), "factor": of_agents(factor, self.agents)}

    def prepared(self, batch):
        """The batch, whose advantages are multiplied by F."""
        batch = in_units_of_head(batch, self.net.critic.value)
        behavior_weight = ops.clamp(ops.Exp()(batch["proximal_log_prob"] - batch["log_prob"]), max=WEIGHT_BOUND)
        batch["advantage"] = batch["advantage"] * batch["factor"] * behavior_weight
        batch["log_prob"] = batch["proximal_log_prob"]
        return batch

    def likelihood(self, batch, obs):
        """Log-probabilities (B,), entropies (B,) or a scalar, and the parameters of the distributions."""
        params = self.actor(obs)
        log_prob, entropy = self.actor.head.log_prob_entropy(params, batch["action"])
        return log_prob, entropy, params

    def of_value(self, batch):
        """The loss of the critic, a scalar."""
        return value_loss(self.net.value(batch["obs"], batch[CENTRAL]), batch, self.cfg)


class HAPPOCell(TurnStep):
    """Root cell of HAPPO."""

    metrics = (*SURROGATE_METRICS, "factor", "actor_grad_norm", "critic_grad_norm")

    def __init__(self, net: CentralAgentActors, actor: PolicyNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, actor, learn, ("actor", "critic"))
        self.count = len(self.optim.groups["actor"].params)
        for each in (actor, *net.members):
            fuse_likelihood(each.head)

    def loss(self, batch):
        log_prob, entropy, _ = self.likelihood(batch, batch["obs"])
        acting = {"valid": batch["acting"]}
        policy_loss, kl, clip_fraction = clipped_surrogate(log_prob, batch, acting, self.cfg["clip_ratio"])
        entropy, of_value = row_mean(entropy, acting), self.of_value(batch)
        loss = policy_loss + of_value - self.cfg["entropy_weight"] * entropy
        factor = row_mean(batch["factor"], acting)
        return loss, self.named((loss, policy_loss, of_value, entropy, kl, clip_fraction, factor))

    def construct(self, batch):
        (_, metrics), grads = self.gradient(self.prepared(batch))
        norms = self.optim({"actor": grads[: self.count], "critic": grads[self.count :]}, batch, metrics)
        metrics["actor_grad_norm"], metrics["critic_grad_norm"] = norms["actor"], norms["critic"]
        return metrics


class HATRPOCell(TurnStep):
    """Root cell of HATRPO: the actor takes one step in a turn, and the optimizer updates the critic."""

    metrics = ("value_loss", "entropy", "factor", "critic_grad_norm", *OF_STEP)

    def __init__(self, net: CentralAgentActors, actor: PolicyNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, actor, learn, ("critic",))
        self.improve = TrustRegionStep(
            actor.trainable_params(),
            self.surrogate,
            self.divergence,
            limit=learn["max_kl"],
            iterations=learn["cg_iterations"],
            damping=learn["cg_damping"],
            line_search=True,
        )

    def surrogate(self, batch, obs):
        """The objective, a scalar, and the parameters of the distributions."""
        log_prob, entropy, params = self.likelihood(batch, obs)
        acting = {"valid": batch["acting"]}
        gain = row_mean(ops.Exp()(log_prob - batch["log_prob"]) * batch["advantage"], acting)
        return gain + self.cfg["entropy_weight"] * row_mean(entropy, acting), params

    def divergence(self, batch, old, new):
        """Mean KL(old || new), a scalar."""
        return row_mean(self.actor.head.divergence(old, new), {"valid": batch["acting"]})

    def loss(self, batch):
        _, entropy, _ = self.likelihood(batch, batch["obs"])
        acting, of_value = {"valid": batch["acting"]}, self.of_value(batch)
        return of_value, self.named((of_value, row_mean(entropy, acting), row_mean(batch["factor"], acting)))

    def construct(self, batch):
        batch = self.prepared(batch)
        (_, metrics), grads = self.gradient(batch)
        metrics["critic_grad_norm"] = self.optim({"critic": grads}, batch, metrics)["critic"]
        found = self.improve.once(batch, metrics["critic_grad_norm"])
        for k in range(len(OF_STEP)):
            metrics[OF_STEP[k]] = found[k]
        return metrics


class HAPPO(SeparateAgents, CentralCriticPolicy):
    """Heterogeneous-agent proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "happo"
    network_class = CentralAgentActors
    update_class = Turns

    def make_root(self, net: CentralAgentActors, rng: np.random.Generator) -> TurnStep:
        kind = HATRPOCell if self.second_order else HAPPOCell
        return kind(net, PolicyNetwork(self.spec, self.cfg.model, rng), self.cfg.learn)

    @property
    def second_order(self) -> bool:
        return bool(self.cfg.learn.trust_region)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        count = batch.tables.rows
        if count % self.root.agents:
            raise ShapeError(
                f"{self.name}: expected the rows of all {self.root.agents} agents of each step, one after another, got "
                f"{count} rows: mark rows that are not to be learned from in 'valid' instead of removing them"
            )
        given = super().inputs(batch, progress)
        steps, counts, number = {**given.steps}, {}, len(batch.index)
        if self.second_order:
            counts = dict.fromkeys(OF_STEP, 1)
            if number > 1:
                steps["first"] = (np.arange(number) == 0).astype(np.float32)
        return Inputs(steps, {**given.constants, ORDER: self.learn_rng.permutation(self.root.agents)}, counts)
