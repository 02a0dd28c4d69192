"""Settings of A2C."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        "learning_rate": opt(7e-4, "(0, 1]", "learning rate"),
        **groups.optimizer("rmsprop"),
        **groups.passes(1, 1),
        "gae_lambda": opt(1.0, "[0, 1]", "bias-variance trade-off of GAE; 1: n-step returns"),
        "normalize_advantage": opt(
            False, None, "normalize advantages to zero mean and unit variance in each minibatch"
        ),
    }
    schema = groups.actor_critic(learn, 40)
    schema["model"] |= groups.memory()
    return schema


algorithm = Algorithm(
    "a2c", "A2C", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy", agents="any"
)
