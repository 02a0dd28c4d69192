"""Settings of TD3+BC and ReBRAC."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.twin_delayed(),
        "alpha": opt(
            2.5,
            "[0, inf)",
            "weight of the values relative to the distance to the recorded actions, divided by the mean absolute "
            "value; ReBRAC's 1 / (beta_1 A)",
        ),
        "critic_penalty": opt(
            0.0, "[0, inf)", "weight of that distance in the critics' target (ReBRAC's beta_2); 0: TD3+BC"
        ),
    }
    return groups.recorded_critics(learn, collect_keys=groups.noise("gaussian", 0.1))


algorithm = Algorithm("td3_bc", "TD3BC", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
