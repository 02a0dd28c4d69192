"""Settings of MAPPO."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    learn = {
        **groups.passes(10, 1),
        "gae_lambda": opt(0.95, "[0, 1]", "trades bias for variance of the advantage"),
        "clip_ratio": opt(0.2, "(0, 1)", "clip range of the probability ratio"),
        "value_clip": opt(True, None, "clip the change of the normalised value by clip_ratio"),
        "value_norm": opt(True, None, "learn values in units of the running deviation of the returns"),
        "value_norm_decay": opt(0.99, "[0, 1)", "of the running moments, per rollout"),
        "huber_delta": opt(10.0, "(0, inf)", "the value loss is linear beyond this error, in units of the deviation"),
        "normalize_advantage": opt(True, None, "to zero mean and unit variance in each minibatch"),
        "death_masking": opt(
            True, None, "team rewards: an agent's return continues when it has left, and its value sees its place only"
        ),
        "target_kl": opt(None, "(0, inf)", "end the gradient steps once the KL exceeds 1.5 times this", type=float),
    }
    schema = groups.actor_critic(learn, 1024)
    schema["model"] |= groups.memory()
    keys = schema["learn"]
    keys["learning_rate"] = opt(7e-4, "(0, 1]", "step size of Adam")
    keys["value_weight"] = opt(1.0, "[0, inf)", "weight of the value loss")
    keys["grad_norm"] = opt(10.0, "[0, inf)", "gradients are scaled down to this norm; 0 leaves them")
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
