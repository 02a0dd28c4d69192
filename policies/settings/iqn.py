"""Settings of IQN."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.options import WIDTH
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.action_values(
        {
            "n_cosines": opt(64, WIDTH, "cosine features of the embedding of a quantile fraction"),
            "n_fractions": opt(32, WIDTH, "K: fixed quantile fractions, averaged for the value of an action"),
        },
        {
            "n_fractions": opt(8, WIDTH, "N: quantile fractions sampled per transition"),
            "n_target_fractions": opt(8, WIDTH, "N': quantile fractions sampled per transition for the target"),
            "kappa": opt(1.0, "(0, inf)", "threshold of the Huber loss, beyond which it is linear"),
        },
    )


algorithm = Algorithm("iqn", "IQN", schema, actions=("discrete",), chain="off_policy")
