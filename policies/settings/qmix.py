"""Settings of QMIX."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.team_values(
        {
            "mixer_dim": opt(32, "[1, inf)", "units of the mixing network"),
            "hypernet_dim": opt(64, "[1, inf)", "hidden units of the hypernetworks, which output the mixing weights"),
        }
    )


algorithm = Algorithm(
    "qmix",
    "QMIX",
    schema,
    actions=("discrete",),
    chain="episode_replay",
    agents="several",
    searched=groups.TEAM_SEARCH,
    needs=("global_state", "team_reward"),
)
