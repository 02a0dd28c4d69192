"""Settings of MAPPO."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.passes(10, 1),
        "gae_lambda": opt(0.95, "[0, 1]", "bias-variance trade-off of GAE"),
        "clip_ratio": opt(0.2, "(0, 1)", "clip range of the probability ratio"),
        "value_clip": opt(True, None, "clip the change in normalized value to clip_ratio"),
        "value_norm": opt(True, None, "normalize values by running statistics of the returns"),
        "value_norm_decay": opt(0.99, "[0, 1)", "decay of those running statistics, per rollout"),
        "huber_delta": opt(
            10.0, "(0, inf)", "threshold of the Huber value loss, beyond which it is linear; in normalized units"
        ),
        "normalize_advantage": opt(True, None, "normalize advantages to zero mean and unit variance in each minibatch"),
        "death_masking": opt(
            True,
            None,
            "team rewards: the return of an agent that has left continues, and its value sees only its index",
        ),
        "target_kl": opt(
            None,
            "(0, inf)",
            "skip the remaining gradient steps on a rollout once the KL divergence exceeds 1.5 times this",
            type=float,
        ),
    }
    schema = groups.actor_critic(learn, 1024)
    schema["model"] |= groups.memory()
    keys = schema["learn"]
    keys["learning_rate"] = opt(7e-4, "(0, 1]", "learning rate of Adam")
    keys["value_weight"] = opt(1.0, "[0, inf)", "weight of the value loss")
    keys["grad_norm"] = opt(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping")
    return schema


algorithm = Algorithm(
    "mappo",
    "MAPPO",
    schema,
    actions=("discrete", "multi_discrete", "box"),
    chain="on_policy",
    agents="several",
    needs=("global_state",),
)
