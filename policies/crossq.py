"""CrossQ: soft actor-critic with batch renormalization and without target networks.

Bhatt et al., 2024, https://arxiv.org/abs/1902.05605, section 3 and figure 2.

    [Q_i; Q'_i] = Q_i([s; s'], [a; a']),   a' ~ pi(s')                (one pass, one normalization of both halves)
    y = R + gamma^k (1 - terminated) [ min_i Q'_i - alpha log pi(a'|s') ]
    L_Q = mean[ sum_i 1/2 (Q_i - y)^2 ]
    L_pi = mean[ alpha log pi(a|s) - min_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

No gradient flows through y. The critics are updated in each step, actor and temperature in every `policy_delay`-th one,
with the new critics. The actor acts, and the critics judge it, with moving averages of the moments of batches.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import nn, ops
from minding.policies.families.soft_actor_critic import DelayedActorStep, SquashedGaussianPolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.networks.batch_renorm import RenormedActor, RenormedEnsemble, RenormedValue
from minding.policies.ops.values import soft_target
from minding.policies.settings.replayed_critics import CrossQSettings

BETA = 0.5
"""Decay of Adam's average of gradients (appendix A)."""


class CrossQCell(DelayedActorStep):
    """Root cell: see `DelayedActorStep`."""

    def group(self, net: nn.Cell, learn: Mapping[str, Any]) -> Group:
        group = super().group(net, learn)
        return dataclasses.replace(group, betas=(BETA, group.betas[1]))

    def td_target(self, batch):
        """a', float32 (B, A), and log pi(a'|s'), (B,); their values come from the pass of `loss_of_critics`."""
        return self.drawn(batch["next_obs"], batch["next_noise"])

    def loss_of_critics(self, batch):
        next_action, log_prob = ops.stop_gradient(batch["target"])
        rows = log_prob.shape[0]
        action = ops.Concat(0)((ops.Reshape()(batch["action"], next_action.shape), next_action))
        obs: Any = ()
        for k in range(len(batch["obs"])):
            obs = (*obs, ops.Concat(0)((batch["obs"][k], batch["next_obs"][k])))
        both, moments = self.critics.learn(action, obs, batch["renorm"])
        size = (both.shape[0], rows)
        q, following = ops.Slice()(both, (0, 0), size), ops.Slice()(both, (0, rows), size)
        given = (batch["reward"], batch["discount"], batch["terminated"], ops.stop_gradient(following))
        loss, value = self.critic_loss(q, ops.stop_gradient(soft_target(*given, log_prob, batch["alpha"])))
        return loss, {"critic_loss": loss, "q_value": value, "moments": moments}

    def follow_critics(self, batch, critics, norm):
        return norm, self.critics.move(critics["moments"], norm)

    def loss_of_actor(self, batch):
        (mean, log_std), moments = self.net.learn(batch["obs"], batch["renorm"])
        action, log_prob = self.squashed(mean, log_std, batch["noise"])
        loss, log_prob = self.policy_loss(self.critics(action, batch["obs"]), log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob, "moments": moments}

    def follow_actor(self, batch, actor, norms):
        return norms, self.net.move(actor["moments"], norms["actor"])


class CrossQ(SquashedGaussianPolicy):
    """CrossQ for Box actions in [-1, 1]."""

    cfg: CrossQSettings
    name = "crossq"
    step_class = CrossQCell
    network_class = RenormedActor
    critic_class = RenormedValue
    ensemble_class = RenormedEnsemble
    has_targets = False
    counts_steps = True

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        count = len(batch.index)
        noise = self.learn_rng.standard_normal((2, *batch.index.shape, self.action_size), dtype=np.float32)
        due, number = self.due(count), self.learn_steps + np.arange(count)
        renorm = (number >= self.cfg.learn.renorm_after).astype(np.float32)
        steps = {"next_noise": noise[0], "noise": noise[1], "due": due, "renorm": renorm}
        return Inputs(steps, self.constants(progress), dict.fromkeys(self.root.of_actor, int(due.sum())))
