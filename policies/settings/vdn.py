"""Settings of VDN."""

from __future__ import annotations

from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm

algorithm = Algorithm(
    "vdn",
    "VDN",
    groups.team_values,
    actions=("discrete",),
    chain="episode_replay",
    agents="several",
    needs=("team_reward",),
)
