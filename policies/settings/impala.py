"""Settings of IMPALA."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        "n_epoch": opt(1, "[1, inf)", "gradient steps on each rollout, each on the whole of it"),
        "rho_bar": opt(1.0, "(0, inf)", "bound of the probability ratio that weights a step's error"),
        "c_bar": opt(1.0, "(0, inf)", "bound of the probability ratio that carries later errors back"),
        "vtrace_lambda": opt(1.0, "[0, 1]", "trades bias for variance: share of later errors carried back"),
    }
    return groups.actor_critic(learn, 160)


algorithm = Algorithm("impala", "IMPALA", schema, actions=("discrete", "multi_discrete", "box"), chain="trajectory")
