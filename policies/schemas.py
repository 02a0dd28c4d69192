"""The configuration keys of every algorithm, importable without MindSpore. `Policy.config_schema` is the entry here."""

from __future__ import annotations

from typing import Any

from minding.engine.config.compiler import opt

Schema = dict[str, Any]


def _model(hidden: list[int], activation: str) -> Schema:
    return {
        "hidden": opt(hidden, "[1, inf)", "sizes of the hidden layers"),
        "activation": opt(activation, ("relu", "tanh"), "of the hidden layers"),
        "normalize_obs": opt(False, None, "scale vectors to zero mean and unit variance, inside the network"),
        "encoder_dim": opt(64, "[1, inf)", "features per key if the observation has several"),
        "cnn": opt([], None, "convolutions as [channels, kernel, stride]; empty picks them by image size"),
        "cnn_dim": opt(256, "[1, inf)", "features of an image encoder"),
    }


def _collect(n_sample: int) -> Schema:
    return {
        "n_sample": opt(n_sample, "[1, inf)", "environment steps per iteration, over all environments together"),
        "backend": opt("auto", ("auto", "graph", "host"), "what computes actions: a compiled graph, or NumPy"),
    }


def _eval() -> Schema:
    return {
        "freq": opt(10_000, "[1, inf)", "environment steps between evaluations"),
        "n_episode": opt(10, "[1, inf)", "episodes per evaluation, spread evenly over the environments"),
        "max_episode_steps": opt(
            30_000, "[1, inf)", "steps after which an evaluation episode is cut off; its return so far counts"
        ),
    }


def _replay(size: int) -> Schema:
    return {
        "buffer_size": opt(size, "[1, inf)", "transitions kept for replay"),
        "save_buffer": opt(True, None, "keep them in checkpoints; otherwise a resumed run refills its buffer"),
    }


def _anneal(default: bool) -> Schema:
    return {
        "anneal_lr": opt(default, None, "bring the learning rate linearly to 0 over anneal_steps"),
        "anneal_steps": opt(None, "[1, inf)", "environment steps of that; None: run.max_env_step", type=int),
    }


def _on_nan() -> Schema:
    return {"on_nan": opt("stop", ("stop", "skip"), "after an update with NaN or infinity: end the run, or undo it")}


def _off_policy_learn(learning_rate: float, batch_size: int, updates: int) -> Schema:
    return {
        "learning_rate": opt(learning_rate, "(0, 1]", "step size of Adam"),
        **_anneal(False),
        "batch_size": opt(batch_size, "[1, inf)", "transitions per gradient step"),
        "update_per_collect": opt(updates, "[1, inf)", "gradient steps per iteration"),
        "warmup": opt(1000, "[1, inf)", "transitions in the buffer before learning starts"),
        "gamma": opt(0.99, "[0, 1]", "discount"),
        "nstep": opt(1, "[1, inf)", "steps of the return before bootstrapping"),
        **_on_nan(),
    }


def dqn() -> Schema:
    return {
        "model": {
            **_model([128, 128], "relu"),
            "dueling": opt(False, None, "separate streams for state value and advantages"),
        },
        "learn": {
            **_off_policy_learn(1e-3, 128, 2),
            "double": opt(True, None, "choose the next action with the online network"),
            "grad_norm": opt(10.0, "[0, inf)", "gradients are scaled down to this norm; 0 leaves them"),
            "target": {
                "kind": opt("periodic", ("periodic", "soft"), "copy every `freq` steps, or move by `tau` each step"),
                "freq": opt(250, "[1, inf)", "gradient steps between copies"),
                "tau": opt(0.005, "(0, 1]", "share of the online weights per step"),
            },
        },
        "collect": _collect(8),
        "eval": _eval(),
        "other": {
            **_replay(50_000),
            "eps": {
                "kind": opt("linear", ("linear", "exp"), "shape of the schedule"),
                "start": opt(1.0, "[0, 1]", "share of random actions at the start"),
                "end": opt(0.05, "[0, 1]", "share of random actions at the end"),
                "decay": opt(10_000, "[1, inf)", "environment steps from start to end (exp: time constant)"),
            },
        },
    }


def sac() -> Schema:
    return {
        "model": _model([256, 256], "relu"),
        "learn": {
            **_off_policy_learn(3e-4, 256, 8),
            "tau": opt(0.005, "(0, 1]", "share of the online critics moved into the targets per gradient step"),
            "alpha": opt(1.0, "(0, inf)", "temperature at the start"),
            "auto_alpha": opt(True, None, "learn the temperature"),
            "target_entropy": opt(None, None, "target entropy, nats; None: -(action size)", type=float),
        },
        "collect": {
            **_collect(8),
            "random_steps": opt(0, "[0, inf)", "environment steps of uniformly random actions at the start"),
        },
        "eval": _eval(),
        "other": _replay(1_000_000),
    }


def _actor_critic(learn: Schema, n_sample: int) -> Schema:
    """Keys of policies with an actor and a state value; `learn`: their own keys for learning."""
    return {
        "model": {
            **_model([64, 64], "tanh"),
            "log_std": opt(0.0, "[-5, 2]", "log deviation of continuous actions at the start"),
        },
        "learn": {
            "learning_rate": opt(3e-4, "(0, 1]", "step size of Adam"),
            **_anneal(True),
            "gamma": opt(0.99, "[0, 1]", "discount"),
            "entropy_weight": opt(0.01, "[0, inf)", "weight of the entropy bonus"),
            "value_weight": opt(0.5, "[0, inf)", "weight of the value loss"),
            "grad_norm": opt(0.5, "[0, inf)", "gradients are scaled down to this norm; 0 leaves them"),
            **learn,
            **_on_nan(),
        },
        "collect": _collect(n_sample),
        "eval": _eval(),
        "other": {},
    }


def ppo() -> Schema:
    learn = {
        "n_epoch": opt(4, "[1, inf)", "passes over each rollout"),
        "n_minibatch": opt(4, "[1, inf)", "minibatches per pass, reshuffled each time"),
        "gae_lambda": opt(0.95, "[0, 1]", "trades bias for variance of the advantage"),
        "clip_ratio": opt(0.2, "(0, 1)", "clip range of the probability ratio"),
        "value_clip": opt(True, None, "clip the change of the value by clip_ratio"),
        "normalize_advantage": opt(True, None, "to zero mean and unit variance in each minibatch"),
        "target_kl": opt(None, "(0, inf)", "end the gradient steps once the KL exceeds 1.5 times this", type=float),
    }
    return _actor_critic(learn, 1024)


def impala() -> Schema:
    learn = {
        "n_epoch": opt(1, "[1, inf)", "gradient steps on each rollout, each on the whole of it"),
        "rho_bar": opt(1.0, "(0, inf)", "bound of the probability ratio that weights a step's error"),
        "c_bar": opt(1.0, "(0, inf)", "bound of the probability ratio that carries later errors back"),
        "vtrace_lambda": opt(1.0, "[0, 1]", "trades bias for variance: share of later errors carried back"),
    }
    return _actor_critic(learn, 160)


def a3c() -> Schema:
    return _actor_critic({"gae_lambda": opt(1.0, "[0, 1]", "trades bias for variance; 1: n-step returns")}, 160)
