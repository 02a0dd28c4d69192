"""Settings of IQN."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.action_values(
        {
            "n_cosines": opt(64, "[1, inf)", "cosines that a fraction is embedded by"),
            "n_fractions": opt(32, "[1, inf)", "K: fixed fractions whose mean is an action's value"),
        },
        {
            "n_fractions": opt(8, "[1, inf)", "N: random fractions at which quantiles are learned, per transition"),
            "n_target_fractions": opt(8, "[1, inf)", "N': random fractions of the target's quantiles"),
            "kappa": opt(1.0, "(0, inf)", "error from which on the quantile loss is linear"),
        },
    )


algorithm = Algorithm("iqn", "IQN", schema, actions=("discrete",), chain="off_policy")
