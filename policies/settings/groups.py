"""Groups of settings that several algorithms share; arguments are the defaults that differ between algorithms.

Each setting is declared in `engine.config.config`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from minding.engine.config.config import (
    CollectSection,
    EvalSection,
    LearnSection,
    ModelSection,
    NoiseSection,
    OtherSection,
    TargetSection,
)
from minding.engine.config.options import MODULE_NAME, opt
from minding.engine.config.space import Choice

Schema = dict[str, Any]
TEAM_SEARCH = {"learn.batch_size": Choice.of(16, 32, 64), "model.hidden": Choice.of([64], [128], [64, 64])}
"""Searched values of algorithms with the keys `team_values`, whose minibatches consist of whole episodes."""


def described(options: Schema, **docs: str) -> Schema:
    """The same options, some with another description."""
    return {key: dataclasses.replace(option, doc=docs.get(key, option.doc)) for key, option in options.items()}


def model(hidden: list[int], activation: str, *, critics: bool = False) -> Schema:
    """Keys of networks; `critics`: whether the critics are networks separate from the acting network."""
    keys = ModelSection.options(
        "norm", "encoder", "normalize_obs", "encoder_dim", "cnn", "cnn_dim", hidden=hidden, activation=activation
    )
    if critics:
        where = ": in all networks ('layer') or in the critics only ('critics')"
        norm = keys["norm"]
        keys["norm"] = dataclasses.replace(norm, allowed=(*norm.allowed, "critics"), doc=norm.doc + where)
    return keys


def blocks() -> Schema:
    """Key of the kind of hidden layers."""
    return ModelSection.options("block")


def augmentation() -> Schema:
    """Key of the augmentation of images."""
    return ModelSection.options("augment")


def memory(default: str = "none", where: str = "encoder and heads") -> Schema:
    """Keys of the memory of a network; `default`: the default of the key; `where`: the layers between which it is."""
    keys = ModelSection.options("memory", "memory_dim", "memory_length", "memory_layers", "memory_heads")
    doc = f"recurrent layer or gated transformer between {where}"
    return {**keys, "memory": dataclasses.replace(keys["memory"], default=default, doc=doc)}


def collect(n_sample: int) -> Schema:
    """Keys of collection; `n_sample`: the default of the key."""
    return CollectSection.options("backend", n_sample=n_sample)


def noise(kind: str, sigma: float) -> Schema:
    """Keys of noise on continuous actions; arguments are the defaults of the keys."""
    return {"noise": NoiseSection.options("theta", kind=kind, sigma=sigma)}


def evaluation(freq: int = 10_000) -> Schema:
    """Keys of evaluation; `freq`: the default of the key."""
    return EvalSection.options("n_episode", "max_episode_steps", freq=freq)


def recorded_evaluation() -> Schema:
    """Keys of evaluation for algorithms that learn from recorded data."""
    return EvalSection.options("n_episode", "max_episode_steps", "fqe", "fqe_steps", freq=1000)


def replay(size: int) -> Schema:
    """Keys of a replay buffer."""
    kinds = opt(
        "uniform",
        ("uniform", MODULE_NAME),
        "sample uniformly, or from a buffer of your own, see howto/custom_algorithms.md",
    )
    return {**OtherSection.options("save_buffer", buffer_size=size), "replay": kinds}


def priority() -> Schema:
    """Keys of a replay buffer that can sample by priority."""
    keys = OtherSection.options("replay", "table", "priority")
    # Of sequences only.
    del keys["priority"]["eta"], keys["priority"]["stride"]
    return keys


def novelty() -> Schema:
    """Keys of rewards for novelty."""
    return OtherSection.options("rnd", "icm")


def rewards() -> Schema:
    """Keys for scaling the rewards of recorded data."""
    return OtherSection.options("reward")


def recorded_folder() -> Schema:
    """Key of the data that an algorithm learns from."""
    return described(OtherSection.options("data"), data="folder of the recorded data, see `minding data record`")


def recorded() -> Schema:
    """Keys of the data that an algorithm learns from without an environment."""
    return {**recorded_folder(), **OtherSection.options("data_memory", "holdout")}


def recorded_learn(learning_rate: float, batch_size: int) -> Schema:
    """Keys of learning values from recorded data; arguments are the defaults of the keys."""
    keys = LearnSection.options(
        "optimizer", "gamma", "on_nan", "steps_per_call", learning_rate=learning_rate, batch_size=batch_size
    )
    return {**described(keys, batch_size="recorded steps per gradient step"), **anneal(False)}


def replayed_critics(learn: Schema, model_keys: Schema | None = None, collect_keys: Schema | None = None) -> Schema:
    """Keys of policies with critics that learn from replay; arguments are additional keys in the sections `learn`,
    `model` and `collect`."""
    return {
        "model": {**model([256, 256], "relu", critics=True), **blocks(), **(model_keys or {})},
        "learn": {**off_policy_learn(1e-3, 256, 8), **learn},
        "collect": {**collect(8), **CollectSection.options("random_steps"), **(collect_keys or {})},
        "eval": evaluation(),
        "other": {**replay(1_000_000), **OtherSection.options("hindsight"), **prior_data(), **novelty()},
    }


def recorded_critics(learn: Schema, model_keys: Schema | None = None, collect_keys: Schema | None = None) -> Schema:
    """Keys of policies with critics that learn from recorded data and can continue in the environment; arguments are
    additional keys in the sections `learn`, `model` and `collect`."""
    online = (
        CollectSection.options(n_sample=8),
        LearnSection.options("updates_per_step", "warmup", "nstep", update_per_collect=8),
        OtherSection.options("save_buffer", buffer_size=1_000_000),
    )
    of_collect, of_learn, of_other = (
        described(part, **{key: f"chain=prior_data: {option.doc}" for key, option in part.items()}) for part in online
    )
    return {
        "model": {**model([256, 256], "relu", critics=True), **blocks(), **(model_keys or {})},
        "learn": {**recorded_learn(3e-4, 256), **of_learn, **learn},
        "collect": {**of_collect, **CollectSection.options("backend"), **(collect_keys or {})},
        "eval": recorded_evaluation(),
        "other": {**recorded(), **of_other, **OtherSection.options("data_share"), **rewards()},
    }


def action_deviation() -> Schema:
    """Key of the deviation of continuous actions, a parameter that does not depend on the state."""
    return described(ModelSection.options("log_std"), log_std="initial log standard deviation of actions")


def weighted_regression(scale: float, limit: float) -> Schema:
    """Keys of actors that imitate recorded actions by their advantage; arguments are the defaults of the keys."""
    return LearnSection.options("tau", weight_scale=scale, weight_limit=limit)


def prior_data() -> Schema:
    """Keys of recorded data that are used in addition to collected data."""
    return OtherSection.options("data", "data_share")


def soft_targets(tau: float = 0.005, network: str = "networks", per: str = "target update") -> Schema:
    """Key of target networks that are moving averages of the online networks.

    Args:
      tau: the default of the key.
      network, per: the networks that are averaged, and the time between two steps of the average.
    """
    keys = LearnSection.options(tau=tau)
    return described(keys, tau=f"weight of the online {network} in the moving average of the targets, per {per}")


def passes(n_epoch: int, n_minibatch: int) -> Schema:
    """Keys of learning from a rollout in minibatches; arguments are the defaults of the keys."""
    return LearnSection.options(n_epoch=n_epoch, n_minibatch=n_minibatch)


def trust_region() -> Schema:
    """Keys of steps along the natural gradient."""
    return {
        "max_kl": opt(0.01, "(0, 1]", "largest mean divergence of the policy by a step"),
        "cg_iterations": opt(10, "[1, 1000]", "iterations of the conjugate gradient method"),
        "cg_damping": opt(0.1, "[0, inf)", "multiple of the identity that is added to the Fisher matrix"),
    }


def anneal(default: bool) -> Schema:
    """Keys of learning rate annealing."""
    return LearnSection.options("anneal_kind", "anneal_points", "anneal_steps", anneal_lr=default)


def off_policy_learn(learning_rate: float, batch_size: int, updates: int) -> Schema:
    """Keys of learning from replay."""
    keys = LearnSection.options(
        "updates_per_step", "warmup", "optimizer", "gamma", "nstep", "on_nan",
        learning_rate=learning_rate, batch_size=batch_size, update_per_collect=updates,
    )  # fmt: skip
    return {**keys, **anneal(False)}


def target(freq: int, kind: str = "periodic") -> Schema:
    """Keys of a target network; arguments are the defaults of the keys."""
    return {"target": TargetSection.options("tau", kind=kind, freq=freq)}


def eps(decay: int) -> Schema:
    """Keys of a schedule of random actions; `decay`: the default of the key."""
    keys = OtherSection.options("eps")
    keys["eps"]["decay"] = dataclasses.replace(keys["eps"]["decay"], default=decay)
    return keys


def action_values(model_keys: Schema | None = None, learn: Schema | None = None) -> Schema:
    """Keys of value-based policies that learn from replay; `model_keys` and `learn` are additional keys in the sections
    `model` and `learn`."""
    return {
        "model": {**model([128, 128], "relu"), **blocks(), **ModelSection.options("dueling"), **(model_keys or {})},
        "learn": {
            **off_policy_learn(1e-3, 128, 2),
            **LearnSection.options("double", grad_norm=10.0),
            **target(250),
            **(learn or {}),
        },
        "collect": collect(8),
        "eval": evaluation(),
        "other": {
            **replay(50_000),
            **priority(),
            **OtherSection.options("hindsight"),
            **prior_data(),
            **eps(10_000),
            **novelty(),
        },
    }


def team_values(model_keys: Schema | None = None) -> Schema:
    """Keys of value-based policies for several agents that learn from whole episodes; `model_keys`: additional keys in
    the section `model`."""
    learn = described(off_policy_learn(5e-4, 32, 8), batch_size="episodes per gradient step")
    del learn["nstep"]
    return {
        "model": {**model([64], "relu"), **memory("gru", "hidden layers and values"), **(model_keys or {})},
        "learn": {**learn, **LearnSection.options("double", "td_lambda", grad_norm=10.0), **target(200)},
        "collect": collect(200),
        "eval": evaluation(),
        "other": {**replay(50_000), **eps(50_000)},
    }


def actor_critic(learn: Schema, n_sample: int) -> Schema:
    """Keys of policies with an actor and a state value; `learn`: additional keys in the section `learn`; `n_sample`:
    the default of the key."""
    return {
        "model": {**model([64, 64], "tanh"), **blocks(), **ModelSection.options("log_std")},
        "learn": {
            **LearnSection.options(
                "optimizer", "gamma", "entropy_weight", "value_weight", learning_rate=3e-4, grad_norm=0.5
            ),
            **anneal(True),
            **learn,
            **LearnSection.options("on_nan"),
        },
        "collect": collect(n_sample),
        "eval": evaluation(),
        "other": {},
    }
