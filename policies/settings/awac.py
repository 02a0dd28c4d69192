"""Settings of AWAC."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.recorded_critics(groups.weighted_regression(1.0, 100.0), groups.action_deviation())


algorithm = Algorithm("awac", "AWAC", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
