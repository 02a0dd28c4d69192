"""Settings of value-based algorithms."""

from __future__ import annotations

import dataclasses

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection, PrioritySection
from minding.engine.config.options import MODULE_NAME, WIDTH
from minding.engine.config.space import Choice
from minding.policies.settings import Algorithm, groups


def dqn() -> groups.Schema:
    """Settings of DQN."""
    return groups.action_values(
        groups.augmentation(),
        learn={
            "munchausen": opt(
                0.0,
                "[0, 1]",
                "weight of the action's scaled log-probability, which is added to the reward; the target is then soft, "
                "and `double` without effect; 0: off, the paper's value is 0.9",
            ),
            "munchausen_temperature": opt(
                0.03, "(0, inf)", "temperature of the policy softmax(Q / temperature) that `munchausen` takes"
            ),
        },
    )


def c51() -> groups.Schema:
    """Settings of C51."""
    return groups.action_values(ModelSection.options("n_atoms", "v_min", "v_max"))


def qrdqn() -> groups.Schema:
    """Settings of QR-DQN."""
    return groups.action_values(
        {"n_quantiles": opt(50, WIDTH, "quantiles of the return distribution of each action")},
        LearnSection.options("kappa"),
    )


def iqn() -> groups.Schema:
    """Settings of IQN."""
    return groups.action_values(
        {
            "n_cosines": opt(64, WIDTH, "cosine features of the embedding of a quantile fraction"),
            "n_fractions": opt(32, WIDTH, "K: fixed quantile fractions, averaged for the value of an action"),
        },
        {
            "n_fractions": opt(8, WIDTH, "N: quantile fractions sampled per transition"),
            "n_target_fractions": opt(8, WIDTH, "N': quantile fractions sampled per transition for the target"),
            **LearnSection.options("kappa"),
        },
    )


def fqf() -> groups.Schema:
    """Settings of FQF."""
    return groups.action_values(
        {
            "n_cosines": opt(64, WIDTH, "cosine features of the embedding of a quantile fraction"),
            "n_fractions": opt(32, WIDTH, "N: proposed quantile fractions"),
        },
        {
            "fraction_learning_rate": opt(
                2.5e-9, "(0, 1]", "learning rate of the layer that proposes fractions, by RMSProp"
            ),
            **LearnSection.options("kappa"),
        },
    )


def pqn() -> groups.Schema:
    """Settings of PQN."""
    model = groups.model([128, 128], "relu")
    model["norm"] = dataclasses.replace(model["norm"], default="layer")
    learn = LearnSection.options(
        "optimizer", "gamma", "on_nan", learning_rate=1e-3, gae_lambda=0.95, grad_norm=10.0, n_epoch=4, n_minibatch=8
    )
    return {
        "model": {**model, **ModelSection.options("dueling")},
        "learn": {
            **groups.described(learn, gae_lambda="lambda of the lambda-returns; 0: one-step targets"),
            **groups.anneal(True),
        },
        "collect": groups.collect(1024),
        "eval": groups.evaluation(),
        "other": groups.eps(10_000),
    }


def rainbow() -> groups.Schema:
    """Settings of Rainbow."""
    keys = groups.action_values(
        {
            "distributional": opt(
                True, None, "learn the return distribution, as in C51; false: the expected return, as in DQN"
            ),
            **ModelSection.options("n_atoms", "v_min", "v_max"),
            "noisy": opt(True, None, "explore with noisy layers, whose noise scale is learned, instead of `other.eps`"),
            "noisy_sigma": opt(0.5, "[0, inf)", "initial noise scale, multiplied by 1/sqrt(inputs of the layer)"),
        }
    )
    # These parts are off by default in the algorithms from which they are taken.
    on = (("model", "dueling", True), ("learn", "nstep", 3), ("other", "replay", "prioritized"))
    for section, key, value in on:
        keys[section][key] = dataclasses.replace(keys[section][key], default=value)
    return keys


def r2d2() -> groups.Schema:
    """Settings of R2D2."""
    memory = groups.memory("gru", "encoder and hidden layers")
    # It always has one.
    memory["memory"] = dataclasses.replace(memory["memory"], allowed=memory["memory"].allowed[1:])
    keys = groups.action_values(
        memory,
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
        ("uniform", "prioritized", MODULE_NAME),
        "sample sequences uniformly, by priority (the size of their TD errors), or from a buffer of your own, see "
        "howto/custom_algorithms.md",
    )
    other["priority"] = PrioritySection.options("beta_steps", "eta", "stride", alpha=0.9, beta=0.6)
    return keys


ALGORITHMS = (
    Algorithm("dqn", "DQN", dqn, actions=("discrete",), chain="off_policy"),
    Algorithm("c51", "C51", c51, actions=("discrete",), chain="off_policy"),
    Algorithm("qrdqn", "QRDQN", qrdqn, actions=("discrete",), chain="off_policy"),
    Algorithm("iqn", "IQN", iqn, actions=("discrete",), chain="off_policy"),
    Algorithm("fqf", "FQF", fqf, actions=("discrete",), chain="off_policy"),
    Algorithm("pqn", "PQN", pqn, actions=("discrete",), chain="on_policy"),
    Algorithm("rainbow", "Rainbow", rainbow, actions=("discrete",), chain="off_policy"),
    Algorithm(
        "r2d2",
        "R2D2",
        r2d2,
        actions=("discrete",),
        chain="sequence_replay",
        # The rows of its minibatches are sequences.
        searched={"learn.batch_size": Choice.of(16, 32, 64)},
    ),
)
