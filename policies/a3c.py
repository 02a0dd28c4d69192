"""A3C: advantage actor-critic, one gradient step for each short rollout of one of several collectors.

Mnih et al., 2016, https://arxiv.org/abs/1602.01783, section 4 and algorithm S3:

    R_t = sum_{i<k} gamma^i r_{t+i} + gamma^k V(s_{t+k}),   t + k the end of the rollout or of the trajectory
    L = -mean[ (R_t - V(s_t)) log pi(a_t|s_t) ] + c_v 1/2 mean[ (R_t - V(s_t))^2 ] - c_e mean[ H ]

The paper's workers each take the gradient at their own copy of the weights and apply it, late, to the shared ones. Here
the collectors only act: the gradient is taken by one learner at its current weights, on data of slightly older ones,
without a correction for the difference. `R_t` comes from `gae_estimator` with the values of the acting weights.
"""

from __future__ import annotations

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.core.actor_critic import ActorCriticPolicy
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.networks.steps import GradientSteps
from minding.policies.ops import lean

METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm")


def a3c_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one rollout.

    Args:
      log_prob, value: float32 (B,), of the current network; entropy: float32 (B,) or scalar.
      batch: (log-probability of the acting policy, n-step return), each float32 (B,).
      cfg: the `learn` part of the configuration.

    Returns:
      (loss, policy loss, value loss, entropy, KL estimate), scalars. The KL estimate, of the learned policy from the
      one that acted, is ``mean[(r - 1) - log r]`` (http://joschu.net/blog/kl-approx.html).
    """
    old_log_prob, target = batch
    advantage = target - value
    policy_loss = -lean.mean(ops.stop_gradient(advantage) * log_prob)
    value_loss = 0.5 * lean.mean(ops.square(advantage))
    entropy = lean.mean(entropy)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    log_ratio = log_prob - old_log_prob
    kl = lean.mean(ops.exp(log_ratio) - 1.0 - log_ratio)
    return loss, policy_loss, value_loss, entropy, kl


class A3CCell(GradientSteps):
    """Root cell: network and optimizer; `step` is one gradient step."""

    def __init__(self, net: ActorCritic, policy: A3C) -> None:
        super().__init__(len(METRICS))
        learn = policy.cfg.learn
        self.net = net
        self.optim = Adam(net.trainable_params(), eps=1e-5, max_grad_norm=learn.grad_norm)
        self.rows = Rows(policy.layout, [*policy.obs_fields("obs"), "action", "log_prob", "return"])
        self.num_leaves = len(policy.leaves)
        # A plain dict of numbers: they are compiled in as constants.
        self.cfg = {name: learn[name] for name in ("value_weight", "entropy_weight")}
        self.gradient = ms.value_and_grad(self.loss, None, self.optim.params, has_aux=True)

    def loss(self, obs, action, batch):
        outputs = self.net(obs)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], action)
        return a3c_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def step(self, index, learning_rate, tables):
        n = self.num_leaves
        fields = self.rows(index, tables)
        metrics, grads = self.gradient(fields[:n], fields[n], fields[n + 1 :])
        norm = self.optim(grads, learning_rate, metrics)
        return lean.stacked((*metrics, norm))


class A3C(ActorCriticPolicy):
    """Asynchronous advantage actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "a3c"

    def _root(self, net: ActorCritic, rng: np.random.Generator) -> A3CCell:
        return A3CCell(net, self)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, "log_prob": Field(), "return": Field()}

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        rate = self.learning_rate(progress)
        total = self._update(batch.tables, batch.index, np.array(rate, np.float32))
        self.update_normalizers(batch)
        steps = len(batch.index)
        metrics = {name: float(value) / steps for name, value in zip(METRICS, total)}
        return {**metrics, "learning_rate": rate, "grad_steps": steps}
