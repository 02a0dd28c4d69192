"""Settings of PPO."""

from __future__ import annotations

from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.passes(4, 4),
        **LearnSection.options("gae_lambda", "clip_ratio", "value_clip", "normalize_advantage", "target_kl"),
    }
    schema = groups.actor_critic(learn, 1024)
    schema["model"] |= groups.memory()
    schema["other"] |= groups.rnd()
    return schema


algorithm = Algorithm(
    "ppo", "PPO", schema, actions=("discrete", "multi_discrete", "box"), chain="on_policy", agents="any"
)
