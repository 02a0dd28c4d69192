"""Settings of DDPG."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = groups.soft_targets(per="gradient step")
    return groups.replayed_critics(learn, collect_keys=groups.noise("ou", 0.2))


algorithm = Algorithm("ddpg", "DDPG", schema, actions=("box",), chain="off_policy", unit_box=True)
