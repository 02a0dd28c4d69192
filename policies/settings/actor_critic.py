"""Settings of algorithms with an actor and a state value that learn from rollouts."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import LearnSection, ModelSection
from minding.policies.settings import ANY_ACTIONS, Algorithm, groups


def pg() -> groups.Schema:
    """Settings of PG."""
    learn = {
        **groups.described(LearnSection.options(learning_rate=3e-3, entropy_weight=0.0), learning_rate="learning rate"),
        **groups.passes(1, 1),
        "baseline": opt(
            "standardized",
            ("none", "mean", "standardized"),
            "baseline subtracted from returns: 0, or the mean of a minibatch; standardized: returns are also divided "
            "by their standard deviation",
        ),
    }
    schema = groups.actor_critic(learn, 1024)
    del schema["learn"]["value_weight"]
    return schema


def ac() -> groups.Schema:
    """Settings of AC."""
    learn = {
        **groups.passes(1, 1),
        **groups.described(
            LearnSection.options(
                "critic_learning_rate", learning_rate=1e-3, gae_lambda=0.0, entropy_weight=0.0, value_weight=1.0
            ),
            learning_rate="learning rate of the actor",
            gae_lambda="bias-variance trade-off of GAE; 0: one-step TD errors",
        ),
    }
    return groups.actor_critic(learn, 8)


def a2c() -> groups.Schema:
    """Settings of A2C."""
    learn = {
        **groups.passes(1, 1),
        **groups.described(
            LearnSection.options(
                "max_times_sampled", optimizer="rmsprop", learning_rate=7e-4, gae_lambda=1.0, normalize_advantage=False
            ),
            learning_rate="learning rate",
            gae_lambda="bias-variance trade-off of GAE; 1: n-step returns",
        ),
    }
    schema = groups.actor_critic(learn, 40)
    schema["model"] |= groups.memory()
    return schema


def a3c() -> groups.Schema:
    """Settings of A3C."""
    return groups.actor_critic(
        groups.described(
            LearnSection.options(gae_lambda=1.0), gae_lambda="bias-variance trade-off of GAE; 1: n-step returns"
        ),
        160,
    )


def clipped_surrogate(learn: groups.Schema) -> groups.Schema:
    """Settings of algorithms that learn as PPO does; `learn`: keys of the section `learn` with other defaults."""
    own = LearnSection.options("gae_lambda", "clip_ratio", "value_clip", "normalize_advantage", "target_kl")
    schema = groups.actor_critic({**own, **learn}, 1024)
    schema["model"] |= groups.memory()
    return schema


def ppo() -> groups.Schema:
    """Settings of PPO.

    With units of the running deviation for vectors and rewards (`normalize_obs`, `env.normalize_reward`) the defaults
    learn on tasks of any scale.
    """
    learn = {
        **groups.passes(10, 16),
        **LearnSection.options("max_times_sampled", entropy_weight=0.0, value_clip=False),
        **groups.anneal(False),
    }
    schema = clipped_surrogate(learn)
    schema["model"] |= ModelSection.options(normalize_obs=True)
    schema["learn"] |= {
        "clip_parts": opt(False, None, "clip the gradients of encoder, actor and critic to grad_norm one by one"),
        "kl_weight": opt(0.0, "[0, inf)", "initial weight of a penalty on the divergence of the policy; 0: none"),
        "kl_aim": opt(0.01, "(0, inf)", "kl_weight: mean divergence of an update at which the weight aims"),
    }
    schema["other"] |= groups.novelty()
    return schema


def ppg() -> groups.Schema:
    """Settings of PPG."""
    learn = {
        **groups.described(
            groups.passes(1, 16),
            n_epoch="passes over each rollout in a policy phase",
            n_minibatch="minibatches per pass of a policy phase, reshuffled each time",
        ),
        **LearnSection.options("gae_lambda", "clip_ratio", "normalize_advantage", learning_rate=5e-4),
        **groups.anneal(False),
        "aux_freq": opt(32, "[1, 10000]", "rollouts from one auxiliary phase to the next; their rows stay in memory"),
        "aux_epoch": opt(6, "[1, 10000]", "passes of an auxiliary phase over these rollouts"),
        "clone_weight": opt(1.0, "[0, inf)", "weight of the divergence of the policy in an auxiliary phase"),
    }
    schema = groups.actor_critic(learn, 1024)
    del schema["learn"]["value_weight"]
    schema["model"] |= ModelSection.options(normalize_obs=True)
    return schema


def trpo() -> groups.Schema:
    """Settings of TRPO."""
    learn = {
        **groups.described(
            groups.passes(80, 1),
            n_epoch="passes of the value function over each rollout; the policy takes one step",
            n_minibatch="minibatches per pass; the policy takes its step on the first one of a rollout",
        ),
        **groups.described(
            LearnSection.options("gae_lambda", "normalize_advantage", learning_rate=1e-3, entropy_weight=0.0),
            learning_rate="learning rate of the value function",
        ),
        **groups.trust_region(),
        "line_search": opt(True, None, "shorten steps until the objective grows within max_kl; false: NPG"),
    }
    schema = groups.actor_critic(learn, 2048)
    del schema["learn"]["value_weight"]
    return schema


def impala() -> groups.Schema:
    """Settings of IMPALA."""
    learn = {
        **groups.described(
            LearnSection.options("n_epoch", "max_times_sampled"),
            n_epoch="gradient steps per rollout, each on the whole rollout",
        ),
        "rho_bar": opt(1.0, "(0, inf)", "truncation of the importance weight of each TD error"),
        "c_bar": opt(1.0, "(0, inf)", "truncation of the importance weights that propagate later errors back"),
        "vtrace_lambda": opt(1.0, "[0, 1]", "bias-variance trade-off: decay of later errors, like the lambda of GAE"),
    }
    return groups.actor_critic(learn, 160)


ALGORITHMS = (
    Algorithm("pg", "PG", pg, actions=ANY_ACTIONS, chain="monte_carlo"),
    Algorithm("ac", "AC", ac, actions=ANY_ACTIONS, chain="on_policy"),
    Algorithm("a2c", "A2C", a2c, actions=ANY_ACTIONS, chain="on_policy", agents="any"),
    Algorithm("a3c", "A3C", a3c, actions=ANY_ACTIONS, chain="single_step"),
    Algorithm("ppo", "PPO", ppo, actions=ANY_ACTIONS, chain="on_policy", agents="any", env={"normalize_reward": True}),
    Algorithm("ppg", "PPG", ppg, actions=ANY_ACTIONS, chain="on_policy", env={"normalize_reward": True}),
    Algorithm("trpo", "TRPO", trpo, actions=ANY_ACTIONS, chain="on_policy"),
    Algorithm("impala", "IMPALA", impala, actions=ANY_ACTIONS, chain="trajectory"),
)
