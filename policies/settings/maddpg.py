"""Settings of MADDPG."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64, 64], "relu", critics=True),
            "central": opt(
                True,
                None,
                "centralized critics, which see all observations and actions; false: critics see only their own "
                "agent, as in DDPG",
            ),
        },
        "learn": {
            **groups.off_policy_learn(1e-3, 256, 8),
            **groups.soft_targets(0.01, per="gradient step"),
            **groups.described(
                LearnSection.options(gamma=0.95, grad_norm=0.5),
                grad_norm="clip the global norm of all actors' gradients, and of all critics', to this; 0: no clipping",
            ),
            "temperature": opt(1.0, "(0, inf)", "discrete actions: temperature of the Gumbel-softmax"),
            "logit_weight": opt(1e-3, "[0, inf)", "discrete actions: weight of the mean squared logit"),
        },
        "collect": {**groups.collect(80), **groups.random_steps(), **groups.noise("gaussian", 0.1)},
        "eval": groups.evaluation(),
        "other": groups.replay(1_000_000),
    }


algorithm = Algorithm(
    "maddpg", "MADDPG", schema, actions=("discrete", "box"), chain="off_policy", unit_box=True, agents="several"
)
