"""TD3+BC: TD3 on recorded data, whose actor also imitates the recorded actions; ReBRAC by its switches.

Fujimoto and Gu, 2021, https://arxiv.org/abs/2106.06860, eq. 3 to 5; the target's penalty: Tarasov et al., 2023,
https://arxiv.org/abs/2305.09836, eq. 5.

    a' = clip(pi_target(s') + e, -1, 1),   e = clip(N(0, sigma), -c, c)
    y = R + gamma (1 - terminated) ( min_i Q_target_i(s', a') - beta |a' - a'_data|^2 )
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = mean_s[ -lambda Q_1(s, pi(s)) + mean_i (pi(s)_i - a_i)^2 ],   lambda = alpha / mean_s |Q_1(s, pi(s))|

beta is `critic_penalty`, which is 0 in TD3+BC. a'_data is the action recorded in s'; at the end of an episode, where no
action was recorded, the penalty is 0. Every d-th step, the actor is updated with the updated critics, and then the
targets.

ReBRAC weights the penalty of its actor, a sum over the A dimensions, by beta_1. This corresponds to
``alpha = 1 / (beta_1 A)`` here, up to a factor of the loss, which does not change Adam's updates. The actor of ReBRAC
maximizes the smaller of both critics; here the actor maximizes the first critic, as in TD3.
"""

from collections.abc import Mapping
from typing import Any

from minding.engine.data.batch import Field
from minding.engine.process.runtime import ops
from minding.policies.families.critics_first import TwinDelayed, TwinDelayedPolicy
from minding.policies.networks.actor_critic import CriticEnsemble, DeterministicActor
from minding.policies.ops import primitives
from minding.policies.ops.values import lowest


class TD3BCCell(TwinDelayed):
    """Root cell: see `TwinDelayed`."""

    metrics = (*TwinDelayed.metrics, "cloning_loss")
    of_actor = ("actor_loss", "cloning_loss")
    has_action_values = True

    def __init__(
        self,
        actors: tuple[DeterministicActor, DeterministicActor],
        critics: tuple[CriticEnsemble, CriticEnsemble],
        learn: Mapping[str, Any],
    ) -> None:
        super().__init__(actors, critics, learn)
        self.alpha, self.penalty = float(learn["alpha"]), float(learn["critic_penalty"])

    def td_target(self, batch):
        action = self.next_actions(batch)
        q = self.target_critics(action, batch["next_obs"])
        if self.penalty > 0.0:
            apart = squared_distance(action, batch["next_action"])
            q = q - self.penalty * batch["next_known"] * apart
        return self.value_target(batch["reward"], batch["discount"], batch["terminated"], q)

    def action_value(self, action, obs):
        return lowest(self.critics(action, obs))

    def loss_of_actor(self, batch):
        action = self.net(batch["obs"])[0]
        q = self.critics.q1(action, batch["obs"])
        cloning = primitives.mean(squared_distance(action, batch["action"])) / action.shape[-1]
        scale = self.alpha / ops.maximum(primitives.mean(ops.Abs()(ops.stop_gradient(q))), 1e-8)
        loss = cloning - scale * primitives.mean(q)
        return loss, {"actor_loss": loss, "cloning_loss": ops.stop_gradient(cloning)}


def squared_distance(action, recorded):
    """sum_i (a_i - b_i)^2, float32 (B,), for the actions a (B, A) and the recorded actions b (B, *shape)."""
    return ops.ReduceSum()(ops.Square()(action - recorded.reshape(action.shape)), -1)


class TD3BC(TwinDelayedPolicy):
    """TD3 with behavioral cloning, from recorded data with Box actions in [-1, 1]."""

    name = "td3_bc"
    step_class = TD3BCCell

    @property
    def row_fields(self) -> dict[str, Field]:
        fields = dict(self.transition_fields)
        if self.cfg.learn.critic_penalty:
            # The action recorded in the next state, and whether an action was recorded there.
            fields |= {"next_action": self.action_field, "next_known": Field()}
        return fields
