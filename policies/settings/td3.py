"""Settings of TD3."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": groups.model([256, 256], "relu"),
        "learn": {
            **groups.off_policy_learn(1e-3, 256, 8),
            "tau": opt(
                0.005, "(0, 1]", "weight of the online networks in the moving average of the targets, per target update"
            ),
            "policy_delay": opt(2, "[1, inf)", "critic updates per update of the actor and the targets"),
            "target_noise": opt(
                0.2, "[0, inf)", "standard deviation of the noise on target actions (target policy smoothing)"
            ),
            "noise_clip": opt(0.5, "[0, inf)", "clipping range of that noise"),
        },
        "collect": {**groups.collect(8), **groups.random_steps(), **groups.noise("gaussian", 0.1)},
        "eval": groups.evaluation(),
        "other": {**groups.replay(1_000_000), **groups.hindsight()},
    }


algorithm = Algorithm("td3", "TD3", schema, actions=("box",), chain="off_policy", unit_box=True)
