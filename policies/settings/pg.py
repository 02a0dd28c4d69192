"""Settings of PG."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64, 64], "tanh"),
            **ModelSection.options("log_std"),
        },
        "learn": {
            **groups.described(
                LearnSection.options("gamma", "on_nan", learning_rate=3e-3, entropy_weight=0.0, grad_norm=0.5),
                learning_rate="learning rate",
            ),
            **groups.anneal(True),
            **groups.optimizer("adam"),
            **groups.passes(1, 1),
            "baseline": opt(
                "standardized",
                ("none", "mean", "standardized"),
                "baseline subtracted from returns: 0, or the mean of a minibatch; standardized: returns are also "
                "divided by their standard deviation",
            ),
        },
        "collect": groups.collect(1024),
        "eval": groups.evaluation(),
        "other": {},
    }


algorithm = Algorithm("pg", "PG", schema, actions=("discrete", "multi_discrete", "box"), chain="monte_carlo")
