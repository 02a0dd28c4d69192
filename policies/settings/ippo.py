"""IPPO: PPO for each agent of a team; all share one network, and each sees only its own observation.

de Witt et al., 2020, https://arxiv.org/abs/2011.09533. It uses the policy of `minding.policies.ppo`; this module
holds its settings.
"""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups, ppo


def schema() -> groups.Schema:
    """The keys of `policy`."""
    # RND rewards novelty for one agent only, so its keys are left out.
    return {**ppo.schema(), "other": {}}


algorithm = Algorithm(
    "ippo",
    "PPO",
    schema,
    actions=("discrete", "multi_discrete", "box"),
    chain="on_policy",
    agents="several",
    variant_of="ppo",
)
