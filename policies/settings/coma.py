"""Settings of COMA."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64], "relu"),
            "memory_dim": opt(64, "[1, inf)", "units of the GRU of an agent"),
            "critic_hidden": opt([128, 128], "[1, inf)", "sizes of the hidden layers of the critic"),
            "critic_state": opt(
                True, None, "the critic sees the global state in addition to the observation of the agent"
            ),
        },
        "learn": {
            "learning_rate": opt(5e-4, "(0, 1]", "learning rate of Adam for the actor"),
            "critic_learning_rate": opt(1e-3, "(0, 1]", "learning rate of the critic"),
            **groups.anneal(True),
            "gamma": opt(0.99, "[0, 1]", "discount factor"),
            "td_lambda": opt(0.8, "[0, 1]", "lambda of the lambda-returns that the critic learns"),
            "n_epoch": opt(4, "[1, inf)", "passes of the critic over each rollout; the last one is also the actor's"),
            "n_minibatch": opt(
                1,
                "[1, inf)",
                "parts into which the environments are divided, with one gradient step each; reshuffled for every pass",
            ),
            "entropy_weight": opt(0.01, "[0, inf)", "weight of the entropy bonus"),
            "normalize_advantage": opt(True, None, "scale advantages to a mean square of 1 in each rollout"),
            "grad_norm": opt(
                10.0, "[0, inf)", "clip the gradient norms of actor and critic to this, separately; 0: no clipping"
            ),
            **groups.target(150),
            **groups.on_nan(),
        },
        "collect": groups.collect(400),
        "eval": groups.evaluation(),
        "other": {},
    }


algorithm = Algorithm(
    "coma",
    "COMA",
    schema,
    actions=("discrete",),
    chain="trajectory",
    agents="several",
    needs=("global_state", "team_reward"),
)
