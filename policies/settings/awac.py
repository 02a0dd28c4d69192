"""Settings of AWAC."""

from __future__ import annotations

from minding.engine.config.config import ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    collect, learn, other = groups.online(8)
    return {
        "model": {
            **groups.model([256, 256], "relu", critics=True),
            **groups.described(ModelSection.options("log_std"), log_std="initial log standard deviation of actions"),
        },
        "learn": {**groups.recorded_learn(3e-4, 256), **learn, **groups.weighted_regression(1.0, 100.0)},
        "collect": {**collect, **groups.acting()},
        "eval": groups.recorded_evaluation(),
        "other": {**groups.recorded(), **other, **groups.rewards()},
    }


algorithm = Algorithm("awac", "AWAC", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
