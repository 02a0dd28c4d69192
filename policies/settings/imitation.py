"""Settings of algorithms that imitate an expert."""

from __future__ import annotations

from minding.engine.config.config import PolicySection, RecordedFolder
from minding.engine.config.options import WIDTH, setting
from minding.engine.config.section import Section, section
from minding.engine.data.holdout import RANKINGS
from minding.policies.settings import ANY_ACTIONS, BOX, DISCRETE, SINGLE_ACTIONS, Algorithm, shared
from minding.policies.settings.actor_critic import EarlyStopLearn, ProximalSettings, RolloutSettings
from minding.policies.settings.replayed_critics import (
    CriticSettings,
    DiscreteSACLearn,
    DiscreteSACModel,
    SACModel,
    SoftSettings,
    SoftTargetsLearn,
)


class BCModel(shared.ActionDeviation, shared.Network):
    activation = "tanh"
    log_std: float = setting(doc="initial log standard deviation of continuous actions")


class BCLearn(shared.GradNorm, shared.FromData):
    learning_rate = 1e-3
    anneal_lr = True
    grad_norm = 0.0
    loss: str = setting(
        "squared_error",
        ("squared_error", "log_likelihood"),
        "loss of Box actions; other actions always use the log-likelihood",
    )


class BCSettings(PolicySection):
    model: BCModel
    learn: BCLearn
    collect: shared.Acting
    eval: shared.DataEvaluation
    other: shared.Recorded


class RewardModel(Section):
    """A reward model that learns from recorded data."""

    learning_rate: float = setting(3e-4, "(0, 1]", "learning rate of Adam for the discriminator")
    n_update: int = setting(20, "[1, 1e5]", "gradient steps of the discriminator on each rollout")
    batch_size: int = setting(
        128, "[1, 1e6]", "steps of the expert in each gradient step, and equally many of the agent"
    )
    hidden: list[int] = setting([64, 64], WIDTH, "sizes of the hidden layers of the model")


class Gail(RewardModel):
    reward: str = setting(
        "positive",
        ("positive", "negative", "logit"),
        "-log(1 - D), which favors long episodes; log D, which favors short ones; or their sum, of either sign",
    )
    gradient_penalty: float = setting(
        0.0, "[0, inf)", "weight of the squared distance of its gradients' norm from 1, between both kinds of steps"
    )


class GailReward(RecordedFolder):
    gail: Gail


class GAILSettings(ProximalSettings):
    """GAIL: PPO whose rewards measure the similarity of its steps to an expert's."""

    learn = section(n_epoch=4, n_minibatch=4)
    other: GailReward


class Airl(RewardModel):
    state_only: bool = setting(True, None, "the reward depends on the state only, and not on the action")


class AirlReward(RecordedFolder):
    airl: Airl


class AIRLSettings(RolloutSettings):
    """AIRL: PPO whose rewards explain an expert's steps, apart from shaping.

    There is no memory, because the model asks for the probabilities of single recorded steps.
    """

    learn: EarlyStopLearn = section(n_epoch=4, n_minibatch=4)
    collect = section(n_sample=1024)
    other: AirlReward


class Trex(RewardModel):
    ranking: str = setting(
        "return",
        RANKINGS,
        "what ranks recorded episodes: the sums of their rewards, or their order, in which the last is the best",
    )
    output: str = setting(
        "sigmoid",
        ("sigmoid", "standardized"),
        "reward: the logistic function of the standardized one, which is above 0; or the standardized one, of either "
        "sign",
    )
    learning_rate: float = setting(doc="learning rate of Adam for the model")
    n_update: int = setting(1000, "[1, 1e6]", "gradient steps of the model before the first rollout is rewarded")
    length: int = setting(
        50, "[1, 1e5]", "steps of the parts of episodes that are compared, if the episodes are as long"
    )
    batch_size: int = setting(16, doc="pairs of episodes in each gradient step")


class TrexReward(RecordedFolder):
    trex: Trex


class TREXSettings(ProximalSettings):
    """T-REX: PPO whose rewards are learned from recorded episodes of different quality."""

    learn = section(n_epoch=4, n_minibatch=4)
    other: TrexReward


class ExpertReplay(shared.PriorData, shared.Replay): ...


class SQILSettings(SoftSettings):
    """SQIL: SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

    Reddy et al., 2020, https://arxiv.org/abs/1905.11108.
    """

    model: SACModel = section(normalize_obs=True)
    learn: SoftTargetsLearn = section(learning_rate=1e-3)
    other: ExpertReplay = section(buffer_size=1_000_000)


class DiscreteSQILSettings(CriticSettings):
    """Discrete SQIL: discrete SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

    Reddy et al., 2020, https://arxiv.org/abs/1905.11108.
    """

    model: DiscreteSACModel
    learn: DiscreteSACLearn
    other: ExpertReplay = section(buffer_size=1_000_000)


ALGORITHMS = (
    Algorithm("bc", "BC", BCSettings, ANY_ACTIONS, "offline", "train_iter"),
    Algorithm("gail", "PPO", GAILSettings, SINGLE_ACTIONS, "recorded_reward", several_learners=True, variant_of="ppo"),
    Algorithm("airl", "PPO", AIRLSettings, SINGLE_ACTIONS, "recorded_reward", several_learners=True, variant_of="ppo"),
    Algorithm("trex", "PPO", TREXSettings, SINGLE_ACTIONS, "recorded_reward", several_learners=True, variant_of="ppo"),
    Algorithm("sqil", "SAC", SQILSettings, BOX, "sqil", unit_box=True, several_learners=True, variant_of="sac"),
    Algorithm("discrete_sqil", "DiscreteSAC", DiscreteSQILSettings, DISCRETE, "sqil", variant_of="discrete_sac"),
)
