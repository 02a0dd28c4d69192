"""COMA: each agent of a team learns by how much its action was better than its average action.

Foerster et al., 2018, https://arxiv.org/abs/1705.08926, section 4 and algorithm 1.

    pi(a|h_m) by a GRU over the agent's own observations and actions; weights are shared
    Q_m(s, u)[a] = Q(s, o_m, u without u_m, last u, m)[a]: one value for each action a of agent m, in one pass
    A_m = Q_m(s, u)[u_m] - sum_a pi(a|h_m) Q_m(s, u)[a]
    L_pi = -mean[ rho A_m log pi(u_m|h_m) ] - c_e mean[ H ],   rho = min(pi / mu, 2)           where m is there
    L_Q = mean[ 1/2 (Q_m(s, u)[u_m] - G)^2 ]
    G_t = r_t + gamma (1 - terminated_t) ((1 - lambda) Q'_m(s_{t+1}, u_{t+1})[u_m] + lambda G_{t+1})

Q' is a target network, and mu the policy that acted. Where the rollout does not continue after a row, at its end and at
time limits, u_{t+1} is drawn from pi and lambda is 0. The critic makes several passes over a rollout. In the last pass,
each gradient step of the critic is followed by a step of the actor on the same rows, with the updated critic.

The team's return continues when an agent has left. From then on, the agent counts as taking the first action, and the
critic's input for it is only the state, the actions of the others and the agent number.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.acting.actors import Network, SamplingActor
from minding.policies.acting.sampling import Categorical
from minding.policies.families.team import TeamPolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import equalize, make_target, target_schedule
from minding.policies.networks.team_networks import (
    AgentPolicy,
    CounterfactualCritic,
    TeamPlaces,
    first_if_absent,
    of_agents,
    one_hot,
    team_parts,
)
from minding.policies.ops import primitives
from minding.policies.ops.distributions import categorical_log_prob_entropy
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.primitives import after, step_after, step_before
from minding.policies.ops.values import accumulated, chosen_value, half_square

WEIGHT_BOUND = 2.0
"""Upper bound of the weight of rows that an older policy collected."""
ACTOR_METRICS = ("actor_loss", "entropy", "approx_kl", "advantage", "grad_norm_actor")
"""Metrics of the steps that update the actor."""


def counterfactual_advantage(q, logits, action):
    """The advantage of an action over the average of all actions of the agent (Foerster et al., 2018,
    https://arxiv.org/abs/1705.08926, eq. 4).

        A = Q(u) - sum_a pi(a) Q(a)

    Args:
      q: float32 (B, A), values of all actions of the agent, given the actions that the other agents took.
      logits: float32 (B, A), logits of pi, `ILLEGAL` for illegal actions.
      action: int32 (B,), u.

    Returns:
      The advantage, float32 (B,); no gradient flows through it.
    """
    average = ops.ReduceSum()(ops.Softmax(-1)(logits) * q, -1)
    return ops.stop_gradient(chosen_value(q, action) - average)


def lambda_return(reward, next_value, terminated, going, gamma, td_lambda):
    """TD(lambda): weighted means of n-step returns of all lengths (Sutton, 1988, https://doi.org/10.1007/BF00115009).

        G_t = r_t + gamma (1 - terminated_t) ((1 - l_t) V(s'_t) + l_t G_{t+1}),   l_t = lambda going_t

    Args:
      reward, terminated: float32 (T, N).
      next_value: float32 (T, N), V of the true successor.
      going: float32 (T, N), 0 where row t + 1 is not the successor of row t, as in the last row.

    Returns:
      G, float32 (T, N).
    """
    decay = gamma * (1.0 - terminated)
    share = td_lambda * going
    return accumulated(reward + decay * (1.0 - share) * next_value, decay * share)


class COMACell(GradientStep):
    """Root cell: actor, critic and its target, and optimizer. A step takes rows ordered by time, (T, N)."""

    metrics = ("critic_loss", "q_value", "grad_norm_critic", *ACTOR_METRICS)

    def __init__(
        self,
        net: AgentPolicy,
        critics: tuple[CounterfactualCritic, CounterfactualCritic],
        learn: Mapping[str, Any],
        places: TeamPlaces,
    ) -> None:
        super().__init__()
        self.net, (self.critic, self.target) = net, critics
        equalize(self.critic, self.target)
        bound = {"max_grad_norm": learn["grad_norm"]}
        of_critic = {**learn, "learning_rate": learn["critic_learning_rate"]}
        self.optim = Optimizer(
            actor=Group.of(self.net, learn, **bound), critic=Group.of(self.critic, of_critic, **bound)
        )
        self.move_target = make_target(self.critic, self.target, self.optim.block("critic"), learn["target"]["kind"])
        self.agents, self.actions, self.places = net.agents, net.actions, tuple(places)
        self.gamma, self.td_lambda = float(learn["gamma"]), float(learn["td_lambda"])
        self.entropy_weight, self.normalize = float(learn["entropy_weight"]), bool(learn["normalize_advantage"])
        self.nothing = (ms.Tensor(np.float32(0.0)),) * len(ACTOR_METRICS)
        self.critic_gradient = self.optim.gradient(self.loss_of_critic, "critic")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def loss_of_critic(self, batch):
        value = chosen_value(self.values(batch), batch["chosen"])
        loss = row_mean(half_square(value - batch["target"]), batch)
        return loss, {"critic_loss": loss, "q_value": row_mean(ops.stop_gradient(value), batch)}

    def loss_of_actor(self, batch):
        logits, action, acting = self.logits(batch), batch["action"], {"valid": batch["acting"]}
        log_prob, entropy = categorical_log_prob_entropy(logits, action)
        # The log-probability of absent agents is arbitrary, so it is multiplied by 0.
        log_ratio = batch["acting"] * (ops.stop_gradient(log_prob) - batch["log_prob"])
        ratio = ops.Exp()(log_ratio)
        advantage = counterfactual_advantage(batch["q"], ops.stop_gradient(logits), action)
        size = ops.Sqrt()(row_mean(ops.Square()(advantage), acting))
        if self.normalize:
            advantage = advantage / (size + 1e-8)
        behavior_weight = ops.clamp(ratio, max=WEIGHT_BOUND)
        entropy = row_mean(entropy, acting)
        loss = -row_mean(behavior_weight * advantage * log_prob, acting)
        kl = row_mean(ratio - 1.0 - log_ratio, acting)
        metrics = {"actor_loss": loss, "entropy": entropy, "approx_kl": kl, "advantage": size}
        return loss - self.entropy_weight * entropy, metrics

    def construct(self, batch):
        known = self.known(batch)
        # Target
        known["target"] = self.td_target(known, batch)
        # Critic
        (_, metrics), grads = self.critic_gradient(known)
        done = self.optim({"critic": grads}, batch, (metrics, grads))["critic"]
        # Actor
        made = self.move_actor_if_due(batch, known, done) if "due" in batch else self.move_actor(batch, known, done)
        for name, value in zip(ACTOR_METRICS, made):
            metrics[name] = value
        # A caller that waits for a metric waits for the whole step.
        metrics["grad_norm_critic"] = after(done, self.move_target(batch["tau"], done))
        return metrics

    def move_actor_if_due(self, batch, known, done):
        made = self.nothing
        if after(batch["due"], done) > 0.0:
            made = self.move_actor(batch, known, done)
        return made

    def move_actor(self, batch, known, done):
        """Updates the actor; returns `ACTOR_METRICS` as a tuple, because a branch of a graph cannot return a
        dict."""
        for name in ("there", "taken", "leaves", "state"):
            known[name] = after(known[name], done)
        known["q"] = self.values(known)
        (_, metrics), grads = self.actor_gradient(known)
        metrics["grad_norm_actor"] = self.optim({"actor": grads}, batch, (metrics, grads))["actor"]
        made: Any = ()
        for name in ACTOR_METRICS:
            made = (*made, metrics[name])
        return made

    def known(self, batch):
        """The inputs of the losses, without gradient, for T steps of N environments of M agents, ordered by time.

        Returns:
          By name:
          - `leaves`, `state`, `there`, `taken`, `last`: the arguments of `CounterfactualCritic`;
          - `before`: the previous actions as one-hot, float32 (T N M, A), also of absent agents;
          - `rows`: the memory before the first row, float32 (N M, S);
          - `begun`: float32 (T N M,), 1 where the memory was cleared before the row;
          - `action`: int32 (T N M,);
          - `chosen`: int32 (T N M,), `action` with action 0 for absent agents;
          - `log_prob`: float32 (T N M,), log-probability of `action` under the acting policy;
          - `valid`: float32 (T N M,), 0 for rows that do not count;
          - `acting`: float32 (T N M,), `valid` with 0 for absent agents.
        """
        (steps, envs), size = batch["index"].shape, self.net.memory.size
        now, action, memory = team_parts(batch["obs"], self.places), batch["action"], batch["memory"]
        there, valid = now["alive"], of_agents(batch["valid"], self.agents)
        before = ops.Slice()(memory, (0, 0, size), (steps * envs, self.agents, self.actions))
        first = ops.Slice()(memory, (0, 0, 0), (envs, self.agents, size))
        begun = step_before(ops.Reshape()(batch["cut"], (steps, envs)))
        return {
            "leaves": primitives.as_rows(now["own"]),
            "state": now["state"],
            "there": there,
            "taken": one_hot(action, there, self.net.action_table),
            "last": before * ops.ExpandDims()(there, -1),
            "before": ops.Reshape()(before, (-1, self.actions)),
            "rows": ops.Reshape()(first, (-1, size)),
            "begun": of_agents(ops.Reshape()(begun, (-1,)), self.agents),
            "action": ops.Reshape()(action, (-1,)),
            "chosen": first_if_absent(action, there),
            "log_prob": ops.Reshape()(batch["log_prob"], (-1,)),
            "valid": valid,
            "acting": valid * ops.Reshape()(there, (-1,)),
        }

    def td_target(self, known, batch):
        """G, float32 (T N M,)."""
        (steps, envs), then = batch["index"].shape, team_parts(batch["next_obs"], self.places)
        there, cut = then["alive"], ops.Reshape()(batch["cut"], (steps, envs))
        going = (1.0 - cut) * step_after(ops.OnesLike()(cut))
        action = self.next_action(known, batch, ops.Reshape()(going, (-1,)))
        taken = one_hot(action, there, self.net.action_table)
        last = known["taken"] * ops.ExpandDims()(there, -1)
        next_q = self.target(primitives.as_rows(then["own"]), then["state"], there, taken, last)
        next_value = chosen_value(next_q, first_if_absent(action, there))
        shape = (steps, envs * self.agents)
        reward, ended, going = (
            ops.Reshape()(of_agents(ops.Reshape()(x, (-1,)), self.agents), shape)
            for x in (batch["reward"], batch["terminated"], going)
        )
        returns = lambda_return(reward, ops.Reshape()(next_value, shape), ended, going, self.gamma, self.td_lambda)
        return ops.Reshape()(returns, (-1,))

    def next_action(self, known, batch, going):
        """The agents' actions in the true successors, int32 (R, M): from the next row if it is the successor, else
        drawn from pi."""
        h, leaves = self.remembered(known), primitives.as_rows(team_parts(batch["next_obs"], self.places)["own"])
        last = ops.Gather()(self.net.action_table, known["action"], 0)
        h, _ = self.net.memory(self.net.features(leaves, last), h)
        logits = self.net.decided(h, leaves)
        drawn = ops.Argmax(-1)(logits + ops.Reshape()(batch["noise"], logits.shape))
        drawn = ops.Reshape()(drawn, (-1, self.agents))
        goes = ops.BroadcastTo(drawn.shape)(ops.ExpandDims()(going > 0.0, -1))
        steps, envs = batch["index"].shape
        if steps == 1:
            return drawn
        later = primitives.part(batch["action"], envs, (steps - 1) * envs)
        return ops.Select()(goes, ops.Concat(0)((later, primitives.part(drawn, (steps - 1) * envs, envs))), drawn)

    def values(self, batch):
        return self.critic(batch["leaves"], batch["state"], batch["there"], batch["taken"], batch["last"])

    def logits(self, batch):
        """Logits (T N M, A) of the current actor."""
        return self.net.decided(self.remembered(batch), batch["leaves"])

    def remembered(self, batch):
        """The memory of the current actor after each row, float32 (T N M, S): the state of its GRU."""
        x = self.net.features(batch["leaves"], batch["before"])
        return self.net.memory.unroll(x, batch["rows"], batch["begun"])


class COMA(TeamPolicy):
    """Counterfactual multi-agent policy gradients for Discrete actions."""

    name = "coma"
    network_class = AgentPolicy
    counts_steps = True
    root: COMACell

    def make_root(self, net: AgentPolicy, rng: np.random.Generator) -> COMACell:
        model = self.cfg.model
        critics = CounterfactualCritic(self.spec, model, rng), CounterfactualCritic(self.spec, model, rng)
        return COMACell(net, critics, self.cfg.learn, self.places)

    def make_actor(self, network: Network, rng: np.random.Generator) -> SamplingActor:
        actor = SamplingActor(self.name, network, self.spec, rng, Categorical(), ("log_prob",))
        actor.remembers_action = True
        return actor

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = {"cut": Field(), "valid": Field(), "log_prob": Field((self.agents,))}
        return {**super().row_fields, **numbers, "memory": Field((self.agents, self.net.memory_size))}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        count = len(batch.index)
        parts = min(self.cfg.learn.n_minibatch, count)
        tau = target_schedule(self.cfg.learn.target, self.learn_steps, count)
        steps = {"tau": tau}
        if count > parts:
            steps["due"] = (np.arange(count) >= count - parts).astype(np.float32)
        rows = batch.index.size // count
        noise = self.learn_rng.gumbel(size=(rows, self.agents, self.spec["action"]["n"])).astype(np.float32)
        return Inputs(steps, {**self.constants(progress), "noise": noise}, dict.fromkeys(ACTOR_METRICS, parts))
