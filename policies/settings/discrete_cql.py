"""Settings of discrete CQL."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([128, 128], "relu"),
            "dueling": opt(False, None, "separate streams for state value and advantages"),
        },
        "learn": {
            **groups.recorded_learn(1e-3, 128),
            "grad_norm": opt(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **groups.target(250, "soft"),
            "alpha": opt(1.0, "[0, inf)", "weight of the gap between all actions and the recorded ones"),
        },
        "collect": groups.acting(),
        "eval": groups.recorded_evaluation(),
        "other": {**groups.recorded(), **groups.rewards()},
    }


algorithm = Algorithm("discrete_cql", "DiscreteCQL", schema, actions=("discrete",), chain="offline", unit="train_iter")
