"""Settings of AC."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        "learning_rate": opt(1e-3, "(0, 1]", "learning rate of the actor"),
        "critic_learning_rate": opt(1e-3, "(0, 1]", "learning rate of the critic"),
        **groups.optimizer("adam"),
        **groups.passes(1, 1),
        "gae_lambda": opt(0.0, "[0, 1]", "bias-variance trade-off of GAE; 0: one-step TD errors"),
        "entropy_weight": opt(0.0, "[0, inf)", "weight of the entropy bonus"),
        "value_weight": opt(1.0, "[0, inf)", "weight of the value loss"),
    }
    return groups.actor_critic(learn, 8)


algorithm = Algorithm("ac", "AC", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy")
