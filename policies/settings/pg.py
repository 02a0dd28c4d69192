"""Settings of PG."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.described(LearnSection.options(learning_rate=3e-3, entropy_weight=0.0), learning_rate="learning rate"),
        **groups.optimizer("adam"),
        **groups.passes(1, 1),
        "baseline": opt(
            "standardized",
            ("none", "mean", "standardized"),
            "baseline subtracted from returns: 0, or the mean of a minibatch; standardized: returns are also divided "
            "by their standard deviation",
        ),
    }
    schema = groups.actor_critic(learn, 1024)
    del schema["learn"]["value_weight"]
    return schema


algorithm = Algorithm("pg", "PG", schema, actions=("discrete", "multi_discrete", "box"), chain="monte_carlo")
