"""Settings of algorithms with an actor and a state value that learn from rollouts."""

from __future__ import annotations

from minding.engine.config.config import OtherSection, PolicySection
from minding.engine.config.options import setting
from minding.engine.config.section import section
from minding.policies.settings import ANY_ACTIONS, Algorithm, shared


class RolloutModel(shared.Blocks, shared.ActionDeviation):
    activation = "tanh"


class RecurrentModel(RolloutModel, shared.Memory): ...


class RolloutLearn(shared.EntropyBonus, shared.GradNorm, shared.Discounted):
    """The learning rate falls to 0 over the run."""

    anneal_lr = True
    grad_norm = 0.5


class RolloutSettings(PolicySection):
    model: RolloutModel
    learn: RolloutLearn
    collect: shared.Collect
    eval: shared.StochasticEvaluation
    other: OtherSection


class PGLearn(shared.Passes, RolloutLearn):
    learning_rate: float = setting(3e-3, doc="learning rate")
    entropy_weight = 0.0
    baseline: str = setting(
        "standardized",
        ("none", "mean", "standardized"),
        "baseline subtracted from returns: 0, or the mean of a minibatch; standardized: returns are also divided by "
        "their standard deviation",
    )


class PGSettings(RolloutSettings):
    learn: PGLearn
    collect = section(n_sample=1024)


class ACLearn(shared.Gae, shared.CriticRate, shared.Passes, shared.ValueWeight, RolloutLearn):
    learning_rate: float = setting(1e-3, doc="learning rate of the actor")
    gae_lambda: float = setting(0.0, doc="bias-variance trade-off of GAE; 0: one-step TD errors")
    entropy_weight = 0.0
    value_weight = 1.0


class ACSettings(RolloutSettings):
    learn: ACLearn


class A2CLearn(shared.Normalized, shared.Gae, shared.Reused, shared.Passes, shared.ValueWeight, RolloutLearn):
    learning_rate: float = setting(7e-4, doc="learning rate")
    optimizer = "rmsprop"
    gae_lambda: float = setting(1.0, doc="bias-variance trade-off of GAE; 1: n-step returns")
    normalize_advantage = False


class A2CSettings(RolloutSettings):
    model: RecurrentModel
    learn: A2CLearn
    collect = section(n_sample=40)


class A3CLearn(shared.Gae, shared.ValueWeight, RolloutLearn):
    gae_lambda: float = setting(1.0, doc="bias-variance trade-off of GAE; 1: n-step returns")


class A3CSettings(RolloutSettings):
    learn: A3CLearn
    collect = section(n_sample=160)


class ClippedLearn(shared.Normalized, shared.Gae, RolloutLearn):
    """Learning with a clipped probability ratio."""

    clip_ratio: float = setting(0.2, "(0, 1)", "clip range of the probability ratio")


class ProximalLearn(shared.Passes, ClippedLearn):
    """Learning as PPO does."""

    value_clip: bool = setting(True, None, "clip the change in value to clip_ratio")


class EarlyStopLearn(ProximalLearn, shared.ValueWeight):
    target_kl: float | None = setting(
        None, "(0, inf)", "skip the remaining gradient steps on a rollout once the KL divergence exceeds 1.5 times this"
    )


class ProximalSettings(RolloutSettings):
    """Settings of algorithms that learn as PPO does."""

    model: RecurrentModel
    learn: EarlyStopLearn
    collect = section(n_sample=1024)


class PPOLearn(shared.Reused, EarlyStopLearn):
    learning_rate = 3e-4
    anneal_lr = False
    gamma = 0.99
    gae_lambda = 0.95
    n_epoch = 10
    n_minibatch = 16
    clip_ratio = 0.2
    value_clip = False
    value_weight = 0.5
    entropy_weight = 0.0
    grad_norm = 0.5
    clip_parts: bool = setting(False, None, "clip the gradients of encoder, actor and critic to grad_norm one by one")
    kl_weight: float = setting(0.0, "[0, inf)", "initial weight of a penalty on the divergence of the policy; 0: none")
    kl_aim: float = setting(0.01, "(0, inf)", "kl_weight: mean divergence of an update at which the weight aims")


class PPOSettings(ProximalSettings):
    # With rewards in units of their running deviation, too, tasks of any scale are learned.
    model = section(normalize_obs=True)
    learn: PPOLearn
    other: shared.Novelty


class PPGLearn(shared.Passes, ClippedLearn):
    learning_rate = 5e-4
    anneal_lr = False
    n_epoch: int = setting(1, doc="passes over each rollout in a policy phase")
    n_minibatch: int = setting(16, doc="minibatches per pass of a policy phase, reshuffled each time")
    aux_freq: int = setting(
        32, "[1, 10000]", "rollouts from one auxiliary phase to the next; their rows stay in memory"
    )
    aux_epoch: int = setting(6, "[1, 10000]", "passes of an auxiliary phase over these rollouts")
    clone_weight: float = setting(1.0, "[0, inf)", "weight of the divergence of the policy in an auxiliary phase")


class PPGSettings(RolloutSettings):
    model = section(normalize_obs=True)
    learn: PPGLearn
    collect = section(n_sample=1024)


class TRPOLearn(shared.TrustRegion, shared.Normalized, shared.Gae, shared.Passes, RolloutLearn):
    learning_rate: float = setting(1e-3, doc="learning rate of the value function")
    entropy_weight = 0.0
    n_epoch: int = setting(80, doc="passes of the value function over each rollout; the policy takes one step")
    n_minibatch: int = setting(doc="minibatches per pass; the policy takes its step on the first one of a rollout")
    line_search: bool = setting(True, None, "shorten steps until the objective grows within max_kl; false: NPG")


class TRPOSettings(RolloutSettings):
    learn: TRPOLearn
    collect = section(n_sample=2048)


class IMPALALearn(shared.Reused, shared.ValueWeight, RolloutLearn):
    n_epoch: int = setting(1, "[1, 10000]", "gradient steps per rollout, each on the whole rollout")
    rho_bar: float = setting(1.0, "(0, inf)", "truncation of the importance weight of each TD error")
    c_bar: float = setting(1.0, "(0, inf)", "truncation of the importance weights that propagate later errors back")
    vtrace_lambda: float = setting(
        1.0, "[0, 1]", "bias-variance trade-off: decay of later errors, like the lambda of GAE"
    )


class IMPALASettings(RolloutSettings):
    learn: IMPALALearn
    collect = section(n_sample=160)


_SCALED = {"normalize_reward": True}

ALGORITHMS = (
    Algorithm("pg", "PG", PGSettings, ANY_ACTIONS, "monte_carlo"),
    Algorithm("ac", "AC", ACSettings, ANY_ACTIONS, "on_policy"),
    Algorithm("a2c", "A2C", A2CSettings, ANY_ACTIONS, "on_policy", agents="any", several_learners=True),
    Algorithm("a3c", "A3C", A3CSettings, ANY_ACTIONS, "single_step"),
    Algorithm("ppo", "PPO", PPOSettings, ANY_ACTIONS, "on_policy", agents="any", env=_SCALED, several_learners=True),
    Algorithm("ppg", "PPG", PPGSettings, ANY_ACTIONS, "on_policy", env=_SCALED),
    Algorithm("trpo", "TRPO", TRPOSettings, ANY_ACTIONS, "on_policy"),
    Algorithm("impala", "IMPALA", IMPALASettings, ANY_ACTIONS, "trajectory", several_learners=True),
)
