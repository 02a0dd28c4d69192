"""MAPPO: PPO for a team of agents, with a value function that sees the state of the whole environment.

Yu et al., 2022, https://arxiv.org/abs/2103.01955, appendix A; PPO: Schulman et al., 2017,
https://arxiv.org/abs/1707.06347; the moments of the returns as in PopArt: van Hasselt et al., 2016,
https://arxiv.org/abs/1602.07714.

    r_t = pi(a_t|o_t) / pi_old(a_t|o_t),   V(o_t, s_t, m) = sigma v + mu
    L = sum alive max(-A r, -A clip(r, 1-e, 1+e)) / sum alive + c_v L_value - c_e H
    L_value = mean[ max(h(v - (R - mu) / sigma), h(v_old + clip(v - v_old, -e, e) - (R - mu) / sigma)) ]
    h(x) = x^2/2 for |x| <= d, else d (|x| - d/2)

Agents share one network and are rows of one batch. Each agent acts by its own observation o, or by its memory of
observations, and has its own advantage A; the agent number m tells the value function whose return to estimate. With
one reward for the whole team, the return of an agent does not end when it leaves: from then on, the value function sees
only m ("death masking"), and the actor does not learn from these rows.

In an asynchronous run, the advantage is weighted as in PPO.
"""

from collections.abc import Mapping
from typing import Any

from minding.policies.families.actor_critic import ProximalStep
from minding.policies.families.central_critic import (
    CentralActorCritic,
    CentralCriticPolicy,
    in_units_of_head,
    value_loss,
)
from minding.policies.ops.policy_gradient import clipped_surrogate, row_mean


def mappo_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one minibatch.

    Args:
      log_prob, value: log-probability and normalized value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: the old `log_prob` and `value`, `advantage`, `return`, `acting`, which is 0 for rows from which
        the actor does not learn, and, if some rows do not count, `valid`, each float32 (B,). Values and returns are
        normalized.
    """
    acting = {"valid": batch["acting"]}
    policy_loss, kl, clip_fraction = clipped_surrogate(log_prob, batch, acting, cfg["clip_ratio"])
    entropy = row_mean(entropy, acting)
    of_value = value_loss(value, batch, cfg)
    loss = policy_loss + cfg["value_weight"] * of_value - cfg["entropy_weight"] * entropy
    return loss, policy_loss, of_value, entropy, kl, clip_fraction


class MAPPOCell(ProximalStep):
    """Root cell: network and optimizer."""

    def __init__(self, net: CentralActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("clip_ratio", "value_clip", "value_weight", "entropy_weight", "huber_delta"))

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        results = mappo_loss(log_prob, entropy, value, batch, self.cfg)
        return results[0], self.named(results)

    def construct(self, batch):
        return self.step(self.with_proximal(in_units_of_head(batch, self.net.critic.value)))


class MAPPO(CentralCriticPolicy):
    """Multi-agent proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "mappo"
    step_class = MAPPOCell
    network_class = CentralActorCritic
