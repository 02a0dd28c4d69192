"""SAC: maximum-entropy actor-critic with twin critics and a learned temperature.

Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, algorithm 1 and eq. 5, 7, 18.

    y = R + gamma^k (1 - terminated) [ min_i Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = mean[ alpha log pi(a|s) - min_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

A gradient step takes all three from the same parameters and then moves everything at once, as Brax does
(https://github.com/google/brax, training/agents/sac/train.py); others let the actor see the critics after their step.
"""

from __future__ import annotations

import math

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.core.actors import Network, SquashedGaussianActor
from minding.policies.core.base import BasePolicy
from minding.policies.networks.actor_critic import ActionValue, SquashedActor
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.networks.target import SoftTarget, equalize
from minding.policies.ops import lean
from minding.policies.ops.distributions import SquashedGaussian
from minding.policies.ops.soft import soft_objectives

METRICS = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")


class Critics(nn.Cell):
    """Two independent critics."""

    def __init__(self, policy: SAC, rng: np.random.Generator) -> None:
        super().__init__()
        self.q1 = ActionValue(policy.spec, policy.cfg.model, rng)
        self.q2 = ActionValue(policy.spec, policy.cfg.model, rng)

    def construct(self, action, obs):
        return self.q1(action, obs), self.q2(action, obs)


class SACCell(nn.Cell):
    """Root cell: actor, twin critics and their targets, temperature, optimizer, one compiled update."""

    def __init__(self, actor: SquashedActor, policy: SAC, rng: np.random.Generator) -> None:
        super().__init__()
        learn = policy.cfg.learn
        self.net = actor
        self.critics = Critics(policy, rng)
        self.targets = Critics(policy, rng)
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn.alpha))), name="log_alpha")
        self.actor_params = ms.ParameterTuple(actor.trainable_params())
        self.critic_params = ms.ParameterTuple(self.critics.trainable_params())
        self.auto_alpha = bool(learn.auto_alpha)
        self.optim = Adam([*self.actor_params, *self.critic_params, *([self.log_alpha] if self.auto_alpha else [])])
        self.move_targets = SoftTarget(self.critics, self.targets, self.optim.block)
        obs_names = [*policy.obs_fields("obs"), *policy.obs_fields("next_obs")]
        names = [*obs_names, "action", "reward", "terminated", "discount"]
        self.rows = Rows(policy.layout, names)
        self.squashed = SquashedGaussian()
        self.soft_target, self.critic_loss, self.policy_loss = soft_objectives()
        self.num_leaves = len(policy.leaves)
        self.target_entropy = policy.target_entropy
        # The step and the sums of the metrics before the first one.
        self.zeros = (ms.Tensor(np.int32(0)), ms.Tensor(np.zeros(len(METRICS), np.float32)))
        self.critic_gradient = ms.value_and_grad(self.loss_of_critics, None, self.critic_params, has_aux=True)
        self.actor_gradient = ms.value_and_grad(self.loss_of_actor, None, self.actor_params, has_aux=True)

    def loss_of_critics(self, obs, action, target):
        q1, q2 = self.critics(action, obs)
        return self.critic_loss(q1, q2, target)

    def loss_of_actor(self, obs, noise, alpha):
        mean, log_std = self.net(obs)
        action, log_prob = self.squashed(mean, log_std, noise)
        q1, q2 = self.critics(action, obs)
        return self.policy_loss(q1, q2, log_prob, alpha)

    def construct(self, inputs, tables):
        """Inputs: index int32 (K, B); standard normal noise float32 (K, B, A) for next and present actions; learning
        rate and target share, each float32 (1,). With K = 1 the first three have no axis for it: a graph without a loop
        starts faster. Returns the sums of `METRICS`."""
        index, next_noise, noise, rate, tau = inputs
        if index.ndim == 1:
            return self.step(index, next_noise, noise, rate, tau, tables)
        i, total = self.zeros
        while i < index.shape[0]:
            drawn = lean.entry(index, i), lean.entry(next_noise, i), lean.entry(noise, i)
            total = total + self.step(drawn[0], drawn[1], drawn[2], rate, tau, tables)
            i = i + 1
        return total

    def step(self, index, next_noise, noise, rate, tau, tables):
        n = self.num_leaves
        # Forward
        fields = self.rows(index, tables)
        obs, next_obs = fields[:n], fields[n : 2 * n]
        action, reward, terminated, discount = fields[2 * n :]
        alpha = ops.exp(self.log_alpha)
        # Target
        mean, log_std = self.net(next_obs)
        next_action, next_log_prob = self.squashed(mean, log_std, next_noise)
        next_q1, next_q2 = self.targets(next_action, next_obs)
        target = self.soft_target(reward, discount, terminated, next_q1, next_q2, next_log_prob, alpha)
        # Loss
        (q_loss, q), critic_grads = self.critic_gradient(obs, action, target)
        (pi_loss, log_prob), actor_grads = self.actor_gradient(obs, noise, alpha)
        entropy = -log_prob
        excess = entropy - self.target_entropy
        metrics = lean.stacked((q_loss, pi_loss, self.log_alpha * excess, alpha, q, entropy))
        # Update
        grads = actor_grads + critic_grads
        if self.auto_alpha:
            # d L_alpha / d log(alpha)
            grads = (*grads, excess)
        done = self.optim(grads, rate, metrics)
        self.move_targets(tau, done)
        return metrics


class SAC(BasePolicy):
    """Soft actor-critic for Box actions in [-1, 1]."""

    name = "sac"

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    @property
    def target_entropy(self) -> float:
        """The configured value, or -(action size)."""
        given = self.cfg.learn.target_entropy
        return float(-self.action_size if given is None else given)

    def _network(self, rng: np.random.Generator) -> SquashedActor:
        return SquashedActor(self.spec, self.cfg.model, rng)

    def _root(self, net: SquashedActor, rng: np.random.Generator) -> SACCell:
        root = SACCell(net, self, rng)
        equalize(root.critics, root.targets)
        return root

    def _actor(self, network: Network, rng: np.random.Generator) -> SquashedGaussianActor:
        return SquashedGaussianActor(self.name, network, self.spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        steps, size = batch.index.shape
        noise = self.learn_rng.standard_normal((2, steps, size, self.action_size), dtype=np.float32)
        inputs = [batch.index, *noise]
        if steps == 1:
            inputs = [x[0] for x in inputs]
        rates = (np.array(x, np.float32) for x in (self.learning_rate(progress), self.cfg.learn.tau))
        total = self._update(batch.tables, *inputs, *rates)
        self.update_normalizers(batch)
        return {**{name: float(v) / steps for name, v in zip(METRICS, total)}, "grad_steps": steps}
