"""Settings of R2D2."""

from __future__ import annotations

import dataclasses

from minding.engine.config.compiler import opt
from minding.engine.config.space import Choice
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    keys = groups.action_values(
        {
            **groups.memory(),
            "memory": opt("gru", ("gru", "lstm"), "recurrent layer between encoder and hidden layers"),
        },
        {
            "batch_size": opt(32, "[1, inf)", "sequences per gradient step"),
            "length": opt(20, "[1, inf)", "transitions of a sequence that are learned from"),
            "burn_in": opt(10, "[0, inf)", "transitions before the sequence, which only warm up the recurrent state"),
            "nstep": opt(5, "[1, inf)", "steps of the n-step return, within the sequence"),
            "rescale": opt(True, None, "apply the value rescaling h to returns"),
        },
    )
    other = keys["other"]
    # These keys apply to single transitions only.
    for name in ("hindsight", "data", "data_share", "table"):
        del other[name]
    other["replay"] = opt(
        "prioritized",
        ("uniform", "prioritized"),
        "sample sequences uniformly, or by priority (the size of their TD errors)",
    )
    other["priority"] |= {
        "alpha": dataclasses.replace(other["priority"]["alpha"], default=0.9),
        "beta": dataclasses.replace(other["priority"]["beta"], default=0.6),
        "eta": opt(
            0.9, "[0, 1]", "prioritized: weight of the largest TD error of a sequence; the mean has the weight 1 - eta"
        ),
        "stride": opt(
            10, "[1, inf)", "prioritized: transitions between the starts of successive sequences; a divisor of length"
        ),
    }
    return keys


algorithm = Algorithm(
    "r2d2",
    "R2D2",
    schema,
    actions=("discrete",),
    chain="sequence_replay",
    # The rows of its minibatches are sequences.
    searched={"learn.batch_size": Choice.of(16, 32, 64)},
)
