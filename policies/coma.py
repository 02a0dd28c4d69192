"""COMA: each agent of a team learns what its action was worth beside what it would have done on average.

Foerster et al., 2018, https://arxiv.org/abs/1705.08926, section 4 and algorithm 1.

    pi(a|h_m) by a GRU over the agent's own observations and actions; weights are shared
    Q_m(s, u)[a] = Q(s, o_m, u without u_m, last u, m)[a]: one value for each action a of agent m, in one pass
    A_m = Q_m(s, u)[u_m] - sum_a pi(a|h_m) Q_m(s, u)[a]
    L_pi = -mean[ rho A_m log pi(u_m|h_m) ] - c_e mean[ H ],   rho = min(pi / mu, 2)           where m is there
    L_Q = mean[ 1/2 (Q_m(s, u)[u_m] - G)^2 ]
    G_t = r_t + gamma (1 - terminated_t) ((1 - lambda) Q'_m(s_{t+1}, u_{t+1})[u_m] + lambda G_{t+1})

Q' is a target network, and mu the policy that acted. Where the rollout does not go on behind a row, at its end and at
time limits, u_{t+1} is drawn from pi and lambda is 0. The critic passes several times over a rollout. In the last pass
the actor follows each of its gradient steps with one on the same rows, and is judged by the critic after that step.

The team's return goes on when an agent has left. Its one value from there on is that of the first action, and nothing
but the state, what the others do and its place is seen of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array, StateDict
from minding.policies.acting.actors import Network
from minding.policies.acting.agents import LastActionSampler
from minding.policies.core.team import TeamPolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import equalize, make_target
from minding.policies.learning.target_moves import target_moves
from minding.policies.learning.update import Inputs
from minding.policies.networks.counterfactual import AgentPolicy, CounterfactualCritic
from minding.policies.ops import lean
from minding.policies.ops.distributions import categorical_log_prob_entropy
from minding.policies.ops.order import after
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import accumulated, chosen_value, half_square

WEIGHT_BOUND = 2.0
"""Of the weight of rows that an older policy collected."""


def counterfactual_advantage(q, logits, action):
    """What an action was worth beside the average over all that the agent could have done (Foerster et al., 2018,
    https://arxiv.org/abs/1705.08926, eq. 4).

        A = Q(u) - sum_a pi(a) Q(a)

    Args:
      q: float32 (B, A), one value for each action of the agent, the others doing what they did.
      logits: float32 (B, A), of pi; those of illegal actions leave them no chance.
      action: int32 (B,), u.

    Returns:
      Float32 (B,); no gradient flows through it.
    """
    average = ops.ReduceSum()(ops.Softmax(-1)(logits) * q, -1)
    return ops.stop_gradient(chosen_value(q, action) - average)


def lambda_return(reward, next_value, terminated, going, gamma, td_lambda):
    """TD(lambda): returns that mix those of all lengths (Sutton, 1988, https://doi.org/10.1007/BF00115009).

        G_t = r_t + gamma (1 - terminated_t) ((1 - l_t) V(s'_t) + l_t G_{t+1}),   l_t = lambda going_t

    Args:
      reward, terminated: float32 (T, N).
      next_value: float32 (T, N), V of the true successor.
      going: float32 (T, N), 0 where row t + 1 is not the successor of row t, as in the last row.
      gamma, td_lambda: numbers in [0, 1].

    Returns:
      float32 (T, N).
    """
    decay = gamma * (1.0 - terminated)
    share = td_lambda * going
    return accumulated(reward + decay * (1.0 - share) * next_value, decay * share)


class COMACell(GradientStep):
    """Root cell: actor, critic and its target, optimizer; a step takes rows in the order of time, (T, N).

    Args:
      net: the actor.
      critics: the critic and its target.
      learn: the configuration `policy.learn`.
      leaves: number of the leaves of an agent's observation; `alive` and the leaves of the state follow them.
    """

    metrics = (
        *("critic_loss", "q_value", "grad_norm_critic"),
        *("actor_loss", "entropy", "approx_kl", "advantage", "grad_norm_actor"),
    )

    def __init__(
        self,
        net: AgentPolicy,
        critics: tuple[CounterfactualCritic, CounterfactualCritic],
        learn: Mapping[str, Any],
        leaves: int,
    ) -> None:
        own = ("action", "reward", "terminated", "cut", "valid", "log_prob", "memory")
        super().__init__(("obs", "next_obs", *own))
        self.net, (self.critic, self.target) = net, critics
        equalize(self.critic, self.target)
        bound = {"max_grad_norm": learn["grad_norm"]}
        of_critic = {**learn, "learning_rate": learn["critic_learning_rate"]}
        self.optim = Optimizer(
            actor=Group.of(self.net, learn, **bound), critic=Group.of(self.critic, of_critic, **bound)
        )
        self.move_target = make_target(self.critic, self.target, self.optim.block("critic"), learn["target"]["kind"])
        self.agents, self.actions, self.count = net.agents, net.actions, leaves
        self.gamma, self.td_lambda = float(learn["gamma"]), float(learn["td_lambda"])
        self.entropy_weight, self.normalize = float(learn["entropy_weight"]), bool(learn["normalize_advantage"])
        self.nothing = (ms.Tensor(np.float32(0.0)),) * 5
        self.critic_gradient = self.optim.gradient(self.loss_of_critic, "critic")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def loss_of_critic(self, batch):
        value = chosen_value(self.values(batch), batch["chosen"])
        loss = row_mean(half_square(value - batch["target"]), batch)
        return loss, {"critic_loss": loss, "q_value": row_mean(ops.stop_gradient(value), batch)}

    def loss_of_actor(self, batch):
        logits, action, acting = self.logits(batch), batch["action"], {"valid": batch["acting"]}
        log_prob, entropy = categorical_log_prob_entropy(logits, action)
        # Of agents that are not there it may be anything.
        log_ratio = batch["acting"] * (ops.stop_gradient(log_prob) - batch["log_prob"])
        ratio = ops.Exp()(log_ratio)
        advantage = counterfactual_advantage(batch["q"], ops.stop_gradient(logits), action)
        size = ops.Sqrt()(row_mean(ops.Square()(advantage), acting))
        if self.normalize:
            advantage = advantage / (size + 1e-8)
        trust = ops.clamp(ratio, max=WEIGHT_BOUND)
        entropy = row_mean(entropy, acting)
        loss = -row_mean(trust * advantage * log_prob, acting)
        kl = row_mean(ratio - 1.0 - log_ratio, acting)
        return loss - self.entropy_weight * entropy, (loss, entropy, kl, size)

    def construct(self, batch):
        known = self.known(batch)
        # Critic
        (_, metrics), grads = self.critic_gradient(known)
        done = self.optim({"critic": grads}, batch, (metrics, grads))["critic"]
        # Actor
        made = self.move_actor_if_due(batch, known, done) if "due" in batch else self.move_actor(batch, known, done)
        # Target
        moved = self.move_target(batch["tau"], done)
        for name, value in zip(self.metrics[3:], made):
            metrics[name] = value
        # Who waits for a metric waits for the whole step.
        metrics["grad_norm_critic"] = after(done, moved)
        return metrics

    def move_actor_if_due(self, batch, known, done):
        made = self.nothing
        if after(batch["due"], done) > 0.0:
            made = self.move_actor(batch, known, done)
        return made

    def move_actor(self, batch, known, done):
        """The step of the actor; returns its metrics, in their order.

        Args:
          batch: that of the step; known: see `known`.
          done: a result of the critic's step, which comes first.
        """
        known["there"] = after(known["there"], done)
        known["taken"] = after(known["taken"], done)
        known["leaves"] = after(known["leaves"], done)
        known["state"] = after(known["state"], done)
        known["q"] = self.values(known)
        (_, found), grads = self.actor_gradient(known)
        norm = self.optim({"actor": grads}, batch, (found, grads))["actor"]
        return (*found, norm)

    def known(self, batch):
        """What the losses are made of, without gradient: T steps of N environments of M agents, in the order of time.

        Returns:
          By name what `CounterfactualCritic` takes; `before` float32 (T N M, A), the actions before, also of agents
          that are not there; `rows` float32 (N M, S), what was remembered before the first row, and `begun` float32
          (T N M,), 1 where it was forgotten; `action` and `chosen` int32 (T N M,), the latter with the first action of
          agents that are not there; `log_prob`, `target`, `valid` and `acting` float32 (T N M,).
        """
        (steps, envs), memory = batch["index"].shape, batch["memory"]
        rows, size = steps * envs, self.net.memory.size
        now, then = batch["obs"], batch["next_obs"]
        there, there_then = self.flags(now), self.flags(then)
        before = ops.Slice()(memory, (0, 0, size), (rows, self.agents, self.actions))
        first = ops.Slice()(memory, (0, 0, 0), (envs, self.agents, size))
        action, cut = batch["action"], ops.Reshape()(batch["cut"], (steps, envs))
        taken, valid = self.one_hot(action, there), self.of_agents(batch["valid"])
        known = {
            "leaves": self.folded(now),
            "state": now[self.count + 1 :],
            "there": there,
            "taken": taken,
            "last": before * ops.ExpandDims()(there, -1),
            "before": ops.Reshape()(before, (-1, self.actions)),
            "rows": ops.Reshape()(first, (-1, size)),
            "begun": self.of_agents(ops.Reshape()(self.shifted(cut, 0), (-1,))),
            "action": ops.Reshape()(action, (-1,)),
            "chosen": self.counted(action, there),
            "log_prob": ops.Reshape()(batch["log_prob"], (-1,)),
            "valid": valid,
            "acting": valid * ops.Reshape()(there, (-1,)),
        }
        # Target
        going = (1.0 - cut) * self.shifted(ops.OnesLike()(cut), 1)
        following = self.next_action(known, batch, ops.Reshape()(going, (-1,)))
        next_taken = self.one_hot(following, there_then)
        next_last = taken * ops.ExpandDims()(there_then, -1)
        next_q = self.target(self.folded(then), then[self.count + 1 :], there_then, next_taken, next_last)
        next_value = chosen_value(next_q, self.counted(following, there_then))
        shape = (steps, envs * self.agents)
        reward, ended, going = (
            ops.Reshape()(self.of_agents(ops.Reshape()(x, (-1,))), shape)
            for x in (batch["reward"], batch["terminated"], going)
        )
        returns = lambda_return(reward, ops.Reshape()(next_value, shape), ended, going, self.gamma, self.td_lambda)
        known["target"] = ops.Reshape()(returns, (-1,))
        return known

    def next_action(self, known, batch, going):
        """What agents do in the true successors, int32 (R, M): what they did in the next row, else what is drawn."""
        h, leaves = self.remembered(known), self.folded(batch["next_obs"])
        last = ops.Gather()(self.net.action_table, known["action"], 0)
        h, _ = self.net.memory(self.net.features(leaves, last, self.who(h)), h)
        logits = self.net.decided(h, leaves)
        drawn = ops.Argmax(-1)(logits + ops.Reshape()(batch["noise"], logits.shape))
        drawn = ops.Reshape()(drawn, (-1, self.agents))
        goes = ops.BroadcastTo(drawn.shape)(ops.ExpandDims()(going > 0.0, -1))
        steps, envs = batch["index"].shape
        if steps == 1:
            return drawn
        later = lean.part(batch["action"], envs, (steps - 1) * envs)
        return ops.Select()(goes, ops.Concat(0)((later, lean.part(drawn, (steps - 1) * envs, envs))), drawn)

    def values(self, batch):
        return self.critic(batch["leaves"], batch["state"], batch["there"], batch["taken"], batch["last"])

    def logits(self, batch):
        """Logits (T N M, A) of the present actor."""
        return self.net.decided(self.remembered(batch), batch["leaves"])

    def remembered(self, batch):
        """What the present actor remembers after each row, float32 (T N M, S)."""
        x = self.net.features(batch["leaves"], batch["before"], self.who(batch["before"]))
        return self.net.memory.unroll(x, batch["rows"], batch["begun"])

    def who(self, x):
        """The agent of each row of (R M, ...) as one-hot, (R M, M)."""
        return ops.Tile()(self.net.agent_table, (x.shape[0] // self.agents, 1))

    def flags(self, obs):
        return ops.Cast()(obs[self.count], ms.float32)

    def folded(self, obs):
        """The leaves of single agents, (R M, ...) each."""
        leaves: Any = ()
        for x in obs[: self.count]:
            leaves = (*leaves, ops.Reshape()(x, (-1, *x.shape[2:])))
        return leaves

    def of_agents(self, x):
        """(R,), once for each agent: (R M,)."""
        return ops.Reshape()(ops.BroadcastTo((x.shape[0], self.agents))(ops.ExpandDims()(x, -1)), (-1,))

    def one_hot(self, action, there):
        """Actions (R, M) as one-hot, (R, M, A); 0 of agents that are not there."""
        return ops.Gather()(self.net.action_table, action, 0) * ops.ExpandDims()(there, -1)

    def counted(self, action, there):
        """Actions (R M,), the first one of agents that are not there."""
        return ops.Reshape()(action * ops.Cast()(there, ms.int32), (-1,))

    def shifted(self, x, ahead):
        """(T, N), each row that of the step before, or with `ahead` of the step after; 0 where there is none."""
        steps = x.shape[0]
        none = ops.ZerosLike()(lean.part(x, 0, 1))
        if steps == 1:
            return none
        if ahead:
            return ops.Concat(0)((lean.part(x, 1, steps - 1), none))
        return ops.Concat(0)((none, lean.part(x, 0, steps - 1)))


class COMA(TeamPolicy):
    """Counterfactual multi-agent policy gradients for Discrete actions."""

    name = "coma"
    _learn_steps = 0
    root: COMACell

    def _network(self, rng: np.random.Generator) -> AgentPolicy:
        return AgentPolicy(self.spec, self.cfg.model, rng)

    def _root(self, net: AgentPolicy, rng: np.random.Generator) -> COMACell:
        model = self.cfg.model
        critics = CounterfactualCritic(self.spec, model, rng), CounterfactualCritic(self.spec, model, rng)
        return COMACell(net, critics, self.cfg.learn, len(self.leaves))

    def _actor(self, network: Network, rng: np.random.Generator) -> LastActionSampler:
        return LastActionSampler(self.name, network, self.acting_spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = {"cut": Field(), "valid": Field(), "log_prob": Field((self.agents,))}
        return {**super().row_fields, **numbers, "memory": Field((self.agents, self.net.memory_size))}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        count = len(batch.index)
        parts = min(self.cfg.learn.n_minibatch, count)
        tau = target_moves(self.cfg.learn.target, self._learn_steps, count)
        self._learn_steps += count
        steps = {"tau": tau}
        if count > parts:
            steps["due"] = (np.arange(count) >= count - parts).astype(np.float32)
        rows = batch.index.size // count
        noise = self.learn_rng.gumbel(size=(rows, self.agents, self.spec["action"]["n"])).astype(np.float32)
        constants: dict[str, Array | float] = {**self.root.optim.rates(progress), "noise": noise}
        return Inputs(steps, constants, dict.fromkeys(COMACell.metrics[3:], parts))

    def observed(self, batch: IndexedBatch) -> Array:
        # Reset rows are part of the rollout, but nothing is learned from them.
        rows = super().observed(batch)
        return rows[batch.layout.read(batch.tables.host, "valid", rows) > 0]

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
