"""The networks of MuZero: representation, dynamics and prediction, in one cell that acts and plans.

Schrittwieser et al., 2020, https://arxiv.org/abs/1911.08265, appendices F and G.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.acting import compositions
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear
from minding.policies.networks.world_model import SymlogEncoder, TwoHotNumber


class PlanningNetwork(Composed, compositions.PlanningNetwork):
    """Takes the observation leaves; to plan, it takes more leaves, of which only the last one is read: rows (latent,
    action), float32 (B, D + A). Returns (logits (B, A), value (B,), latent (B, D), reward (B,)).

    From observations, the reward is 0, and logits of actions that the mask forbids are `ILLEGAL`. From rows, the latent
    and the reward are those that follow the action, a one-hot. Each latent is scaled to [0, 1] by its own minimum and
    maximum.
    """

    memory_size = 0
    shared_outputs = ()
    decision = Decision(0, "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        size, actions = model.latent, spec["action"]["n"]
        self.seen = SymlogEncoder(spec, model, rng)
        self.num_leaves = len(self.seen.squeezed)
        self.first = Linear(self.seen.out_features, size, None, rng)
        self.transition = MLP.of(size + actions, model, None, rng)
        self.later = Linear(self.transition.out_features, size, None, rng)
        self.reward = TwoHotNumber(size, model, rng)
        self.value = TwoHotNumber(size, model, rng)
        self.policy = MLP.of(size, model, None, rng)
        self.logits = Linear(self.policy.out_features, actions, 0.01, rng)
        self.mask = action_mask(spec["observation"])
        self.table = ms.Tensor(np.eye(actions, dtype=np.float32))

    def after(self, latent, action):
        """The latents (B, D) after actions, int32 (B,), in latents (B, D)."""
        return self.follow(ops.Concat(-1)((latent, ops.Gather()(self.table, action, 0))))
