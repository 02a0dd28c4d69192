"""Settings of SAC."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": groups.model([256, 256], "relu", critics=True),
        "learn": {
            **groups.off_policy_learn(3e-4, 256, 8),
            **groups.soft_targets(network="critics", per="gradient step"),
            **groups.temperature(),
        },
        "collect": {**groups.collect(8), **groups.random_steps()},
        "eval": groups.evaluation(),
        "other": {**groups.replay(1_000_000), **groups.hindsight(), **groups.prior_data()},
    }


algorithm = Algorithm("sac", "SAC", schema, actions=("box",), chain="off_policy", unit_box=True)
