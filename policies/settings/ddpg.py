"""Settings of DDPG."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": groups.model([256, 256], "relu", critics=True),
        "learn": {**groups.off_policy_learn(1e-3, 256, 8), **groups.soft_targets(per="gradient step")},
        "collect": {**groups.collect(8), **groups.random_steps(), **groups.noise("ou", 0.2)},
        "eval": groups.evaluation(),
        "other": {**groups.replay(1_000_000), **groups.hindsight(), **groups.prior_data()},
    }


algorithm = Algorithm("ddpg", "DDPG", schema, actions=("box",), chain="off_policy", unit_box=True)
