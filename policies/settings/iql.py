"""Settings of IQL."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    what = "expectile of the recorded actions' values that estimates the value of a state"
    learn = {**groups.weighted_regression(3.0, 100.0), "expectile": opt(0.7, "(0, 1)", what)}
    return groups.recorded_critics(learn, groups.action_deviation())


algorithm = Algorithm("iql", "IQL", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
