"""Settings of algorithms that plan with rules or learn a model of the world."""

from __future__ import annotations

import dataclasses

from minding.engine.config.compiler import opt
from minding.engine.config.config import CollectSection, LearnSection
from minding.engine.config.options import WIDTH
from minding.engine.search.search_tree import MOST_SIMULATIONS, MOST_WEIGHT
from minding.policies.settings import Algorithm, groups


def alphazero() -> groups.Schema:
    """Settings of AlphaZero."""
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
            "value_share": opt(
                0.0, "[0, 1]", "share of the search's value in what a position's value learns; the rest is the outcome"
            ),
            "puct": {
                "c": opt(1.25, f"(0, {MOST_WEIGHT}]", "puct: weight of the policy against the values"),
                "dirichlet_alpha": opt(1.0, f"(0, {MOST_WEIGHT}]", "puct: concentration of the noise at the root"),
                "dirichlet_fraction": opt(0.25, "[0, 1]", "puct: share of the noise in the root's policy"),
            },
            "gumbel": _gumbel(1.0),
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


def _gumbel(c_scale: float) -> groups.Schema:
    """Keys of Gumbel search; `c_scale`: the default of the key."""
    return {
        "max_considered": opt(16, f"[1, {MOST_SIMULATIONS}]", "gumbel: maximum number of actions compared at the root"),
        "c_visit": opt(
            50.0, f"[0, {MOST_WEIGHT}]", "gumbel: visits added to the largest count in the weight of the values"
        ),
        "c_scale": opt(c_scale, f"[0, {MOST_WEIGHT}]", "gumbel: weight of the values against the logits"),
    }


def _two_hot() -> groups.Schema:
    """Keys of two-hot distributions."""
    return {
        "bins": opt(41, "[3, 16384]", "bins of the two-hot distributions of rewards and values"),
        "bin_limit": opt(20.0, "(0, 80]", "symlog of the last bin; the first bin is at minus this value"),
    }


def muzero() -> groups.Schema:
    """Settings of Gumbel MuZero."""
    keys = groups.model([128], "relu")
    keys["norm"] = dataclasses.replace(keys["norm"], default="layer")
    learn = groups.off_policy_learn(2e-3, 256, 1)
    del learn["updates_per_step"]
    return {
        "model": {**keys, "latent": opt(64, "[2, 16384]", "numbers of a state of the model"), **_two_hot()},
        "learn": groups.described(
            {
                **learn,
                **LearnSection.options(
                    length=15, nstep=10, train_ratio=384.0, grad_norm=10.0, value_weight=0.25, tau=0.05
                ),
                "reanalysis": opt(
                    0.0,
                    "[0, 1]",
                    "share of the sequences whose policies come from a new search with the current network",
                ),
                "two_players": opt(
                    False,
                    None,
                    "two players take turns, each with rewards of their own: what one gains, the other loses",
                ),
            },
            length="transitions in a sequence: the model is unrolled for the first length - nstep",
            batch_size="sequences per gradient step",
            train_ratio="replayed transitions per environment step: each gradient step replays batch_size times length",
            tau="weight of the network in its moving average, whose values the targets use, per gradient step",
        ),
        "collect": {
            **groups.collect(8),
            **CollectSection.options("random_steps"),
            "simulations": opt(16, f"[1, {MOST_SIMULATIONS}]", "simulations per action, also of evaluations"),
            "random_share": opt(
                0.0, "[0, 1)", "share of the actions that are drawn uniformly, whose steps teach no value"
            ),
            "gumbel": _gumbel(0.1),
        },
        "eval": groups.evaluation(),
        "other": groups.replay(10_000),
    }


def dreamer() -> groups.Schema:
    """Settings of Dreamer."""
    return {
        "model": _dreamer_model(),
        "learn": _dreamer_learn(),
        "collect": {**groups.collect(8), **CollectSection.options("random_steps")},
        "eval": groups.evaluation(),
        "other": groups.replay(100_000),
    }


def _dreamer_model() -> groups.Schema:
    keys = groups.model([128, 128], "relu")
    keys["norm"] = dataclasses.replace(keys["norm"], default="layer")
    keys["normalize_obs"] = dataclasses.replace(
        keys["normalize_obs"], doc="normalize vectors to zero mean and unit variance, instead of taking their symlog"
    )
    return {
        **keys,
        "deter": opt(128, WIDTH, "units of the GRU, the deterministic part of a state"),
        "latents": opt(8, "[1, 1000]", "categorical latents of a state"),
        "classes": opt(8, "[2, 1000]", "classes of each latent"),
        "unimix": opt(0.01, "(0, 1)", "uniform share of the probabilities of latents and of actions that are choices"),
        "posterior": opt(
            "observation",
            ("observation", "full"),
            "inputs from which latents are drawn: the observation alone, or also the state of the GRU, as in the paper",
        ),
        "decoder": opt(
            "linear",
            ("linear", "convolutions"),
            "prediction of images: by a linear layer, or by the convolutions of the encoder, transposed and backwards",
        ),
        **_two_hot(),
    }


def _dreamer_learn() -> groups.Schema:
    keys = groups.off_policy_learn(1e-3, 16, 1)
    for name in ("updates_per_step", "nstep"):
        del keys[name]
    return {
        **keys,
        **groups.described(
            LearnSection.options(
                "length",
                "train_ratio",
                learning_rate=1e-3,
                critic_learning_rate=3e-4,
                grad_norm=100.0,
                batch_size=16,
                update_per_collect=1,
                td_lambda=0.95,
                entropy_weight=3e-4,
                tau=0.02,
            ),
            learning_rate="learning rate of Adam for the world model",
            critic_learning_rate="learning rate of Adam for the critic",
            grad_norm="clip the global gradient norm of world model, actor and critic to this, separately; 0: no "
            "clipping",
            batch_size="sequences per gradient step",
            update_per_collect="gradient steps per call",
            td_lambda="lambda of the lambda-returns of imagined trajectories",
            tau="weight of the critic in its moving average, a second target of the critic, per gradient step",
        ),
        "actor_learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam for the actor"),
        "context": opt(
            "stored",
            ("stored", "zero"),
            "state before a sequence: recorded while collecting, or zeros",
        ),
        "free_nats": opt(1.0, "[0, inf)", "divergence of prior and posterior, in nats, below which it is not trained"),
        "prior_weight": opt(1.0, "[0, inf)", "weight of the divergence that trains the prior"),
        "posterior_weight": opt(0.1, "[0, inf)", "weight of the divergence that trains the posterior"),
        "horizon": opt(15, "[1, 1000]", "number of imagined steps"),
        "starts": opt(256, "[1, 1e6]", "maximum number of states per gradient step from which imagination starts"),
        "actor_gradient": opt(
            "reinforce",
            ("reinforce", "dynamics"),
            "gradient of the actor: by the likelihood of its actions, or through the world model",
        ),
        "return_scale": opt(True, None, "divide advantages by the range of imagined returns if it exceeds 1"),
        "return_decay": opt(0.99, "[0, 1)", "decay of the running means of the percentiles 5 and 95 of the returns"),
    }


ALGORITHMS = (
    Algorithm("alphazero", "AlphaZero", alphazero, actions=("discrete",), chain="self_play"),
    Algorithm(
        "dreamer",
        "Dreamer",
        dreamer,
        actions=("discrete", "multi_discrete", "box"),
        chain="sequence_replay",
        unit_box=True,
    ),
    Algorithm("muzero", "MuZero", muzero, actions=("discrete",), chain="sequence_replay"),
)
