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
            **groups.noisy(True),
        }
    )
    # These parts are off by default in the algorithms from which they are taken.
    on = (("model", "dueling", True), ("learn", "nstep", 3), ("other", "replay", "prioritized"))
    for section, key, value in on:
        keys[section][key] = dataclasses.replace(keys[section][key], default=value)
    return keys


algorithm = Algorithm("rainbow", "Rainbow", schema, actions=("discrete",), chain="off_policy")
