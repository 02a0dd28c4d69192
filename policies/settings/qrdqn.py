"""Settings of QR-DQN."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.options import WIDTH
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.action_values(
        {"n_quantiles": opt(50, WIDTH, "quantiles of the return distribution of each action")},
        {"kappa": opt(1.0, "(0, inf)", "threshold of the Huber loss, beyond which it is linear")},
    )


algorithm = Algorithm("qrdqn", "QRDQN", schema, actions=("discrete",), chain="off_policy")
