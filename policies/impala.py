"""IMPALA: actor-critic on trajectories of an older policy, corrected by V-trace.

Espeholt et al., 2018, https://arxiv.org/abs/1802.01561, eq. 1 and section 4.2. With the acting policy mu, whose
log-probabilities are part of the data, and v and A of `ops.vtrace`, both constants for the gradient:

    L = -mean[ A_t log pi(a_t|s_t) ] + c_v 1/2 mean[ (V(s_t) - v_t)^2 ] - c_e mean[ H ]
"""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.core.actor_critic import ActorCriticPolicy
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.networks.steps import GradientSteps
from minding.policies.ops import lean
from minding.policies.ops.vtrace import vtrace

METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "rho", "grad_norm")
NUMBERS = ("log_prob", "reward", "terminated", "cut", "valid")
"""Row fields of one number, in the order in which `impala_loss` takes them."""


def impala_loss(log_prob, entropy, value, batch, cfg):
    """The loss of a block of trajectories; rows that are not valid do not count.

    Args:
      log_prob, value: float32 (T, N), of the current network; entropy: float32 (T, N) or scalar.
      batch: (log-probability of the acting policy, reward, terminated, cut, valid, value of the true successor), each
        float32 (T, N).
      cfg: the `learn` part of the configuration.

    Returns:
      (loss, policy loss, value loss, entropy, KL estimate, mean rho), scalars. The KL estimate is
      ``mean[(r - 1) - log r]`` (http://joschu.net/blog/kl-approx.html).
    """
    old_log_prob, reward, terminated, cut, valid, next_value = batch
    # Target
    log_ratio = ops.stop_gradient(log_prob) - old_log_prob
    ratio = ops.exp(log_ratio)
    old_value = ops.stop_gradient(value)
    td_error = reward + cfg["gamma"] * (1.0 - terminated) * next_value - old_value
    decay = cfg["gamma"] * cfg["vtrace_lambda"] * (1.0 - cut)
    correction, advantage = vtrace(ratio, td_error, decay, cfg["rho_bar"], cfg["c_bar"])
    # Loss
    weight = valid / ops.maximum(_total(valid), 1.0)
    policy_loss = -_total(weight * advantage * log_prob)
    value_loss = 0.5 * _total(weight * ops.square(value - old_value - correction))
    entropy = _total(weight * entropy)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    kl = _total(weight * (ratio - 1.0 - log_ratio))
    rho = _total(weight * ops.clamp(ratio, max=cfg["rho_bar"]))
    return loss, policy_loss, value_loss, entropy, kl, rho


def _total(x):
    # A sum over two axes at once is slow.
    return x.reshape((-1,)).sum()


class IMPALACell(GradientSteps):
    """Root cell: network and optimizer; `step` is one gradient step."""

    def __init__(self, net: ActorCritic, policy: IMPALA) -> None:
        super().__init__(len(METRICS))
        learn = policy.cfg.learn
        self.net = net
        self.optim = Adam(net.trainable_params(), eps=1e-5, max_grad_norm=learn.grad_norm)
        obs_names = [*policy.obs_fields("obs"), *policy.obs_fields("next_obs")]
        self.rows = Rows(policy.layout, [*obs_names, "action", *NUMBERS])
        self.num_leaves = len(policy.leaves)
        # A plain dict of numbers: they are compiled in as constants.
        names = ("gamma", "vtrace_lambda", "rho_bar", "c_bar", "value_weight", "entropy_weight")
        self.cfg = {name: learn[name] for name in names}
        self.gradient = ms.value_and_grad(self.loss, None, self.optim.params, has_aux=True)

    def loss(self, obs, action, batch):
        outputs = self.net(obs)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], action)
        shape = batch[0].shape
        if entropy.ndim == 1:
            entropy = entropy.reshape(shape)
        return impala_loss(log_prob.reshape(shape), entropy, outputs[0].reshape(shape), batch, self.cfg)

    def step(self, index, learning_rate, tables):
        n = self.num_leaves
        fields = self.rows(index.reshape((-1,)), tables)
        batch = []
        for column in fields[2 * n + 1 :]:
            batch.append(column.reshape(index.shape))
        batch.append(self.net(fields[n : 2 * n])[0].reshape(index.shape))
        metrics, grads = self.gradient(fields[:n], fields[2 * n], batch)
        norm = self.optim(grads, learning_rate, metrics)
        return lean.stacked((*metrics, norm))


class IMPALA(ActorCriticPolicy):
    """Importance-weighted actor-learner for Discrete, MultiDiscrete and Box actions; learns from whole trajectories."""

    name = "impala"

    def _root(self, net: ActorCritic, rng: np.random.Generator) -> IMPALACell:
        return IMPALACell(net, self)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {
            **self.obs_fields("obs"),
            **self.obs_fields("next_obs"),
            "action": self.action_field,
            **dict.fromkeys(NUMBERS, Field()),
        }

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        rate = self.learning_rate(progress)
        total = self._update(batch.tables, batch.index, np.array(rate, np.float32))
        steps = len(batch.index)
        # Reset rows are part of the trajectories, but nothing is learned from them.
        valid = batch.layout.read(batch.tables.host, "valid", batch.index) > 0
        self.update_normalizers(dataclasses.replace(batch, index=batch.index[valid]))
        metrics = {name: float(value) / steps for name, value in zip(METRICS, total)}
        return {**metrics, "learning_rate": rate, "grad_steps": steps}
