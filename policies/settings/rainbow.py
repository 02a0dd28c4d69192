"""Settings of Rainbow."""

from __future__ import annotations

import dataclasses

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    keys = groups.action_values(
        {
            "distributional": opt(
                True, None, "learn the return distribution, as in C51; false: the expected return, as in DQN"
            ),
            **groups.support(),
            "noisy": opt(True, None, "explore with noisy layers, whose noise scale is learned, instead of `other.eps`"),
            "noisy_sigma": opt(0.5, "[0, inf)", "initial noise scale, multiplied by 1/sqrt(inputs of the layer)"),
        }
    )
    # These parts are off by default in the algorithms from which they are taken.
    on = (("model", "dueling", True), ("learn", "nstep", 3), ("other", "replay", "prioritized"))
    for section, key, value in on:
        keys[section][key] = dataclasses.replace(keys[section][key], default=value)
    return keys


algorithm = Algorithm("rainbow", "Rainbow", schema, actions=("discrete",), chain="off_policy")
