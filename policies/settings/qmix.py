"""Settings of QMIX."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.options import WIDTH
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return groups.team_values(
        {
            "mixer_dim": opt(32, WIDTH, "units of the mixing network"),
            "hypernet_dim": opt(64, WIDTH, "hidden units of the hypernetworks, which output the mixing weights"),
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
