"""Settings of behavioral cloning."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([64, 64], "tanh"),
            **groups.described(
                ModelSection.options("log_std"), log_std="initial log standard deviation of continuous actions"
            ),
        },
        "learn": {
            **groups.described(
                LearnSection.options("steps_per_call", "on_nan", learning_rate=1e-3, batch_size=256, grad_norm=0.0),
                batch_size="recorded steps per gradient step",
            ),
            **groups.anneal(True),
            "loss": opt(
                "squared_error",
                ("squared_error", "log_likelihood"),
                "loss of continuous actions; discrete actions always use the log-likelihood",
            ),
        },
        "collect": groups.acting(),
        "eval": groups.recorded_evaluation(),
        "other": groups.recorded(),
    }


algorithm = Algorithm(
    "bc", "BC", schema, actions=("discrete", "multi_discrete", "box"), chain="offline", unit="train_iter"
)
