"""Settings of TD3+BC and ReBRAC."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    collect, learn, other = groups.online(8)
    return {
        "model": groups.model([256, 256], "relu", critics=True),
        "learn": {
            **groups.recorded_learn(3e-4, 256),
            **learn,
            **groups.twin_delayed(),
            "alpha": opt(
                2.5,
                "[0, inf)",
                "weight of the values relative to the distance to the recorded actions, divided by the mean "
                "absolute value; ReBRAC's 1 / (beta_1 A)",
            ),
            "critic_penalty": opt(
                0.0, "[0, inf)", "weight of that distance in the critics' target (ReBRAC's beta_2); 0: TD3+BC"
            ),
        },
        "collect": {**collect, **groups.acting(), **groups.noise("gaussian", 0.1)},
        "eval": groups.recorded_evaluation(),
        "other": {**groups.recorded(), **other, **groups.rewards()},
    }


algorithm = Algorithm("td3_bc", "TD3BC", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
