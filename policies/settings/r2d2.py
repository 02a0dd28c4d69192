"""Settings of R2D2."""

from __future__ import annotations

import dataclasses

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    keys = groups.action_values(
        {
            **groups.memory(),
            "memory": opt("gru", ("gru", "lstm"), "what earlier observations leave, between encoder and hidden layers"),
        },
        {
            "batch_size": opt(32, "[1, inf)", "sequences per gradient step"),
            "length": opt(20, "[1, inf)", "transitions of a sequence that are learned from"),
            "burn_in": opt(10, "[0, inf)", "transitions before them, which bring the memory up to date"),
            "nstep": opt(5, "[1, inf)", "steps of the return before bootstrapping, within the sequence"),
            "rescale": opt(True, None, "learn the values of returns brought nearer to each other by h"),
        },
    )
    other = keys["other"]
    other["replay"] = opt(
        "prioritized", ("uniform", "prioritized"), "draw sequences alike, or by the sizes of their errors"
    )
    other["priority"] |= {
        "alpha": dataclasses.replace(other["priority"]["alpha"], default=0.9),
        "beta": dataclasses.replace(other["priority"]["beta"], default=0.6),
        "eta": opt(0.9, "[0, 1]", "prioritized: share of the largest error of a sequence; the rest is their mean"),
        "stride": opt(10, "[1, inf)", "prioritized: transitions from the start of a sequence to that of the next one"),
    }
    return keys


algorithm = Algorithm("r2d2", "R2D2", schema, actions=("discrete",), chain="sequence_replay")
