"""Settings of PPO."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.passes(4, 4),
        "gae_lambda": opt(0.95, "[0, 1]", "bias-variance trade-off of GAE"),
        "clip_ratio": opt(0.2, "(0, 1)", "clip range of the probability ratio"),
        "value_clip": opt(True, None, "clip the change in value to clip_ratio"),
        "normalize_advantage": opt(True, None, "normalize advantages to zero mean and unit variance in each minibatch"),
        "target_kl": opt(
            None,
            "(0, inf)",
            "skip the remaining gradient steps on a rollout once the KL divergence exceeds 1.5 times this",
            type=float,
        ),
    }
    schema = groups.actor_critic(learn, 1024)
    schema["model"] |= groups.memory()
    schema["other"] |= groups.rnd()
    return schema


algorithm = Algorithm(
    "ppo", "PPO", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy", agents="any"
)
