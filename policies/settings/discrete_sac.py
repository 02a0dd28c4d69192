"""Settings of discrete SAC."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([256, 256], "relu", critics=True),
            **groups.described(
                ModelSection.options("dueling"),
                dueling="critics with separate streams for state value and advantages",
            ),
        },
        "learn": {
            **groups.off_policy_learn(3e-4, 256, 8),
            **groups.soft_targets(network="critics", per="gradient step"),
            **LearnSection.options("alpha", "auto_alpha"),
            "target_entropy_share": opt(
                0.2, "[0, 1]", "target entropy as a fraction of the maximum, log(number of legal actions)"
            ),
        },
        "collect": {**groups.collect(8), **groups.random_steps()},
        "eval": groups.evaluation(),
        "other": {**groups.replay(1_000_000), **groups.hindsight(), **groups.prior_data()},
    }


algorithm = Algorithm("discrete_sac", "DiscreteSAC", schema, actions=("discrete",), chain="off_policy")
