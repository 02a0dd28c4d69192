"""Settings of AC."""

from __future__ import annotations

from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.optimizer("adam"),
        **groups.passes(1, 1),
        **groups.described(
            LearnSection.options(
                "critic_learning_rate", learning_rate=1e-3, gae_lambda=0.0, entropy_weight=0.0, value_weight=1.0
            ),
            learning_rate="learning rate of the actor",
            gae_lambda="bias-variance trade-off of GAE; 0: one-step TD errors",
        ),
    }
    return groups.actor_critic(learn, 8)


algorithm = Algorithm("ac", "AC", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy")
