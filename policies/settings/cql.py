"""Settings of CQL."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.recorded_critics(
        {
            "actor_learning_rate": opt(1e-4, "(0, 1]", "learning rate of Adam for the actor and the temperature"),
            **groups.soft_targets(),
            **groups.temperature(),
            "conservative_weight": opt(
                5.0,
                "(0, inf)",
                "weight of the gap between other actions and recorded ones, or its initial value if it is learned",
            ),
            "n_actions": opt(
                10,
                "[1, 1000]",
                "number of actions per source for the gap: uniform, the policy in the state, and the policy in the "
                "next state",
            ),
            "lagrange": opt(False, None, "learn conservative_weight so that the gap stays below lagrange_gap"),
            "lagrange_gap": opt(5.0, None, "lagrange: largest mean gap allowed"),
        }
    )


algorithm = Algorithm("cql", "CQL", schema, actions=("box",), chain="offline", unit="train_iter", unit_box=True)
