"""IMPALA: actor-critic on trajectories of an older policy, corrected by V-trace.

Espeholt et al., 2018, https://arxiv.org/abs/1802.01561, eq. 1 and section 4.2. v and A come from `ops.values`, which
uses the recorded log-probabilities of the acting policy mu; both are constants for the gradient:

    L = -mean[ A_t log pi(a_t|s_t) ] + c_v 1/2 mean[ (V(s_t) - v_t)^2 ] - c_e mean[ H ]
"""

from collections.abc import Mapping
from typing import Any

from minding.engine.data.batch import Field
from minding.engine.process.runtime import ops
from minding.policies.families.actor_critic import ActorCriticPolicy, ActorCriticStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.ops.advantage_loss import ADVANTAGE_METRICS
from minding.policies.ops.values import vtrace

NUMBERS = ("log_prob", "reward", "terminated", "cut", "valid")
"""Row fields with one number per row."""


def impala_loss(log_prob, entropy, value, batch, cfg):
    """The loss of a block of trajectories; rows that are not valid do not count.

    Args:
      log_prob, value: log-probability and value by the current network, float32 (T, N).
      entropy: entropy by the current network, float32 (T, N) or scalar.
      batch: by name: `log_prob` (of the acting policy), `reward`, `terminated`, `cut`, `valid` and `next_value` (of the
        true successor), each float32 (T, N).
    """
    valid = batch["valid"]
    # Target
    log_ratio = ops.stop_gradient(log_prob) - batch["log_prob"]
    ratio = ops.exp(log_ratio)
    old_value = ops.stop_gradient(value)
    td_error = batch["reward"] + cfg["gamma"] * (1.0 - batch["terminated"]) * batch["next_value"] - old_value
    decay = cfg["gamma"] * cfg["vtrace_lambda"] * (1.0 - batch["cut"])
    correction, advantage = vtrace(ratio, td_error, decay, cfg["rho_bar"], cfg["c_bar"])
    # Loss
    weight = valid / ops.maximum(_total(valid), 1.0)
    policy_loss = -_total(weight * advantage * log_prob)
    value_loss = 0.5 * _total(weight * ops.square(value - old_value - correction))
    entropy = _total(weight * entropy)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    kl, rho = _total(weight * (ratio - 1.0 - log_ratio)), _total(weight * ops.clamp(ratio, max=cfg["rho_bar"]))
    return loss, policy_loss, value_loss, entropy, kl, rho


def _total(x):
    # Summing over two axes at once is slow.
    return x.reshape((-1,)).sum()


class IMPALACell(ActorCriticStep):
    """Root cell: network and optimizer. A step takes rows ordered by time, (T, N)."""

    metrics = (*ADVANTAGE_METRICS, "rho", "grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        names = ("gamma", "vtrace_lambda", "rho_bar", "c_bar", "value_weight", "entropy_weight")
        super().__init__(net, learn, names)

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        shape = batch["index"].shape
        if entropy.ndim == 1:
            entropy = entropy.reshape(shape)
        results = impala_loss(log_prob.reshape(shape), entropy, value.reshape(shape), batch, self.cfg)
        return results[0], self.named(results)

    def construct(self, batch):
        shape = batch["index"].shape
        for name in NUMBERS:
            batch[name] = batch[name].reshape(shape)
        batch["next_value"] = self.net(batch["next_obs"])[0].reshape(shape)
        return self.step(batch)


class IMPALA(ActorCriticPolicy):
    """Importance-weighted actor-learner for Discrete, MultiDiscrete and Box actions; learns from whole trajectories."""

    name = "impala"
    step_class = IMPALACell
    scalar_fields = NUMBERS
    # V-trace needs values of the current network, not of the acting network.
    record_fields = ("log_prob",)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), **self.obs_fields("next_obs"), **super().row_fields}
