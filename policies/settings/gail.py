"""GAIL: PPO whose rewards measure the similarity of its steps to an expert's.

It uses the policy of `minding.policies.ppo` and the rewards of `minding.policies.rewards.gail`; this module holds its
settings.
"""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.options import WIDTH
from minding.policies.settings import Algorithm, groups, ppo


def schema() -> groups.Schema:
    """The keys of `policy`."""
    gail = {
        "reward": opt(
            "positive",
            ("positive", "negative", "logit"),
            "-log(1 - D), which favors long episodes; log D, which favors short ones; or their sum, of either sign",
        ),
        "learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam for the discriminator"),
        "n_update": opt(20, "[1, 1e5]", "gradient steps of the discriminator on each rollout"),
        "batch_size": opt(128, "[1, 1e6]", "steps of the expert in each gradient step, and equally many of the agent"),
        "hidden": opt([64, 64], WIDTH, "sizes of the discriminator's hidden layers"),
        "gradient_penalty": opt(
            0.0, "[0, inf)", "weight of the squared distance of its gradients' norm from 1, between both kinds of steps"
        ),
    }
    return {**ppo.schema(), "other": {**groups.recorded_folder(), "gail": gail}}


algorithm = Algorithm(
    "gail", "PPO", schema, actions=("discrete", "multi_discrete", "box"), chain="gail", variant_of="ppo"
)
