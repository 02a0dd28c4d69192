"""Settings of TD3."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.replayed_critics(groups.twin_delayed(), collect_keys=groups.noise("gaussian", 0.1))


algorithm = Algorithm("td3", "TD3", schema, actions=("box",), chain="off_policy", unit_box=True)
