"""AWAC: an actor that imitates recorded actions, weighted by their advantage; training can continue in the environment.

Nair et al., 2020, https://arxiv.org/abs/2006.09359, algorithm 1, eq. 6 and 13.

    y = R + gamma (1 - terminated) min_i Q_target_i(s', a'),   a' ~ pi(s') within [-1, 1]
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    A(s, a) = min_i Q_i(s, a) - min_i Q_i(s, a~),   a~ ~ pi(s) within [-1, 1]
    L_pi = -mean[ min(exp(A(s, a) / lambda), limit) log pi(a|s) ]

1 / lambda is `weight_scale`. The limit, which the paper does not have, keeps single rows from dominating a step. As in
the authors' code, the standard deviation of pi does not depend on the state, and a single action a~ estimates the
state's value.
"""

import numpy as np

from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.families.weighted_regression import WeightedRegression, WeightedRegressionPolicy


class AWACCell(WeightedRegression):
    """Root cell: see `WeightedRegression`."""

    def td_target(self, batch):
        action = self.drawn(batch["next_obs"], batch["next_noise"])
        q = self.targets(action, batch["next_obs"])
        return self.value_target(batch["reward"], batch["discount"], batch["terminated"], q)

    def advantage(self, batch):
        obs = batch["obs"]
        own = self.action_value(self.drawn(obs, batch["noise"]), obs)
        return self.action_value(batch["action"], obs) - own

    def drawn(self, obs, noise):
        """Actions of the policy within [-1, 1], float32 (B, A)."""
        mean, log_std = self.net(obs)
        return ops.clamp(mean + ops.Exp()(self.limit_log_std(log_std)) * noise, -1.0, 1.0)


class AWAC(WeightedRegressionPolicy):
    """Advantage-weighted actor-critic, from recorded data with Box actions in [-1, 1]."""

    name = "awac"
    step_class = AWACCell

    def noise(self, shape: tuple[int, ...]) -> dict[str, Array]:
        steps, *row = shape
        # Drawn step by step, so that the numbers do not depend on the number of steps per call.
        noise = self.learn_rng.standard_normal((steps, 2, *row), dtype=np.float32)
        return {"next_noise": noise[:, 0], "noise": noise[:, 1]}
