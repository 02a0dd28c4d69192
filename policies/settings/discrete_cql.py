"""Settings of discrete CQL."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([128, 128], "relu"),
            **ModelSection.options("dueling"),
        },
        "learn": {
            **groups.recorded_learn(1e-3, 128),
            **LearnSection.options(grad_norm=10.0),
            **groups.target(250, "soft"),
            "alpha": opt(1.0, "[0, inf)", "weight of the gap between all actions and the recorded ones"),
        },
        "collect": groups.acting(),
        "eval": groups.recorded_evaluation(),
        "other": {**groups.recorded(), **groups.rewards()},
    }


algorithm = Algorithm("discrete_cql", "DiscreteCQL", schema, actions=("discrete",), chain="offline", unit="train_iter")
