"""Settings of independent Q-learning."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups

algorithm = Algorithm(
    "idqn",
    "IDQN",
    groups.team_values,
    actions=("discrete",),
    chain="episode_replay",
    agents="several",
    searched=groups.TEAM_SEARCH,
)
