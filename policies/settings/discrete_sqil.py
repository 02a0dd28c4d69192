"""Discrete SQIL: discrete SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

Reddy et al., 2020, https://arxiv.org/abs/1905.11108. It uses the policy of `minding.policies.discrete_sac`;
this module holds its settings.
"""

from __future__ import annotations

from minding.policies.settings import Algorithm, discrete_sac, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {**discrete_sac.schema(), "other": {**groups.replay(1_000_000), **groups.prior_data()}}


algorithm = Algorithm(
    "discrete_sqil", "DiscreteSAC", schema, actions=("discrete",), chain="sqil", variant_of="discrete_sac"
)
