"""Settings of C51."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.action_values(groups.support())


algorithm = Algorithm("c51", "C51", schema, actions=("discrete",), chain="off_policy")
