"""Settings of IMPALA."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.described(
            LearnSection.options("n_epoch"), n_epoch="gradient steps per rollout, each on the whole rollout"
        ),
        "rho_bar": opt(1.0, "(0, inf)", "truncation of the importance weight of each TD error"),
        "c_bar": opt(1.0, "(0, inf)", "truncation of the importance weights that propagate later errors back"),
        "vtrace_lambda": opt(1.0, "[0, 1]", "bias-variance trade-off: decay of later errors, like the lambda of GAE"),
    }
    return groups.actor_critic(learn, 160)


algorithm = Algorithm("impala", "IMPALA", schema, actions=("discrete", "multi_discrete", "box"), chain="trajectory")
