"""Settings of behavioral cloning."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64, 64], "tanh"),
            "log_std": opt(0.0, "[-5, 2]", "initial log standard deviation of continuous actions"),
        },
        "learn": {
            "learning_rate": opt(1e-3, "(0, 1]", "learning rate of Adam"),
            **groups.anneal(True),
            "batch_size": opt(256, "[1, inf)", "recorded steps per gradient step"),
            **groups.steps_per_call(),
            "loss": opt(
                "squared_error",
                ("squared_error", "log_likelihood"),
                "loss of continuous actions; discrete actions always use the log-likelihood",
            ),
            "grad_norm": opt(0.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **groups.on_nan(),
        },
        "collect": groups.acting(),
        "eval": groups.recorded_evaluation(),
        "other": groups.recorded(),
    }


algorithm = Algorithm(
    "bc", "BC", schema, actions=("discrete", "multi_discrete", "box"), chain="offline", unit="train_iter"
)
