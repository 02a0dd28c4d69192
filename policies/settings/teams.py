"""Settings of algorithms for several agents."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import CollectSection, LearnSection, ModelSection
from minding.engine.config.options import WIDTH
from minding.policies.settings import ANY_ACTIONS, SINGLE_ACTIONS, Algorithm, actor_critic, groups


def qmix() -> groups.Schema:
    """Settings of QMIX."""
    return groups.team_values(
        {
            "mixer_dim": opt(32, WIDTH, "units of the mixing network"),
            "hypernet_dim": opt(64, WIDTH, "hidden units of the hypernetworks, which output the mixing weights"),
        }
    )


def wqmix() -> groups.Schema:
    """Settings of WQMIX."""
    keys = qmix()
    keys["model"].update(_joint_hidden())
    keys["learn"].update(
        {
            "weighting": opt(
                "optimistic",
                ("optimistic", "central"),
                "whose errors keep the weight 1: those of joint actions whose value is too low (optimistic), or those "
                "of the best joint action and of actions that seem better (central)",
            ),
            "error_weight": opt(0.1, "(0, 1]", "weight of all other squared errors, alpha; 1: no weighting"),
        }
    )
    return keys


def qtran() -> groups.Schema:
    """Settings of QTRAN."""
    keys = groups.team_values(_joint_hidden())
    keys["learn"].update(
        {
            "best_weight": opt(1.0, "[0, inf)", "weight of the loss of best joint actions, lambda_opt"),
            "other_weight": opt(1.0, "[0, inf)", "weight of the loss of all other joint actions, lambda_nopt"),
            "counterfactual": opt(
                False,
                None,
                "the loss of other joint actions compares all actions of one agent, with those that the others took "
                "(QTRAN-alt); otherwise it has only the actions taken (QTRAN-base)",
            ),
        }
    )
    return keys


def _joint_hidden() -> groups.Schema:
    return {"joint_hidden": opt([128, 128], WIDTH, "sizes of the hidden layers of the joint value")}


def coma() -> groups.Schema:
    """Settings of COMA."""
    return {
        "model": {
            **groups.model([64], "relu"),
            **groups.described(ModelSection.options("memory_dim"), memory_dim="units of the GRU of an agent"),
            "critic_hidden": opt([128, 128], WIDTH, "sizes of the hidden layers of the critic"),
            "critic_state": opt(
                True, None, "the critic sees the global state in addition to the observation of the agent"
            ),
        },
        "learn": {
            **groups.described(
                LearnSection.options(
                    "critic_learning_rate",
                    "optimizer",
                    "gamma",
                    "entropy_weight",
                    "normalize_advantage",
                    "on_nan",
                    learning_rate=5e-4,
                    td_lambda=0.8,
                    n_epoch=4,
                    n_minibatch=1,
                    grad_norm=10.0,
                ),
                learning_rate="learning rate of Adam for the actor",
                td_lambda="lambda of the lambda-returns that the critic learns",
                n_epoch="passes of the critic over each rollout; the last one is also the actor's",
                n_minibatch="parts into which the environments are divided, with one gradient step each; reshuffled "
                "for every pass",
                normalize_advantage="scale advantages to a mean square of 1 in each rollout",
                grad_norm="clip the gradient norms of actor and critic to this, separately; 0: no clipping",
            ),
            **groups.anneal(True),
            **groups.target(150),
        },
        "collect": groups.collect(400),
        "eval": groups.evaluation(),
        "other": {},
    }


def ippo() -> groups.Schema:
    """IPPO: PPO for each agent of a team; all share one network, and each sees only its own observation.

    de Witt et al., 2020, https://arxiv.org/abs/2011.09533.
    """
    # RND rewards novelty for one agent only, so its keys are left out.
    return actor_critic.clipped_surrogate(groups.passes(4, 4))


def mappo() -> groups.Schema:
    """Settings of MAPPO."""
    learn = {
        **groups.passes(10, 1),
        **groups.described(
            LearnSection.options("value_clip", learning_rate=7e-4, value_weight=1.0, grad_norm=10.0),
            value_clip="clip the change in normalized value to clip_ratio",
        ),
        "value_norm": opt(True, None, "normalize values by running statistics of the returns"),
        "value_norm_decay": opt(0.99, "[0, 1)", "decay of those running statistics, per rollout"),
        "huber_delta": opt(
            10.0, "(0, inf)", "threshold of the Huber value loss, beyond which it is linear; in normalized units"
        ),
        "death_masking": opt(
            True,
            None,
            "team rewards: the return of an agent that has left continues, and its value sees only its index",
        ),
    }
    return actor_critic.clipped_surrogate(learn)


def happo() -> groups.Schema:
    """Settings of HAPPO."""
    schema = mappo()
    for key in groups.memory():
        del schema["model"][key]
    for key in ("target_kl", "value_weight"):
        del schema["learn"][key]
    steps = groups.trust_region()
    schema["learn"] = {
        **groups.described(
            {**schema["learn"], **LearnSection.options(critic_learning_rate=7e-4)},
            learning_rate="learning rate of Adam for the actors",
            n_epoch="passes of each agent over its rows of a rollout",
        ),
        "trust_region": opt(
            False, None, "HATRPO: each actor takes one natural step per rollout, on its first minibatch"
        ),
        **groups.described(steps, **{key: f"trust_region: {option.doc}" for key, option in steps.items()}),
    }
    return schema


def maddpg() -> groups.Schema:
    """Settings of MADDPG."""
    return {
        "model": {
            **groups.model([64, 64], "relu", critics=True),
            **ModelSection.options("central"),
        },
        "learn": {
            **groups.off_policy_learn(1e-3, 256, 8),
            **groups.soft_targets(0.01, per="gradient step"),
            **groups.described(
                LearnSection.options(gamma=0.95, grad_norm=0.5),
                grad_norm="clip the global norm of all actors' gradients, and of all critics', to this; 0: no clipping",
            ),
            **LearnSection.options("temperature"),
            "logit_weight": opt(1e-3, "[0, inf)", "discrete actions: weight of the mean squared logit"),
        },
        "collect": {**groups.collect(80), **CollectSection.options("random_steps"), **groups.noise("gaussian", 0.1)},
        "eval": groups.evaluation(),
        "other": groups.replay(1_000_000),
    }


def matd3() -> groups.Schema:
    """MATD3: MADDPG with TD3's twin critics, delayed updates and, for continuous actions, noise on target actions.

    Ackermann et al., 2019, https://arxiv.org/abs/1910.01465; TD3: Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477.
    """
    schema = maddpg()
    schema["model"] |= groups.described(ModelSection.options("n_critics"), n_critics="critics of each agent")
    noise = LearnSection.options("target_noise", "noise_clip")
    described = {key: f"continuous actions: {option.doc}" for key, option in noise.items()}
    schema["learn"] |= {
        **groups.described(
            LearnSection.options("policy_delay"), policy_delay="critic updates per update of the actors and the targets"
        ),
        **groups.described(noise, **described),
    }
    return schema


def masac() -> groups.Schema:
    """Settings of MASAC."""
    schema = maddpg()
    del schema["collect"]["noise"], schema["learn"]["logit_weight"]
    schema["model"] |= groups.described(ModelSection.options("n_critics"), n_critics="critics of each agent")
    schema["learn"] |= {
        **groups.described(
            LearnSection.options("auto_alpha", "target_entropy", "target_entropy_share", alpha=0.1),
            alpha="entropy temperature of all agents, or its initial value if each learns its own",
            auto_alpha="tune the temperature of each agent automatically",
            target_entropy="continuous actions: target entropy in nats; None: minus the number of action dimensions",
            target_entropy_share="discrete actions: target entropy as a fraction of the maximum, log(number of legal "
            "actions)",
        ),
    }
    return schema


ALGORITHMS = (
    Algorithm(
        "idqn",
        "IDQN",
        groups.team_values,
        actions=("discrete",),
        chain="episode_replay",
        agents="several",
        searched=groups.TEAM_SEARCH,
    ),
    Algorithm(
        "vdn",
        "VDN",
        groups.team_values,
        actions=("discrete",),
        chain="episode_replay",
        agents="several",
        searched=groups.TEAM_SEARCH,
        needs=("team_reward",),
    ),
    Algorithm(
        "qmix",
        "QMIX",
        qmix,
        actions=("discrete",),
        chain="episode_replay",
        agents="several",
        searched=groups.TEAM_SEARCH,
        needs=("global_state", "team_reward"),
    ),
    Algorithm(
        "wqmix",
        "WQMIX",
        wqmix,
        actions=("discrete",),
        chain="episode_replay",
        agents="several",
        searched=groups.TEAM_SEARCH,
        needs=("global_state", "team_reward"),
    ),
    Algorithm(
        "qtran",
        "QTRAN",
        qtran,
        actions=("discrete",),
        chain="episode_replay",
        agents="several",
        searched=groups.TEAM_SEARCH,
        needs=("global_state", "team_reward"),
    ),
    Algorithm(
        "coma",
        "COMA",
        coma,
        actions=("discrete",),
        chain="trajectory",
        agents="several",
        needs=("global_state", "team_reward"),
    ),
    Algorithm("ippo", "PPO", ippo, actions=ANY_ACTIONS, chain="on_policy", agents="several", variant_of="ppo"),
    Algorithm(
        "mappo", "MAPPO", mappo, actions=ANY_ACTIONS, chain="on_policy", agents="several", needs=("global_state",)
    ),
    Algorithm(
        "happo",
        "HAPPO",
        happo,
        actions=SINGLE_ACTIONS,
        chain="on_policy",
        agents="several",
        needs=("global_state", "team_reward"),
    ),
    Algorithm(
        "maddpg", "MADDPG", maddpg, actions=("discrete", "box"), chain="off_policy", unit_box=True, agents="several"
    ),
    Algorithm(
        "matd3",
        "MADDPG",
        matd3,
        actions=("discrete", "box"),
        chain="off_policy",
        unit_box=True,
        agents="several",
        variant_of="maddpg",
    ),
    Algorithm(
        "masac", "MASAC", masac, actions=("discrete", "box"), chain="off_policy", unit_box=True, agents="several"
    ),
)
