"""Settings of SAC."""

from __future__ import annotations

from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {**LearnSection.options(learning_rate=3e-4), **groups.temperature()}
    return groups.replayed_critics({**learn, **groups.soft_targets(network="critics", per="gradient step")})


algorithm = Algorithm("sac", "SAC", schema, actions=("box",), chain="off_policy", unit_box=True)
