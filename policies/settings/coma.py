"""Settings of COMA."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.engine.config.options import WIDTH
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64], "relu"),
            **groups.described(ModelSection.options("memory_dim"), memory_dim="units of the GRU of an agent"),
            "critic_hidden": opt([128, 128], WIDTH, "sizes of the hidden layers of the critic"),
            "critic_state": opt(
                True, None, "the critic sees the global state in addition to the observation of the agent"
            ),
        },
        "learn": {
            **groups.described(
                LearnSection.options(
                    "critic_learning_rate",
                    "gamma",
                    "entropy_weight",
                    "normalize_advantage",
                    "on_nan",
                    learning_rate=5e-4,
                    td_lambda=0.8,
                    n_epoch=4,
                    n_minibatch=1,
                    grad_norm=10.0,
                ),
                learning_rate="learning rate of Adam for the actor",
                td_lambda="lambda of the lambda-returns that the critic learns",
                n_epoch="passes of the critic over each rollout; the last one is also the actor's",
                n_minibatch="parts into which the environments are divided, with one gradient step each; reshuffled "
                "for every pass",
                normalize_advantage="scale advantages to a mean square of 1 in each rollout",
                grad_norm="clip the gradient norms of actor and critic to this, separately; 0: no clipping",
            ),
            **groups.anneal(True),
            **groups.target(150),
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
