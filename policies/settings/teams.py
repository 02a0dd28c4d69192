"""Settings of algorithms for several agents."""

from __future__ import annotations

import functools

from minding.engine.config.config import LearnSection, ModelSection, OtherSection, PolicySection
from minding.engine.config.options import WIDTH, setting
from minding.engine.config.section import section
from minding.engine.config.space import Choice
from minding.policies.settings import ANY_ACTIONS, DISCRETE, EITHER, SINGLE_ACTIONS, Algorithm, shared
from minding.policies.settings.actor_critic import (
    EarlyStopLearn,
    PPOLearn,
    ProximalLearn,
    ProximalSettings,
    RolloutModel,
    RolloutSettings,
)


class ValuesModel(shared.Memory, shared.Network):
    hidden: list[int] = setting([64])
    normalize_obs = True
    memory: str = setting("gru", doc="recurrent layer or gated transformer between hidden layers and values")


class ValuesLearn(shared.LambdaReturns, shared.DoubleQ, shared.GradNorm, shared.UpdatesPerStep, shared.Replayed,
                  shared.Discounted):  # fmt: skip
    """Learning from whole episodes.

    Lambda-returns with a lambda of 0.6 are those of Hu et al., 2021, https://arxiv.org/abs/2102.03479, section 3.
    """

    learning_rate = 5e-4
    anneal_lr = True
    td_lambda = 0.6
    batch_size: int = setting(32, doc="episodes per gradient step")
    target: shared.Target = section(freq=200)


class EpisodeReplay(shared.Exploration, shared.Replay): ...


class ValuesSettings(PolicySection):
    """Settings of value-based policies for several agents that learn from whole episodes."""

    model: ValuesModel
    learn: ValuesLearn
    collect: shared.Collect = section(n_sample=200)
    eval: shared.Evaluation
    other: EpisodeReplay = section(eps=section(decay=50_000))


class QMIXModel(ValuesModel):
    mixer_dim: int = setting(32, WIDTH, "units of the mixing network")
    hypernet_dim: int = setting(64, WIDTH, "hidden units of the hypernetworks, which output the mixing weights")


class QMIXSettings(ValuesSettings):
    model: QMIXModel


class JointModel(ModelSection):
    joint_hidden: list[int] = setting([128, 128], WIDTH, "sizes of the hidden layers of the joint value")


class WQMIXModel(JointModel, QMIXModel): ...


class WQMIXLearn(ValuesLearn):
    weighting: str = setting(
        "optimistic",
        ("optimistic", "central"),
        "whose errors keep the weight 1: those of joint actions whose value is too low (optimistic), or those of the "
        "best joint action and of actions that seem better (central)",
    )
    error_weight: float = setting(0.1, "(0, 1]", "weight of all other squared errors, alpha; 1: no weighting")


class WQMIXSettings(ValuesSettings):
    model: WQMIXModel
    learn: WQMIXLearn


class QTRANModel(JointModel, ValuesModel): ...


class QTRANLearn(ValuesLearn):
    best_weight: float = setting(1.0, "[0, inf)", "weight of the loss of best joint actions, lambda_opt")
    other_weight: float = setting(1.0, "[0, inf)", "weight of the loss of all other joint actions, lambda_nopt")
    counterfactual: bool = setting(
        False,
        None,
        "the loss of other joint actions compares all actions of one agent, with those that the others took "
        "(QTRAN-alt); otherwise it has only the actions taken (QTRAN-base)",
    )


class QTRANSettings(ValuesSettings):
    model: QTRANModel
    learn: QTRANLearn


class COMAModel(shared.Network):
    hidden: list[int] = setting([64])
    memory_dim: int = setting(64, WIDTH, "units of the GRU of an agent")
    critic_hidden: list[int] = setting([128, 128], WIDTH, "sizes of the hidden layers of the critic")
    critic_state: bool = setting(
        True, None, "the critic sees the global state in addition to the observation of the agent"
    )


class COMALearn(shared.Passes, shared.Normalized, shared.LambdaReturns, shared.CriticRate, shared.EntropyBonus,
                shared.GradNorm, shared.Discounted):  # fmt: skip
    learning_rate: float = setting(5e-4, doc="learning rate of Adam for the actor")
    anneal_lr = True
    td_lambda: float = setting(0.8, doc="lambda of the lambda-returns that the critic learns")
    n_epoch: int = setting(4, doc="passes of the critic over each rollout; the last one is also the actor's")
    n_minibatch: int = setting(
        doc="parts into which the environments are divided, with one gradient step each; reshuffled for every pass"
    )
    normalize_advantage: bool = setting(doc="scale advantages to a mean square of 1 in each rollout")
    grad_norm: float = setting(doc="clip the gradient norms of actor and critic to this, separately; 0: no clipping")
    target: shared.Target = section(freq=150)


class COMASettings(PolicySection):
    model: COMAModel
    learn: COMALearn
    collect: shared.Collect = section(n_sample=400)
    eval: shared.StochasticEvaluation = section(deterministic=False)
    other: OtherSection


class IPPOSettings(ProximalSettings):
    """IPPO: PPO for each agent of a team; all share one network, and each sees only its own observation.

    de Witt et al., 2020, https://arxiv.org/abs/2011.09533. RND rewards novelty for one agent only.
    """

    model = section(normalize_obs=True)
    learn: PPOLearn = section(entropy_weight=0.01)
    eval = section(deterministic=False)


class TeamLearn(LearnSection):
    """A central value of the returns of a team."""

    value_norm: bool = setting(True, None, "normalize values by running statistics of the returns")
    value_norm_decay: float = setting(0.99, "[0, 1)", "decay of those running statistics, per rollout")
    huber_delta: float = setting(
        10.0, "(0, inf)", "threshold of the Huber value loss, beyond which it is linear; in normalized units"
    )
    death_masking: bool = setting(
        True, None, "team rewards: the return of an agent that has left continues, and its value sees only its index"
    )


class CentralLearn(TeamLearn, ProximalLearn):
    learning_rate = 7e-4
    grad_norm = 10.0
    n_epoch = 10
    value_clip: bool = setting(doc="clip the change in normalized value to clip_ratio")


class MAPPOLearn(CentralLearn, EarlyStopLearn):
    learning_rate = 2e-3
    n_epoch = 4
    n_minibatch = 4
    value_weight = 1.0


class MAPPOSettings(ProximalSettings):
    model = section(hidden=[128, 128], normalize_obs=True)
    learn: MAPPOLearn
    collect = section(n_sample=4096)
    eval = section(deterministic=False)


class HAPPOLearn(shared.TrustRegion, shared.CriticRate, CentralLearn):
    learning_rate: float = setting(7e-4, doc="learning rate of Adam for the actors")
    critic_learning_rate = 7e-4
    n_epoch: int = setting(10, doc="passes of each agent over its rows of a rollout")
    trust_region: bool = setting(
        False, None, "HATRPO: each actor takes one natural step per rollout, on its first minibatch"
    )
    max_kl: float = setting(doc="trust_region: largest mean divergence of the policy by a step")
    cg_iterations: int = setting(doc="trust_region: iterations of the conjugate gradient method")
    cg_damping: float = setting(doc="trust_region: multiple of the identity that is added to the Fisher matrix")


class HAPPOSettings(RolloutSettings):
    model: RolloutModel
    learn: HAPPOLearn
    collect = section(n_sample=1024)
    eval = section(deterministic=False)


class MADDPGModel(shared.CriticNetwork):
    central: bool = setting(
        True,
        None,
        "centralized critics, which see all observations and actions; false: critics see only their own agent, as in "
        "DDPG",
    )


class TeamCriticLearn(shared.SoftTargets, shared.GradNorm, shared.OffPolicyLearn):
    learning_rate = 1e-3
    gamma = 0.95
    tau: float = setting(
        0.01, doc="weight of the online networks in the moving average of the targets, per gradient step"
    )
    grad_norm: float = setting(
        0.5, doc="clip the global norm of all actors' gradients, and of all critics', to this; 0: no clipping"
    )
    temperature: float = setting(1.0, "(0, inf)", "discrete actions: temperature of the Gumbel-softmax")


class MADDPGLearn(TeamCriticLearn):
    logit_weight: float = setting(1e-3, "[0, inf)", "discrete actions: weight of the mean squared logit")


class MADDPGCollect(shared.RandomSteps, shared.Collect):
    n_sample = 80


class NoisyCollect(MADDPGCollect):
    noise: shared.Noise


class TeamCriticSettings(PolicySection):
    model: MADDPGModel
    learn: TeamCriticLearn
    collect: MADDPGCollect
    eval: shared.Evaluation
    other: shared.Replay = section(buffer_size=1_000_000)


class MADDPGSettings(TeamCriticSettings):
    learn: MADDPGLearn
    collect: NoisyCollect


class TwinModel(shared.Ensemble, MADDPGModel):
    n_critics: int = setting(2, doc="critics of each agent")


class MATD3Learn(shared.SmoothedTargets, shared.Delayed, MADDPGLearn):
    policy_delay: int = setting(doc="critic updates per update of the actors and the targets")
    target_noise: float = setting(
        doc="continuous actions: standard deviation of the noise on target actions (target policy smoothing)"
    )
    noise_clip: float = setting(doc="continuous actions: clipping range of that noise")


class MATD3Settings(MADDPGSettings):
    """MATD3: MADDPG with TD3's twin critics, delayed updates and, for continuous actions, noise on target actions.

    Ackermann et al., 2019, https://arxiv.org/abs/1910.01465; TD3: Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477.
    """

    model: TwinModel
    learn: MATD3Learn


class MASACLearn(shared.EntropyShare, shared.EntropyInNats, shared.Temperature, TeamCriticLearn):
    alpha: float = setting(0.1, doc="entropy temperature of all agents, or its initial value if each learns its own")
    auto_alpha: bool = setting(doc="tune the temperature of each agent automatically")
    target_entropy: float | None = setting(
        doc="continuous actions: target entropy in nats; None: minus the number of action dimensions"
    )
    target_entropy_share: float = setting(
        doc="discrete actions: target entropy as a fraction of the maximum, log(number of legal actions)"
    )


class MASACSettings(TeamCriticSettings):
    model: TwinModel
    learn: MASACLearn


_OF_EPISODES = {"learn.batch_size": Choice.of(16, 32, 64), "model.hidden": Choice.of([64], [128], [64, 64])}
"""Searched values of algorithms whose minibatches consist of whole episodes."""
_STATE = ("global_state", "team_reward")
_SCALED = {"normalize_reward": True}


_team = functools.partial(Algorithm, agents="several")
_critics = functools.partial(_team, actions=EITHER, chain="off_policy", unit_box=True, own_networks=True)


def _values(name: str, settings: type[ValuesSettings], needs: tuple[str, ...] = _STATE) -> Algorithm:
    return _team(name, name.upper(), settings, DISCRETE, "episode_replay", searched=_OF_EPISODES, needs=needs)


ALGORITHMS = (
    _values("idqn", ValuesSettings, ()),
    _values("vdn", ValuesSettings, ("team_reward",)),
    _values("qmix", QMIXSettings),
    _values("wqmix", WQMIXSettings),
    _values("qtran", QTRANSettings),
    _team("coma", "COMA", COMASettings, DISCRETE, "trajectory", needs=_STATE),
    _team("ippo", "PPO", IPPOSettings, ANY_ACTIONS, "on_policy", env=_SCALED, several_learners=True, variant_of="ppo"),
    _team("mappo", "MAPPO", MAPPOSettings, ANY_ACTIONS, "on_policy", needs=("global_state",)),
    _team("happo", "HAPPO", HAPPOSettings, SINGLE_ACTIONS, "on_policy", needs=_STATE, own_networks=True),
    _critics("maddpg", "MADDPG", MADDPGSettings),
    _critics("matd3", "MADDPG", MATD3Settings, variant_of="maddpg"),
    _critics("masac", "MASAC", MASACSettings),
)
