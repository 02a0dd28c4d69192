"""Settings of AlphaZero."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import CollectSection, LearnSection
from minding.engine.search.tree import MOST_SIMULATIONS, MOST_WEIGHT
from minding.policies.settings import Algorithm, groups


def schema() -> groups.Schema:
    """The keys of `policy`."""
    return {
        "model": {
            **groups.model([128, 128], "relu"),
            "net": opt(
                "mlp",
                ("mlp", "residual"),
                "mlp: hidden layers; residual: 3x3 convolutions over the planes, then hidden layers for the value",
            ),
            "channels": opt(32, "[1, 4096]", "residual: channels of the convolutions"),
            "blocks": opt(3, "[1, 1000]", "residual: blocks of two convolutions each"),
        },
        "learn": {
            **groups.described(
                LearnSection.options(
                    "updates_per_step",
                    "warmup",
                    "on_nan",
                    learning_rate=1e-3,
                    batch_size=256,
                    update_per_collect=1,
                    value_weight=1.0,
                    grad_norm=0.0,
                ),
                learning_rate="learning rate of AdamW",
                batch_size="positions per gradient step",
                updates_per_step="gradient steps per ply, in calls of update_per_collect; None: one call per iteration",
                warmup="positions in the buffer before learning starts",
            ),
            **groups.anneal(False),
            "weight_decay": opt(
                1e-4, "[0, 1]", "share of each weight that a step subtracts, in units of the learning rate"
            ),
        },
        "collect": {
            **groups.described(
                CollectSection.options("backend", n_sample=8),
                n_sample="plies per iteration, over all env.collector_env_num games together",
            ),
            "search": opt("puct", ("puct", "gumbel"), "search that plays and improves the policy"),
            "simulations": opt(32, f"[1, {MOST_SIMULATIONS}]", "simulations per ply"),
            "sample_plies": opt(
                8, "[0, inf)", "number of plies at the start of a game that are sampled from the search's policy"
            ),
            "puct": {
                "c": opt(1.25, f"(0, {MOST_WEIGHT}]", "puct: weight of the policy against the values"),
                "dirichlet_alpha": opt(1.0, f"(0, {MOST_WEIGHT}]", "puct: concentration of the noise at the root"),
                "dirichlet_fraction": opt(0.25, "[0, 1]", "puct: share of the noise in the root's policy"),
            },
            "gumbel": {
                "max_considered": opt(
                    16, f"[1, {MOST_SIMULATIONS}]", "gumbel: maximum number of actions compared at the root"
                ),
                "c_visit": opt(
                    50.0,
                    f"[0, {MOST_WEIGHT}]",
                    "gumbel: visits added to the largest count in the weight of the values",
                ),
                "c_scale": opt(1.0, f"[0, {MOST_WEIGHT}]", "gumbel: weight of the values against the logits"),
            },
        },
        "eval": {
            **groups.evaluation(),
            "simulations": opt(
                64,
                f"[0, {MOST_SIMULATIONS}]",
                "simulations per ply, without noise; 0: the network plays without search",
            ),
            "opponents": opt(["random"], None, "opponents by name, such as random, minimax and uct:100"),
            "opening_plies": opt(
                2, "[0, inf)", "plies of the opening: evaluation games start from every position after that many plies"
            ),
        },
        "other": groups.replay(50_000),
    }


algorithm = Algorithm("alphazero", "AlphaZero", schema, actions=("discrete",), chain="self_play")
