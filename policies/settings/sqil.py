"""SQIL: SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

Reddy et al., 2020, https://arxiv.org/abs/1905.11108. It uses the policy of `minding.policies.sac`; this
module holds its settings.
"""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups, sac


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {**sac.schema(), "other": {**groups.replay(1_000_000), **groups.prior_data()}}


algorithm = Algorithm("sqil", "SAC", schema, actions=("box",), chain="sqil", unit_box=True, variant_of="sac")
