"""Settings of A2C."""

from __future__ import annotations

from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.optimizer("rmsprop"),
        **groups.passes(1, 1),
        **groups.described(
            LearnSection.options(learning_rate=7e-4, gae_lambda=1.0, normalize_advantage=False),
            learning_rate="learning rate",
            gae_lambda="bias-variance trade-off of GAE; 1: n-step returns",
        ),
    }
    schema = groups.actor_critic(learn, 40)
    schema["model"] |= groups.memory()
    return schema


algorithm = Algorithm(
    "a2c", "A2C", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy", agents="any"
)
