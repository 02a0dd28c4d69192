"""Settings of PG."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64, 64], "tanh"),
            "log_std": opt(
                0.0,
                "[-5, 2]",
                "initial log standard deviation of continuous actions; -1 may help if the best actions lie near a "
                "bound",
            ),
        },
        "learn": {
            "learning_rate": opt(3e-3, "(0, 1]", "learning rate"),
            **groups.anneal(True),
            **groups.optimizer("adam"),
            **groups.passes(1, 1),
            "gamma": opt(0.99, "[0, 1]", "discount factor"),
            "baseline": opt(
                "standardized",
                ("none", "mean", "standardized"),
                "baseline subtracted from returns: 0, or the mean of a minibatch; standardized: returns are also "
                "divided by their standard deviation",
            ),
            "entropy_weight": opt(0.0, "[0, inf)", "weight of the entropy bonus"),
            "grad_norm": opt(0.5, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **groups.on_nan(),
        },
        "collect": groups.collect(1024),
        "eval": groups.evaluation(),
        "other": {},
    }


algorithm = Algorithm("pg", "PG", schema, actions=("discrete", "multi_discrete", "box"), chain="monte_carlo")
