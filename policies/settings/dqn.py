"""Settings of DQN."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([128, 128], "relu"),
            "dueling": opt(False, None, "separate streams for state value and advantages"),
        },
        "learn": {
            **groups.off_policy_learn(1e-3, 128, 2),
            "double": opt(True, None, "choose the next action with the online network"),
            "grad_norm": opt(10.0, "[0, inf)", "gradients are scaled down to this norm; 0 leaves them"),
            "target": {
                "kind": opt("periodic", ("periodic", "soft"), "copy every `freq` steps, or move by `tau` each step"),
                "freq": opt(250, "[1, inf)", "gradient steps between copies"),
                "tau": opt(0.005, "(0, 1]", "share of the online weights per step"),
            },
        },
        "collect": groups.collect(8),
        "eval": groups.evaluation(),
        "other": {
            **groups.replay(50_000),
            **groups.priority(),
            "eps": {
                "kind": opt("linear", ("linear", "exp"), "shape of the schedule"),
                "start": opt(1.0, "[0, 1]", "share of random actions at the start"),
                "end": opt(0.05, "[0, 1]", "share of random actions at the end"),
                "decay": opt(10_000, "[1, inf)", "environment steps from start to end (exp: time constant)"),
            },
        },
    }


algorithm = Algorithm("dqn", "DQN", schema, actions=("discrete",), chain="off_policy")
