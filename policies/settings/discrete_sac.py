"""Settings of discrete SAC."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **LearnSection.options("alpha", "auto_alpha", learning_rate=3e-4),
        **groups.soft_targets(network="critics", per="gradient step"),
        "target_entropy_share": opt(
            0.2, "[0, 1]", "target entropy as a fraction of the maximum, log(number of legal actions)"
        ),
    }
    what = "critics with separate streams for state value and advantages"
    return groups.replayed_critics(learn, groups.described(ModelSection.options("dueling"), dueling=what))


algorithm = Algorithm("discrete_sac", "DiscreteSAC", schema, actions=("discrete",), chain="off_policy")
