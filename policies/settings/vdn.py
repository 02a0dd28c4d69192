"""Settings of VDN."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups

algorithm = Algorithm(
    "vdn",
    "VDN",
    groups.team_values,
    actions=("discrete",),
    chain="episode_replay",
    agents="several",
    searched=groups.TEAM_SEARCH,
    needs=("team_reward",),
)
