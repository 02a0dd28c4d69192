"""TD3: deterministic actor-critic with twin critics, delayed updates of the actor, and noise on the target action.

Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477, algorithm 1.

    a' = clip(pi_target(s') + e, -1, 1),   e = clip(N(0, sigma), -c, c)
    y = R + gamma^k (1 - terminated) min_i Q_target_i(s', a')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = -mean[ Q_1(s, pi(s)) ]              (every d-th step, with the updated critics; then targets are updated)
"""

from minding.policies.families.critics_first import TwinDelayed, TwinDelayedPolicy
from minding.policies.ops import primitives


class TD3Cell(TwinDelayed):
    """Root cell: see `TwinDelayed`."""

    def td_target(self, batch):
        q = self.target_critics(self.next_actions(batch), batch["next_obs"])
        return self.value_target(batch["reward"], batch["discount"], batch["terminated"], q)

    def loss_of_actor(self, batch):
        loss = -primitives.mean(self.critics.q1(self.net(batch["obs"])[0], batch["obs"]))
        return loss, {"actor_loss": loss}


class TD3(TwinDelayedPolicy):
    """Twin delayed deep deterministic policy gradient for Box actions in [-1, 1]."""

    name = "td3"
    step_class = TD3Cell
