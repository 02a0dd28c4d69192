"""Settings of R2D2."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, PrioritySection
from minding.engine.config.options import MODULE_CLASS
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
            **groups.described(
                LearnSection.options("burn_in", "rescale", batch_size=32, length=20, nstep=5),
                batch_size="sequences per gradient step",
                length="transitions of a sequence that are learned from",
                nstep="steps of the n-step return, within the sequence",
            ),
        },
    )
    other = keys["other"]
    # These keys apply to single transitions only.
    for name in ("hindsight", "data", "data_share", "table"):
        del other[name]
    other["replay"] = opt(
        "prioritized",
        ("uniform", "prioritized", MODULE_CLASS),
        "sample sequences uniformly, by priority (the size of their TD errors), or from a buffer of your own, see "
        "howto/custom_algorithms.md",
    )
    other["priority"] = PrioritySection.options("beta_steps", "eta", "stride", alpha=0.9, beta=0.6)
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
