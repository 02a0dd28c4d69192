"""Groups of options that several algorithms share; arguments are the defaults that differ between algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any

from minding.engine.annealing import SHAPES
from minding.engine.buffers.limiters import LIMITERS
from minding.engine.buffers.selectors import SELECTORS
from minding.engine.config.compiler import opt
from minding.engine.config.space import Choice
from minding.engine.data.rewards import KINDS

Schema = dict[str, Any]
TEAM_SEARCH = {"learn.batch_size": Choice.of(16, 32, 64), "model.hidden": Choice.of([64], [128], [64, 64])}
"""Searched values of algorithms with the keys `team_values`, whose minibatches consist of whole episodes."""


def model(hidden: list[int], activation: str, *, critics: bool = False) -> Schema:
    """Keys of networks; `critics`: whether the critics are networks separate from the acting network."""
    kinds: tuple[str, ...] = ("none", "layer")
    where = ""
    if critics:
        kinds, where = (*kinds, "critics"), ": in all networks ('layer') or in the critics only ('critics')"
    return {
        "hidden": opt(hidden, "[1, inf)", "sizes of the hidden layers"),
        "activation": opt(
            activation, ("relu", "tanh", "silu", "gelu", "elu"), "activation function of the hidden layers"
        ),
        "norm": opt(
            "none",
            kinds,
            f"layer normalization of each hidden layer before its activation, over the layer's units{where}",
        ),
        "encoder": opt(
            None,
            None,
            "your own encoder of observations, 'module:Class', see howto/custom_networks.md; None: minding's own",
            type=str,
        ),
        "normalize_obs": opt(False, None, "normalize vectors to zero mean and unit variance, inside the network"),
        "encoder_dim": opt(64, "[1, inf)", "encoder features per key of an observation with several keys"),
        "cnn": opt([], None, "convolutions as [channels, kernel, stride]; empty: chosen by image size"),
        "cnn_dim": opt(256, "[1, inf)", "output features of an image encoder"),
    }


def memory() -> Schema:
    """Keys of the recurrent layer, the memory of a network."""
    return {
        "memory": opt("none", ("none", "gru", "lstm"), "recurrent layer between encoder and heads"),
        "memory_dim": opt(
            64, "[1, inf)", "units of the recurrent layer; its state has one number per unit, two with an LSTM"
        ),
    }


def collect(n_sample: int) -> Schema:
    """Keys of collection; `n_sample`: the default of the key."""
    return {
        "n_sample": opt(n_sample, "[1, inf)", "environment steps per iteration, over all environments together"),
        **acting(),
    }


def acting() -> Schema:
    """Keys of acting."""
    return {
        "backend": opt("auto", ("auto", "graph", "host"), "how actions are computed: by a compiled graph, or by NumPy")
    }


def random_steps() -> Schema:
    """Key of the random actions at the start of a run."""
    return {"random_steps": opt(0, "[0, inf)", "environment steps of uniformly random actions at the start")}


def noise(kind: str, sigma: float) -> Schema:
    """Keys of noise on continuous actions; arguments are the defaults of the keys."""
    return {
        "noise": {
            "kind": opt(kind, ("gaussian", "ou"), "independent noise at each step, or an Ornstein-Uhlenbeck process"),
            "sigma": opt(
                sigma, "[0, inf)", "standard deviation of the noise drawn at each step; actions lie in [-1, 1]"
            ),
            "theta": opt(0.15, "(0, 1]", "ou: rate of mean reversion per step"),
        }
    }


def evaluation(freq: int = 10_000) -> Schema:
    """Keys of evaluation; `freq`: the default of the key."""
    return {
        "freq": opt(freq, "[1, inf)", "steps of the clock between evaluations"),
        "n_episode": opt(10, "[1, inf)", "episodes per evaluation, spread evenly over the environments"),
        "max_episode_steps": opt(
            30_000, "[1, inf)", "steps after which an evaluation episode is truncated; its return so far counts"
        ),
    }


def recorded_evaluation() -> Schema:
    """Keys of evaluation for algorithms that learn from recorded data."""
    return {
        **evaluation(freq=1000),
        "fqe": opt(False, None, "chain=offline: fitted Q evaluation, the value of the policy from the data alone"),
        "fqe_steps": opt(5000, "[1, inf)", "fqe: gradient steps of each fit"),
    }


def replay(size: int) -> Schema:
    """Keys of a replay buffer."""
    return {
        "buffer_size": opt(size, "[1, inf)", "capacity of the replay buffer, in transitions"),
        "save_buffer": opt(True, None, "save the replay buffer in checkpoints; otherwise a resumed run refills it"),
    }


def hindsight() -> Schema:
    """Keys of hindsight experience replay: transitions relabeled with other goals."""
    return {
        "hindsight": {
            "k": opt(4, "[1, inf)", "chain=hindsight: copies of each transition with goals that were reached later")
        }
    }


def priority() -> Schema:
    """Keys of a replay buffer that can sample by priority."""
    return {
        "replay": opt(
            "uniform",
            ("uniform", "prioritized", "table"),
            "sample transitions uniformly, by priority (the size of their TD error), or from a table with the settings "
            "policy.other.table",
        ),
        "table": {
            "sampler": opt("uniform", SELECTORS, "table: rule that chooses the transition to sample"),
            "remover": opt(
                "fifo", SELECTORS, "table: rule that chooses the transition to remove when the table is full"
            ),
            "max_times_sampled": opt(0, "[0, inf)", "table: samples after which a transition is removed; 0: no limit"),
            "limiter": opt("none", LIMITERS, "table: limiter of the ratio of samples to inserted transitions"),
            "limiter_rows": opt(
                1,
                "[1, inf)",
                "limiter min_size, ratio: transitions before the first sample; queue, stack: most transitions that "
                "wait",
            ),
            "samples_per_insert": opt(8.0, "(0, inf)", "limiter ratio: samples per inserted transition"),
            "limiter_error": opt(1024.0, "(0, inf)", "limiter ratio: samples by which either side may be ahead"),
        },
        "priority": {
            "alpha": opt(
                0.6,
                "[0, 1]",
                "prioritized: exponent of the priorities; 0 samples uniformly, 1 in proportion to the error",
            ),
            "beta": opt(
                0.4, "[0, 1]", "prioritized: initial exponent of the importance-sampling weights; annealed to 1"
            ),
            "beta_steps": opt(100_000, "[1, inf)", "prioritized: gradient steps over which beta is annealed"),
        },
    }


def rewards() -> Schema:
    """Keys for scaling the rewards of recorded data."""
    return {
        "reward": opt(
            "raw",
            KINDS,
            "scale of the rewards in learning: raw; return_range: times 1000 / (best - worst return of the recorded "
            "episodes); shift: minus 1; evaluations stay raw",
        )
    }


def recorded_folder() -> Schema:
    """Key of the data that an algorithm learns from."""
    return {"data": opt(None, None, "folder of the recorded data, see `minding data record`", type=str)}


def recorded() -> Schema:
    """Keys of the data that an algorithm learns from without an environment."""
    return {
        **recorded_folder(),
        "data_memory": opt(
            "device",
            ("device", "mapped"),
            "place of the data during training: on the device, or in their file, which may be larger than memory",
        ),
        "holdout": opt(
            0.0, "[0, 1)", "chain=offline: share of the episodes that is held out of learning and evaluates the policy"
        ),
    }


def steps_per_call() -> Schema:
    """Key of the gradient steps of an iteration that learns from recorded data."""
    return {
        "steps_per_call": opt(
            32, "[1, inf)", "gradient steps per iteration, all in one compiled call; results do not depend on it"
        )
    }


def recorded_learn(learning_rate: float, batch_size: int) -> Schema:
    """Keys of learning values from recorded data; arguments are the defaults of the keys."""
    return {
        "learning_rate": opt(learning_rate, "(0, 1]", "learning rate of Adam"),
        **anneal(False),
        "batch_size": opt(batch_size, "[1, inf)", "recorded steps per gradient step"),
        **steps_per_call(),
        "gamma": opt(0.99, "[0, 1]", "discount factor"),
        **on_nan(),
    }


def online(n_sample: int) -> tuple[Schema, Schema, Schema]:
    """Keys of an algorithm that learns from recorded data and can continue in the environment.

    Args:
      n_sample: the default of the key.
    Returns:
      The keys in the sections `collect`, `learn` and `other`.
    """
    learn = off_policy_learn(3e-4, 256, n_sample)
    where = "chain=prior_data: "
    names = ("update_per_collect", "updates_per_step", "warmup", "nstep")
    of_learn = {name: dataclasses.replace(learn[name], doc=where + learn[name].doc) for name in names}
    of_collect = collect(n_sample)["n_sample"]
    of_other = {name: dataclasses.replace(each, doc=where + each.doc) for name, each in replay(1_000_000).items()}
    return (
        {"n_sample": dataclasses.replace(of_collect, doc=where + of_collect.doc)},
        of_learn,
        {**of_other, "data_share": prior_data()["data_share"]},
    )


def weighted_regression(scale: float, limit: float) -> Schema:
    """Keys of actors that imitate recorded actions by their advantage; arguments are the defaults of the keys."""
    return {
        **soft_targets(),
        "weight_scale": opt(scale, "[0, inf)", "factor of the advantage in the exponent of an action's weight"),
        "weight_limit": opt(limit, "(0, inf)", "largest weight of an action"),
    }


def prior_data() -> Schema:
    """Keys of recorded data that are used in addition to collected data."""
    return {
        "data": opt(
            None,
            None,
            "chain=prior_data: folder of recorded data, which are added to the collected data; see offline.md",
            type=str,
        ),
        "data_share": opt(0.5, "(0, 1)", "chain=prior_data: share of the recorded data in each minibatch"),
    }


def soft_targets() -> Schema:
    """Key of target networks that are moving averages of the online networks."""
    return {
        "tau": opt(
            0.005, "(0, 1]", "weight of the online networks in the moving average of the targets, per target update"
        )
    }


def twin_delayed() -> Schema:
    """Keys of twin critics whose actor and targets are updated less often."""
    return {
        **soft_targets(),
        "policy_delay": opt(2, "[1, inf)", "critic updates per update of the actor and the targets"),
        "target_noise": opt(
            0.2, "[0, inf)", "standard deviation of the noise on target actions (target policy smoothing)"
        ),
        "noise_clip": opt(0.5, "[0, inf)", "clipping range of that noise"),
    }


def support() -> Schema:
    """Keys of the support of categorical return distributions."""
    return {
        "n_atoms": opt(51, "[2, inf)", "atoms of the return distribution, equally spaced"),
        "v_min": opt(-10.0, None, "smallest atom; smaller returns are clipped to it"),
        "v_max": opt(10.0, None, "largest atom; larger returns are clipped to it"),
    }


def passes(n_epoch: int, n_minibatch: int) -> Schema:
    """Keys of learning from a rollout in minibatches; arguments are the defaults of the keys."""
    return {
        "n_epoch": opt(n_epoch, "[1, inf)", "passes over each rollout"),
        "n_minibatch": opt(n_minibatch, "[1, inf)", "minibatches per pass, reshuffled each time"),
    }


def optimizer(default: str) -> Schema:
    """Key of the optimizer; `default`: the default of the key."""
    return {"optimizer": opt(default, ("adam", "rmsprop"), "optimizer; RMSProp uses decay 0.99")}


def noisy(default: bool) -> Schema:
    """Keys of noisy layers; `default`: the default of the key."""
    return {
        "noisy": opt(default, None, "explore with noisy layers, whose noise scale is learned, instead of `other.eps`"),
        "noisy_sigma": opt(0.5, "[0, inf)", "initial noise scale, multiplied by 1/sqrt(inputs of the layer)"),
    }


def anneal(default: bool) -> Schema:
    """Keys of learning rate annealing."""
    kinds = tuple(shape for shape in SHAPES if shape != "constant")
    return {
        "anneal_lr": opt(default, None, "anneal the learning rate over anneal_steps"),
        "anneal_kind": opt("linear", kinds, "schedule: linear to 0, exponential to 0.7 %, or along anneal_points"),
        "anneal_points": opt(
            [], None, "piecewise: [fraction of anneal_steps, fraction of the learning rate] at each breakpoint"
        ),
        "anneal_steps": opt(
            None,
            "[1, inf)",
            "steps of the clock over which the learning rate is annealed; None: the whole run",
            type=int,
        ),
    }


def on_nan() -> Schema:
    """Key for the handling of updates that are not finite."""
    return {
        "on_nan": opt("stop", ("stop", "skip"), "after an update with NaN or infinity: end the run, or undo the update")
    }


def off_policy_learn(learning_rate: float, batch_size: int, updates: int) -> Schema:
    """Keys of learning from replay."""
    return {
        "learning_rate": opt(learning_rate, "(0, 1]", "learning rate of Adam"),
        **anneal(False),
        "batch_size": opt(batch_size, "[1, inf)", "transitions per gradient step"),
        "update_per_collect": opt(updates, "[1, inf)", "gradient steps per iteration"),
        "updates_per_step": opt(
            None,
            "(0, inf)",
            "gradient steps per environment step, in calls of update_per_collect; None: one call per iteration",
            type=float,
        ),
        "warmup": opt(1000, "[1, inf)", "transitions in the buffer before learning starts"),
        "gamma": opt(0.99, "[0, 1]", "discount factor"),
        "nstep": opt(1, "[1, inf)", "steps of the n-step return"),
        **on_nan(),
    }


def temperature() -> Schema:
    """Keys of maximum-entropy learning."""
    return {
        "alpha": opt(1.0, "(0, inf)", "entropy temperature, or its initial value if it is learned"),
        "auto_alpha": opt(True, None, "tune the temperature automatically"),
        "target_entropy": opt(
            None, None, "target entropy in nats; None: minus the number of action dimensions", type=float
        ),
    }


def target(freq: int, kind: str = "periodic") -> Schema:
    """Keys of a target network; arguments are the defaults of the keys."""
    return {
        "target": {
            "kind": opt(
                kind,
                ("periodic", "soft"),
                "copy the online network every `freq` steps, or average with `tau` at each step",
            ),
            "freq": opt(freq, "[1, inf)", "periodic: gradient steps between copies"),
            "tau": opt(0.005, "(0, 1]", "soft: weight of the online network in the moving average"),
        }
    }


def eps(decay: int) -> Schema:
    """Keys of a schedule of random actions; `decay`: the default of the key."""
    return {
        "eps": {
            "kind": opt("linear", SHAPES, "shape of the schedule"),
            "start": opt(1.0, "[0, 1]", "initial probability of a random action"),
            "end": opt(0.05, "[0, 1]", "final probability of a random action"),
            "decay": opt(decay, "[1, inf)", "environment steps from start to end (exp: time constant)"),
            "points": opt(
                [], None, "piecewise: [fraction of decay, remaining fraction of start - end] at each breakpoint"
            ),
        }
    }


def action_values(model_keys: Schema | None = None, learn: Schema | None = None) -> Schema:
    """Keys of value-based policies that learn from replay; `model_keys` and `learn` are additional keys in the sections
    `model` and `learn`."""
    return {
        "model": {
            **model([128, 128], "relu"),
            "dueling": opt(False, None, "separate streams for state value and advantages"),
            **(model_keys or {}),
        },
        "learn": {
            **off_policy_learn(1e-3, 128, 2),
            "double": opt(True, None, "double Q-learning: the online network selects the next action"),
            "grad_norm": opt(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **target(250),
            **(learn or {}),
        },
        "collect": collect(8),
        "eval": evaluation(),
        "other": {
            **replay(50_000),
            **priority(),
            **hindsight(),
            **prior_data(),
            **eps(10_000),
        },
    }


def team_values(model_keys: Schema | None = None) -> Schema:
    """Keys of value-based policies for several agents that learn from whole episodes; `model_keys`: additional keys in
    the section `model`."""
    learn = off_policy_learn(5e-4, 32, 8)
    del learn["nstep"]
    return {
        "model": {
            **model([64], "relu"),
            "memory": opt("gru", ("none", "gru", "lstm"), "recurrent layer between hidden layers and values"),
            "memory_dim": opt(64, "[1, inf)", "units of the recurrent layer"),
            **(model_keys or {}),
        },
        "learn": {
            **learn,
            "batch_size": opt(32, "[1, inf)", "episodes per gradient step"),
            "double": opt(True, None, "double Q-learning: the online network selects the next action"),
            "td_lambda": opt(0.0, "[0, 1]", "lambda of the lambda-returns; 0: one-step targets"),
            "grad_norm": opt(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **target(200),
        },
        "collect": collect(200),
        "eval": evaluation(),
        "other": {**replay(50_000), **eps(50_000)},
    }


def rnd() -> Schema:
    """Keys of the intrinsic reward for novelty, see `policies.rewards.rnd`."""
    return {
        "rnd": {
            "weight": opt(0.0, "[0, inf)", "rnd: weight of the intrinsic reward; 0 turns it off"),
            "learning_rate": opt(1e-3, "(0, 1]", "rnd: learning rate of Adam"),
            "gamma": opt(
                0.99,
                "[0, 1]",
                "rnd: discount factor of the intrinsic returns, whose standard deviation divides the intrinsic rewards",
            ),
            "n_epoch": opt(1, "[1, inf)", "rnd: passes over each rollout"),
            "n_minibatch": opt(4, "[1, inf)", "rnd: minibatches per pass"),
            "hidden": opt([64], "[1, inf)", "rnd: sizes of the hidden layers of the random network"),
            "dim": opt(32, "[1, inf)", "rnd: output features of the random network"),
        }
    }


def actor_critic(learn: Schema, n_sample: int) -> Schema:
    """Keys of policies with an actor and a state value; `learn`: additional keys in the section `learn`; `n_sample`:
    the default of the key."""
    return {
        "model": {
            **model([64, 64], "tanh"),
            "log_std": opt(
                0.0,
                "[-5, 2]",
                "initial log standard deviation of continuous actions; -1 may help if the best actions lie near a "
                "bound",
            ),
        },
        "learn": {
            "learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam"),
            **anneal(True),
            "gamma": opt(0.99, "[0, 1]", "discount factor"),
            "entropy_weight": opt(0.01, "[0, inf)", "weight of the entropy bonus"),
            "value_weight": opt(0.5, "[0, inf)", "weight of the value loss"),
            "grad_norm": opt(0.5, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping"),
            **learn,
            **on_nan(),
        },
        "collect": collect(n_sample),
        "eval": evaluation(),
        "other": {},
    }
