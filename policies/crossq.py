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
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions
from minding.policies.families.soft_actor_critic import DelayedActorStep, SquashedGaussianPolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import ActionValue, CriticEnsemble, SquashedActor
from minding.policies.networks.layers import MLP, Composed
from minding.policies.ops.primitives import after
from minding.policies.ops.values import soft_target
from minding.policies.settings.replayed_critics import CrossQSettings

EPSILON, SHARE = 1e-3, 0.01
"""Number that is added to variances, and weight of a batch in the moving averages."""
R_MAX, D_MAX = 3.0, 5.0
"""Bounds of the corrections."""


class BatchRenorm(Composed, compositions.BatchRenorm):
    """Normalizes each column of x ``(B, size)``, with a learned weight and bias, which start at 1 and 0.

        y = ((x - mean_B) / std_B * r + d) * weight + bias             (learning)
        r = clip(std_B / std, 1 / r_max, r_max),   d = clip((mean_B - mean) / std, -d_max, d_max)
        y = (x - mean) / std * weight + bias                           (else)

    mean and std^2 - 1e-3 are moving averages of the means and the biased variances of batches; they start at 0 and 1.
    No gradient flows through r and d (Ioffe, 2017, https://arxiv.org/abs/1702.03275, algorithm 1). Without
    renormalization r is 1 and d is 0 (batch normalization: Ioffe and Szegedy, 2015, https://arxiv.org/abs/1502.03167).
    Learning returns the moments of the batch. Whoever updates the weights then moves the averages by `move`.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.epsilon = EPSILON
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="bias")
        self.mean = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="mean", requires_grad=False)
        self.variance = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="variance", requires_grad=False)

    def learn(self, x, renorm):
        """The result for a batch x, float32 (B, size), and its mean and variance, (size,) each."""
        mean = ops.ReduceMean()(x, 0)
        x = x - mean
        variance = ops.ReduceMean()(x * x, 0)
        std, usual = ops.Sqrt()(variance + EPSILON), ops.Sqrt()(self.variance + EPSILON)
        most, shift = 1.0 + (R_MAX - 1.0) * renorm, D_MAX * renorm
        r = ops.stop_gradient(ops.Minimum()(ops.Maximum()(std / usual, 1.0 / most), most))
        d = ops.stop_gradient(ops.Minimum()(ops.Maximum()((mean - self.mean) / usual, -shift), shift))
        return (x / std * r + d) * self.weight + self.bias, (ops.stop_gradient(mean), ops.stop_gradient(variance))

    def move(self, moments, done):
        """Moves the averages towards the moments of a batch, after `done`; returns a result that comes after it."""
        mean, variance = moments
        step_of_mean = SHARE * (mean - after(self.mean, done))
        step_of_variance = SHARE * (variance - after(self.variance, done))
        return ops.AssignAdd()(self.mean, step_of_mean), ops.AssignAdd()(self.variance, step_of_variance)


class RenormedMLP(MLP, compositions.RenormedMLP):
    """An `MLP` with a `BatchRenorm` of its input and after each activation."""

    def __init__(self, in_features: int, *args: Any) -> None:
        super().__init__(in_features, *args)
        sizes = [in_features, *(layer.bias.shape[0] for layer in self.layers)]
        self.renorms = nn.CellList([BatchRenorm(size) for size in sizes])

    def into(self, head, x, seed=None):
        return head(self.construct(x))

    def learn(self, x, renorm):
        """The features of a batch, and the moments of each normalization; for the arguments see `BatchRenorm`."""
        x, first = self.renorms[0].learn(x, renorm)
        moments: Any = (first,)
        for k in range(len(self.layers)):
            x, found = self.renorms[k + 1].learn(self.activated(x, k), renorm)
            moments = (*moments, found)
        return x, moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        moved: Any = ()
        for k in range(len(self.renorms)):
            moved = (*moved, *self.renorms[k].move(moments[k], done))
        return moved


class RenormedActor(SquashedActor):
    """A `SquashedActor` with batch renormalization."""

    torso_class = RenormedMLP

    def learn(self, obs, renorm):
        """The outputs for a batch, and its moments; for `renorm` see `BatchRenorm`."""
        features, moments = self.torso.learn(self.encoder(obs), renorm)
        return self.head(features), moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        return self.torso.move(moments, done)


class RenormedValue(ActionValue):
    """An `ActionValue` with batch renormalization."""

    torso_class = RenormedMLP

    def learn(self, action, obs, renorm):
        """Q(s, a) of a batch, float32 (B,), and its moments; for `renorm` see `BatchRenorm`."""
        features, moments = self.torso.learn(ops.Concat(-1)((self.encoder(obs), action)), renorm)
        return self.value(features), moments


class RenormedEnsemble(CriticEnsemble):
    """A `CriticEnsemble` of `RenormedValue`."""

    def learn(self, action, obs, renorm):
        """Values (N, B) of a batch, and its moments; for the arguments see `RenormedValue`."""
        values: Any = ()
        moments: Any = ()
        for member in self.members:
            value, found = member.learn(action, obs, renorm)
            values, moments = (*values, value), (*moments, found)
        return ops.Stack()(values), moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        moved: Any = ()
        for k in range(len(self.members)):
            moved = (*moved, *self.members[k].torso.move(moments[k], done))
        return moved


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
