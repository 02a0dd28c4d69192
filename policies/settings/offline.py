"""Settings of algorithms that learn values from recorded data."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import CollectSection, EvalSection, LearnSection, ModelSection, OtherSection
from minding.policies.settings import Algorithm, groups


def awac() -> groups.Schema:
    """Settings of AWAC."""
    return groups.recorded_critics(groups.weighted_regression(1.0, 100.0), groups.action_deviation())


def cql() -> groups.Schema:
    """Settings of CQL."""
    return groups.recorded_critics(
        {
            "actor_learning_rate": opt(1e-4, "(0, 1]", "learning rate of Adam for the actor and the temperature"),
            **groups.soft_targets(),
            **LearnSection.options("alpha", "auto_alpha", "target_entropy"),
            "conservative_weight": opt(
                5.0,
                "(0, inf)",
                "weight of the gap between other actions and recorded ones, or its initial value if it is learned",
            ),
            "n_actions": opt(
                10,
                "[1, 1000]",
                "number of actions per source for the gap: uniform, the policy in the state, and the policy in the "
                "next state",
            ),
            "lagrange": opt(False, None, "learn conservative_weight so that the gap stays below lagrange_gap"),
            "lagrange_gap": opt(5.0, None, "lagrange: largest mean gap allowed"),
            "calibrated": opt(
                False,
                None,
                "Cal-QL: the penalty lowers values of the policy's actions only down to the return that was recorded "
                "from the state on",
            ),
        }
    )


def dt() -> groups.Schema:
    """Settings of the Decision Transformer."""
    memory = groups.memory()
    del memory["memory"]
    return {
        "model": {
            **groups.model([64], "relu"),
            **groups.described(
                memory,
                memory_dim="units of each layer",
                memory_length="steps that each layer remembers",
                memory_layers="layers of the transformer",
                memory_heads="heads of the attention, which divide memory_dim",
            ),
            **groups.described(
                ModelSection.options("log_std"), log_std="log standard deviation of continuous actions with exploration"
            ),
        },
        "learn": {
            **groups.described(
                LearnSection.options(
                    "steps_per_call", "optimizer", "on_nan",
                    learning_rate=1e-3, batch_size=64, grad_norm=0.25, length=20,
                ),
                batch_size="sequences per gradient step",
                length="recorded steps of a sequence",
            ),
            **groups.anneal(True),
        },
        "collect": CollectSection.options("backend"),
        "eval": {
            **EvalSection.options("n_episode", "max_episode_steps", freq=1000),
            "target_return": opt(
                None,
                "[-1e38, 1e38]",
                "return that the policy is asked for; None: the best of the recorded episodes",
                type=float,
            ),
        },
        "other": {**groups.recorded_folder(), **OtherSection.options("data_memory")},
    }  # fmt: skip


def discrete_cql() -> groups.Schema:
    """Settings of discrete CQL."""
    return {
        "model": {
            **groups.model([128, 128], "relu"),
            **ModelSection.options("dueling"),
        },
        "learn": {
            **groups.recorded_learn(1e-3, 128),
            **LearnSection.options(grad_norm=10.0),
            **groups.target(250, "soft"),
            "alpha": opt(1.0, "[0, inf)", "weight of the gap between all actions and the recorded ones"),
        },
        "collect": CollectSection.options("backend"),
        "eval": groups.recorded_evaluation(),
        "other": {**groups.recorded(), **groups.rewards()},
    }


def edac() -> groups.Schema:
    """Settings of EDAC and SAC-N."""
    learn = {
        **groups.soft_targets(),
        **LearnSection.options("alpha", "auto_alpha", "target_entropy"),
        "diversity_weight": opt(
            0.5, "[0, inf)", "weight of the alignment of the critics' slopes at recorded actions; 0: SAC-N"
        ),
    }
    return groups.recorded_critics(learn, ModelSection.options(n_critics=10))


def iql() -> groups.Schema:
    """Settings of IQL."""
    what = "expectile of the recorded actions' values that estimates the value of a state"
    learn = {**groups.weighted_regression(3.0, 100.0), "expectile": opt(0.7, "(0, 1)", what)}
    return groups.recorded_critics(learn, groups.action_deviation())


def td3_bc() -> groups.Schema:
    """Settings of TD3+BC and ReBRAC."""
    learn = {
        **LearnSection.options("tau", "policy_delay", "target_noise", "noise_clip"),
        "alpha": opt(
            2.5,
            "[0, inf)",
            "weight of the values relative to the distance to the recorded actions, divided by the mean absolute "
            "value; ReBRAC's 1 / (beta_1 A)",
        ),
        "critic_penalty": opt(
            0.0, "[0, inf)", "weight of that distance in the critics' target (ReBRAC's beta_2); 0: TD3+BC"
        ),
    }
    return groups.recorded_critics(learn, collect_keys=groups.noise("gaussian", 0.1))


ALGORITHMS = (
    Algorithm("awac", "AWAC", awac, actions=("box",), chain="offline", unit="train_iter", unit_box=True),
    Algorithm("cql", "CQL", cql, actions=("box",), chain="offline", unit="train_iter", unit_box=True),
    Algorithm(
        "dt",
        "DecisionTransformer",
        dt,
        actions=("discrete", "box"),
        chain="offline",
        unit="train_iter",
        unit_box=True,
    ),
    Algorithm("discrete_cql", "DiscreteCQL", discrete_cql, actions=("discrete",), chain="offline", unit="train_iter"),
    Algorithm("edac", "EDAC", edac, actions=("box",), chain="offline", unit="train_iter", unit_box=True),
    Algorithm("iql", "IQL", iql, actions=("box",), chain="offline", unit="train_iter", unit_box=True),
    Algorithm("td3_bc", "TD3BC", td3_bc, actions=("box",), chain="offline", unit="train_iter", unit_box=True),
)
