"""Settings of value-based algorithms."""

from __future__ import annotations

from minding.engine.config.config import Config, PolicySection, PrioritySection, TableSection
from minding.engine.config.options import MODULE_NAME, WIDTH, setting
from minding.engine.config.section import section
from minding.engine.config.space import Choice
from minding.engine.errors import ConfigError
from minding.policies.settings import DISCRETE, Algorithm, shared


class QModel(shared.Dueling, shared.Blocks):
    hidden: list[int] = setting([128, 128])
    normalize_obs = True


class QLearn(shared.DoubleQ, shared.GradNorm, shared.OffPolicyLearn):
    learning_rate = 1e-3
    batch_size = 128
    update_per_collect = 2
    target: shared.Target


class QReplay(shared.Novelty, shared.Exploration, shared.Replay):
    """Replay of transitions or sequences, uniform or by priority."""


class Priority(PrioritySection):
    alpha: float = setting(
        0.6, "[0, 1]", "prioritized: exponent of the priorities; 0 samples uniformly, 1 in proportion to the error"
    )
    beta: float = setting(
        0.4, "[0, 1]", "prioritized: initial exponent of the importance-sampling weights; annealed to 1"
    )
    beta_steps: int = setting(100_000, "[1, inf)", "prioritized: gradient steps over which beta is annealed")


class ReplayTable(TableSection):
    sampler: str = setting(
        "uniform",
        ("uniform", "prioritized", "fifo", "lifo", "min_heap", "max_heap"),
        "table: rule that chooses the transition to sample",
    )
    remover: str = setting(
        "fifo",
        ("uniform", "prioritized", "fifo", "lifo", "min_heap", "max_heap"),
        "table: rule that chooses the transition to remove when the table is full",
    )
    max_times_sampled: int = setting(0, "[0, inf)", "table: samples after which a transition is removed; 0: no limit")
    limiter: str = setting(
        "none",
        ("none", "min_size", "ratio", "queue", "stack"),
        "table: limiter of the ratio of samples to inserted transitions",
    )
    limiter_rows: int = setting(
        1,
        "[1, inf)",
        "limiter min_size, ratio: transitions before the first sample; queue, stack: most transitions that wait",
    )
    samples_per_insert: float = setting(8.0, "(0, inf)", "limiter ratio: samples per inserted transition")
    limiter_error: float = setting(1024.0, "(0, inf)", "limiter ratio: samples by which either side may be ahead")


class TransitionReplay(shared.PriorData, shared.Hindsight, QReplay):
    replay: str = setting(
        "uniform",
        ("uniform", "prioritized", "table", MODULE_NAME),
        "sample transitions uniformly, by priority (the size of their TD error), from a table with the settings "
        "policy.other.table, or from a buffer of your own, see howto/custom_algorithms.md",
    )
    priority: Priority
    table: ReplayTable


class QSettings(PolicySection):
    """Settings of value-based algorithms that learn from replay."""

    model: QModel
    learn: QLearn
    collect: shared.Collect
    eval: shared.Evaluation
    other: QReplay


class TransitionSettings(QSettings):
    """Of those that replay single transitions."""

    other: TransitionReplay


class DQNModel(shared.Augmentation, QModel): ...


class DQNLearn(QLearn):
    munchausen: float = setting(
        0.0,
        "[0, 1]",
        "weight of the action's scaled log-probability, which is added to the reward; the target is then soft, and "
        "`double` without effect; 0: off, the paper's value is 0.9",
    )
    munchausen_temperature: float = setting(
        0.03, "(0, inf)", "temperature of the policy softmax(Q / temperature) that `munchausen` takes"
    )

    def check(self, cfg: Config) -> None:
        # The log-probability of one action is added to one reward.
        if self.munchausen and self.nstep > 1:
            raise ConfigError(
                f"policy.learn.munchausen={self.munchausen:g} needs rewards of single steps, but policy.learn.nstep="
                f"{self.nstep}: use policy.learn.nstep=1"
            )


class DQNSettings(TransitionSettings):
    model: DQNModel
    learn: DQNLearn


class C51Model(shared.Atoms, QModel): ...


class C51Settings(TransitionSettings):
    model: C51Model


class HuberLearn(QLearn):
    kappa: float = setting(1.0, "(0, inf)", "threshold of the Huber loss, beyond which it is linear")


class QRDQNModel(QModel):
    n_quantiles: int = setting(50, WIDTH, "quantiles of the return distribution of each action")


class QRDQNSettings(TransitionSettings):
    model: QRDQNModel
    learn: HuberLearn


class IQNModel(QModel):
    n_cosines: int = setting(64, WIDTH, "cosine features of the embedding of a quantile fraction")
    n_fractions: int = setting(32, WIDTH, "K: fixed quantile fractions, averaged for the value of an action")


class IQNLearn(HuberLearn):
    n_fractions: int = setting(8, WIDTH, "N: quantile fractions sampled per transition")
    n_target_fractions: int = setting(8, WIDTH, "N': quantile fractions sampled per transition for the target")


class IQNSettings(TransitionSettings):
    model: IQNModel
    learn: IQNLearn


class FQFModel(IQNModel):
    n_fractions: int = setting(doc="N: proposed quantile fractions")


class FQFLearn(HuberLearn):
    fraction_learning_rate: float = setting(
        2.5e-9, "(0, 1]", "learning rate of the layer that proposes fractions, by RMSProp"
    )


class FQFSettings(TransitionSettings):
    model: FQFModel
    learn: FQFLearn


class PQNModel(shared.Dueling, shared.Network):
    hidden: list[int] = setting([128, 128])
    norm = "layer"


class PQNLearn(shared.Passes, shared.Gae, shared.GradNorm, shared.Discounted):
    learning_rate = 1e-3
    anneal_lr = True
    gae_lambda: float = setting(doc="lambda of the lambda-returns; 0: one-step targets")
    n_epoch = 4
    n_minibatch = 8


class PQNSettings(PolicySection):
    model: PQNModel
    learn: PQNLearn
    collect: shared.Collect = section(n_sample=1024)
    eval: shared.Evaluation
    other: shared.Exploration


class RainbowModel(shared.Atoms, QModel):
    dueling = True
    distributional: bool = setting(
        True, None, "learn the return distribution, as in C51; false: the expected return, as in DQN"
    )
    noisy: bool = setting(True, None, "explore with noisy layers, whose noise scale is learned, instead of `other.eps`")
    noisy_sigma: float = setting(0.5, "[0, inf)", "initial noise scale, multiplied by 1/sqrt(inputs of the layer)")


class RainbowSettings(TransitionSettings):
    model: RainbowModel
    learn = section(nstep=3)
    other = section(replay="prioritized")


class R2D2Model(shared.Memory, QModel):
    # A stored memory belongs to the moments of its time.
    normalize_obs = False
    memory: str = setting(
        "gru", ("gru", "lstm", "gtrxl"), "recurrent layer or gated transformer between encoder and hidden layers"
    )


class R2D2Learn(shared.Sequences, QLearn):
    batch_size: int = setting(32, doc="sequences per gradient step")
    length: int = setting(20, doc="transitions of a sequence that are learned from")
    nstep: int = setting(5, doc="steps of the n-step return, within the sequence")
    burn_in: int = setting(10, "[0, 10000]", "transitions before the sequence, which only warm up the recurrent state")
    rescale: bool = setting(True, None, "apply the value rescaling h to returns")


class R2D2Priority(Priority):
    alpha = 0.9
    beta = 0.6
    eta: float = setting(
        0.9, "[0, 1]", "prioritized: weight of the largest TD error of a sequence; the mean has the weight 1 - eta"
    )
    stride: int = setting(
        10, "[1, 10000]", "prioritized: transitions between the starts of successive sequences; a divisor of length"
    )


class SequenceReplay(QReplay):
    """Of sequences: goals, recorded transitions and tables are for single ones."""

    replay: str = setting(
        "prioritized",
        ("uniform", "prioritized", MODULE_NAME),
        "sample sequences uniformly, by priority (the size of their TD errors), or from a buffer of your own, see "
        "howto/custom_algorithms.md",
    )
    priority: R2D2Priority


class R2D2Settings(QSettings):
    model: R2D2Model
    learn: R2D2Learn
    other: SequenceReplay


# The rows of R2D2's minibatches are sequences.
_OF_SEQUENCES = {"learn.batch_size": Choice.of(16, 32, 64)}

ALGORITHMS = (
    Algorithm("dqn", "DQN", DQNSettings, DISCRETE, "off_policy", several_learners=True),
    Algorithm("c51", "C51", C51Settings, DISCRETE, "off_policy"),
    Algorithm("qrdqn", "QRDQN", QRDQNSettings, DISCRETE, "off_policy"),
    Algorithm("iqn", "IQN", IQNSettings, DISCRETE, "off_policy"),
    Algorithm("fqf", "FQF", FQFSettings, DISCRETE, "off_policy"),
    Algorithm("pqn", "PQN", PQNSettings, DISCRETE, "on_policy"),
    Algorithm("rainbow", "Rainbow", RainbowSettings, DISCRETE, "off_policy"),
    Algorithm("r2d2", "R2D2", R2D2Settings, DISCRETE, "sequence_replay", searched=_OF_SEQUENCES),
)
