"""Settings of algorithms with an actor and critics of actions that learn from replay."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.engine.data.action_trees import COMPOSITE
from minding.policies.settings import Algorithm, groups

_SCALED = ModelSection.options(normalize_obs=True)
"""With vectors in units of their running deviation, tasks of any scale are learned."""


def ddpg() -> groups.Schema:
    """Settings of DDPG."""
    learn = groups.soft_targets(per="gradient step")
    return groups.replayed_critics(learn, _SCALED, groups.noise("ou", 0.2))


def td3() -> groups.Schema:
    """Settings of TD3."""
    learn = LearnSection.options("tau", "policy_delay", "target_noise", "noise_clip")
    return groups.replayed_critics(learn, _SCALED, groups.noise("gaussian", 0.1))


def sac() -> groups.Schema:
    """Settings of SAC."""
    schema = _soft_actor_critic()
    schema["model"] |= groups.augmentation()
    schema["learn"] |= LearnSection.options(learning_rate=1e-3)
    return schema


def _soft_actor_critic() -> groups.Schema:
    learn = {
        **LearnSection.options(learning_rate=3e-4),
        **LearnSection.options("alpha", "auto_alpha", "target_entropy"),
    }
    return groups.replayed_critics({**learn, **groups.soft_targets(network="critics", per="gradient step")}, _SCALED)


def redq() -> groups.Schema:
    """Settings of REDQ."""
    schema = _soft_actor_critic()
    schema["model"] |= {
        **ModelSection.options(n_critics=10),
        "dropout": opt(0.0, "[0, 0.9]", "share of units that hidden layers of the critics drop while they learn"),
    }
    schema["learn"] |= {
        "target_subset": opt(
            2, "[1, 100]", "critics of which the smallest value is the target, drawn again for each gradient step"
        ),
        **groups.described(
            LearnSection.options(policy_delay=20, update_per_collect=160),
            policy_delay="critic updates per update of the actor",
        ),
    }
    return schema


def crossq() -> groups.Schema:
    """Settings of CrossQ."""
    schema = _soft_actor_critic()
    # Its inputs and hidden layers have a normalization of their own.
    del schema["model"]["block"], schema["learn"]["tau"]
    schema["model"] |= ModelSection.options("n_critics", "normalize_obs")
    schema["learn"] |= {
        **LearnSection.options(learning_rate=1e-3),
        **groups.described(LearnSection.options(policy_delay=3), policy_delay="critic updates per update of the actor"),
        "renorm_after": opt(
            100_000,
            "[0, inf)",
            "gradient steps after which batches are normalized by moving averages, not by their own moments only",
        ),
    }
    return schema


def tqc() -> groups.Schema:
    """Settings of TQC."""
    schema = _soft_actor_critic()
    schema["model"] |= {
        **ModelSection.options(n_critics=5),
        "n_quantiles": opt(25, "[1, 1000]", "quantiles of each critic"),
    }
    schema["learn"] |= {
        "dropped_quantiles": opt(2, "[0, 999]", "highest quantiles per critic that are left out of the target")
    }
    return schema


def pdqn() -> groups.Schema:
    """Settings of P-DQN."""
    multi_pass = opt(
        False, None, "compute the value of a choice with its own parameters only (MP-DQN); needs a Box for each choice"
    )
    schema = groups.replayed_critics(
        groups.soft_targets(per="gradient step"), {"multi_pass": multi_pass}, groups.noise("gaussian", 0.1)
    )
    schema["other"] |= groups.eps(10_000)
    del schema["other"]["hindsight"]
    return schema


def discrete_sac() -> groups.Schema:
    """Settings of discrete SAC."""
    learn = {
        **LearnSection.options("alpha", "auto_alpha", learning_rate=3e-4),
        **groups.soft_targets(network="critics", per="gradient step"),
        **LearnSection.options("target_entropy_share"),
    }
    what = "critics with separate streams for state value and advantages"
    return groups.replayed_critics(learn, groups.described(ModelSection.options("dueling"), dueling=what))


ALGORITHMS = (
    Algorithm("ddpg", "DDPG", ddpg, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("td3", "TD3", td3, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("sac", "SAC", sac, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("redq", "REDQ", redq, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("crossq", "CrossQ", crossq, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("pdqn", "PDQN", pdqn, actions=(COMPOSITE,), chain="off_policy", unit_box=True, choices=1),
    Algorithm("tqc", "TQC", tqc, actions=("box",), chain="off_policy", unit_box=True),
    Algorithm("discrete_sac", "DiscreteSAC", discrete_sac, actions=("discrete",), chain="off_policy"),
)
