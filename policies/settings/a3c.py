"""Settings of A3C."""

from __future__ import annotations

from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.actor_critic(
        groups.described(
            LearnSection.options(gae_lambda=1.0), gae_lambda="bias-variance trade-off of GAE; 1: n-step returns"
        ),
        160,
    )


algorithm = Algorithm("a3c", "A3C", schema, actions=("discrete", "multi_discrete", "box"), chain="single_step")
