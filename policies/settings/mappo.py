"""Settings of MAPPO."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups, ppo


def schema() -> groups.Schema:
    """The keys of `policy`."""
    schema = ppo.schema()
    schema["learn"] |= {
        **groups.passes(10, 1),
        **groups.described(
            LearnSection.options("value_clip", learning_rate=7e-4, value_weight=1.0, grad_norm=10.0),
            value_clip="clip the change in normalized value to clip_ratio",
        ),
        "value_norm": opt(True, None, "normalize values by running statistics of the returns"),
        "value_norm_decay": opt(0.99, "[0, 1)", "decay of those running statistics, per rollout"),
        "huber_delta": opt(
            10.0, "(0, inf)", "threshold of the Huber value loss, beyond which it is linear; in normalized units"
        ),
        "death_masking": opt(
            True,
            None,
            "team rewards: the return of an agent that has left continues, and its value sees only its index",
        ),
    }
    return {**schema, "other": {}}


algorithm = Algorithm(
    "mappo",
    "MAPPO",
    schema,
    actions=("discrete", "multi_discrete", "box"),
    chain="on_policy",
    agents="several",
    needs=("global_state",),
)
