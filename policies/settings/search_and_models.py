"""Settings of algorithms that plan with rules or learn a model of the world."""

from __future__ import annotations

from minding.engine.config.config import Config, ModelSection, PolicySection
from minding.engine.config.options import WIDTH, setting
from minding.engine.config.section import Section, section
from minding.engine.errors import ConfigError
from minding.engine.search.search_tree import MOST_SIMULATIONS, MOST_WEIGHT
from minding.policies.settings import DISCRETE, SINGLE_ACTIONS, Algorithm, shared

_SIMULATIONS = f"[1, {MOST_SIMULATIONS}]"


class Gumbel(Section):
    """Gumbel search."""

    max_considered: int = setting(16, _SIMULATIONS, "gumbel: maximum number of actions compared at the root")
    c_visit: float = setting(
        50.0, f"[0, {MOST_WEIGHT}]", "gumbel: visits added to the largest count in the weight of the values"
    )
    c_scale: float = setting(1.0, f"[0, {MOST_WEIGHT}]", "gumbel: weight of the values against the logits")


class Puct(Section):
    """PUCT search."""

    c: float = setting(1.25, f"(0, {MOST_WEIGHT}]", "puct: weight of the policy against the values")
    dirichlet_alpha: float = setting(1.0, f"(0, {MOST_WEIGHT}]", "puct: concentration of the noise at the root")
    dirichlet_fraction: float = setting(0.25, "[0, 1]", "puct: share of the noise in the root's policy")


class AlphaZeroModel(shared.Network):
    hidden: list[int] = setting([128, 128])
    net: str = setting(
        "mlp",
        ("mlp", "residual"),
        "mlp: hidden layers; residual: 3x3 convolutions over the planes, then hidden layers for the value",
    )
    channels: int = setting(32, "[1, 4096]", "residual: channels of the convolutions")
    blocks: int = setting(3, "[1, 1000]", "residual: blocks of two convolutions each")


class AlphaZeroLearn(shared.UpdatesPerStep, shared.Replayed, shared.ValueWeight, shared.GradNorm, shared.Learn):
    learning_rate: float = setting(1e-3, doc="learning rate of AdamW")
    batch_size: int = setting(256, doc="positions per gradient step")
    update_per_collect = 1
    updates_per_step: float | None = setting(
        doc="gradient steps per ply, in calls of update_per_collect; None: one call per iteration"
    )
    warmup: int = setting(doc="positions in the buffer before learning starts")
    value_weight = 1.0
    grad_norm = 0.0
    weight_decay: float = setting(
        1e-4, "[0, 1]", "share of each weight that a step subtracts, in units of the learning rate"
    )


class AlphaZeroCollect(shared.Collect):
    n_sample: int = setting(8, doc="plies per iteration, over all env.collector_env_num games together")
    search: str = setting("puct", ("puct", "gumbel"), "search that plays and improves the policy")
    simulations: int = setting(32, _SIMULATIONS, "simulations per ply")
    sample_plies: int = setting(
        8, "[0, inf)", "number of plies at the start of a game that are sampled from the search's policy"
    )
    value_share: float = setting(
        0.0, "[0, 1]", "share of the search's value in what a position's value learns; the rest is the outcome"
    )
    puct: Puct
    gumbel: Gumbel


class AlphaZeroEvaluation(shared.Evaluation):
    simulations: int = setting(
        64, f"[0, {MOST_SIMULATIONS}]", "simulations per ply, without noise; 0: the network plays without search"
    )
    opponents: list[str] = setting(["random"], None, "opponents by name, such as random, minimax and uct:100")
    opening_plies: int = setting(
        2, "[0, inf)", "plies of the opening: evaluation games start from every position after that many plies"
    )


class AlphaZeroSettings(PolicySection):
    model: AlphaZeroModel
    learn: AlphaZeroLearn
    collect: AlphaZeroCollect
    eval: AlphaZeroEvaluation
    other: shared.Replay


class TwoHot(ModelSection):
    """Two-hot distributions."""

    bins: int = setting(41, "[3, 16384]", "bins of the two-hot distributions of rewards and values")
    bin_limit: float = setting(20.0, "(0, 80]", "symlog of the last bin; the first bin is at minus this value")


class SequenceLearn(shared.TrainRatio, shared.Sequences, shared.Replayed, shared.SoftTargets, shared.GradNorm,
                    shared.Discounted):  # fmt: skip
    """Learning a model from replayed sequences."""

    batch_size: int = setting(doc="sequences per gradient step")
    update_per_collect = 1


class ModelCollect(shared.RandomSteps, shared.Collect): ...


class MuZeroModel(TwoHot, shared.Network):
    hidden: list[int] = setting([128])
    norm = "layer"
    latent: int = setting(64, "[2, 16384]", "numbers of a state of the model")


class MuZeroLearn(shared.NStep, shared.ValueWeight, SequenceLearn):
    learning_rate = 2e-3
    length: int = setting(10, doc="transitions in a sequence: the model is unrolled for the first length - nstep")
    nstep = 5
    train_ratio = 256.0
    value_weight = 0.25
    tau: float = setting(
        0.05, doc="weight of the network in its moving average, whose values the targets use, per gradient step"
    )
    reanalysis: float = setting(
        0.0, "[0, 1]", "share of the sequences whose policies come from a new search with the current network"
    )
    two_players: bool = setting(
        False, None, "two players take turns, each with rewards of their own: what one gains, the other loses"
    )

    def check(self, cfg: Config) -> None:
        if self.length <= self.nstep:
            raise ConfigError(
                f"policy.learn.length={self.length} leaves no steps of the model to learn from, because the returns "
                f"take the last policy.learn.nstep={self.nstep} transitions: use policy.learn.length={self.nstep + 5}"
            )


class MuZeroCollect(ModelCollect):
    simulations: int = setting(16, _SIMULATIONS, "simulations per action, also of evaluations")
    random_share: float = setting(
        0.0, "[0, 1)", "share of the actions that are drawn uniformly, whose steps teach no value"
    )
    gumbel: Gumbel = section(c_scale=0.1)


class MuZeroSettings(PolicySection):
    model: MuZeroModel
    learn: MuZeroLearn
    collect: MuZeroCollect
    eval: shared.Evaluation
    other: shared.Replay = section(buffer_size=10_000)


class DreamerModel(TwoHot, shared.Network):
    hidden: list[int] = setting([128, 128])
    norm = "layer"
    normalize_obs: bool = setting(
        doc="scale vectors to a root mean square of 1, without their offset, instead of taking their symlog"
    )
    deter: int = setting(128, WIDTH, "units of the GRU, the deterministic part of a state")
    latents: int = setting(8, "[1, 1000]", "categorical latents of a state")
    classes: int = setting(8, "[2, 1000]", "classes of each latent")
    unimix: float = setting(
        0.01, "(0, 1)", "uniform share of the probabilities of latents and of actions that are choices"
    )
    posterior: str = setting(
        "observation",
        ("observation", "full"),
        "inputs from which latents are drawn: the observation alone, or also the state of the GRU, as in the paper",
    )
    decoder: str = setting(
        "linear",
        ("linear", "convolutions"),
        "prediction of images: by a linear layer, or by the convolutions of the encoder, transposed and backwards",
    )


class DreamerLearn(shared.EntropyBonus, shared.CriticRate, shared.LambdaReturns, SequenceLearn):
    learning_rate: float = setting(1e-3, doc="learning rate of Adam for the world model")
    actor_learning_rate: float = setting(3e-4, "(0, 1]", "learning rate of Adam for the actor")
    critic_learning_rate: float = setting(3e-4, doc="learning rate of Adam for the critic")
    grad_norm: float = setting(
        100.0, doc="clip the global gradient norm of world model, actor and critic to this, separately; 0: no clipping"
    )
    batch_size = 16
    update_per_collect: int = setting(doc="gradient steps per call")
    td_lambda: float = setting(0.95, doc="lambda of the lambda-returns of imagined trajectories")
    entropy_weight = 3e-4
    tau: float = setting(
        0.02, doc="weight of the critic in its moving average, a second target of the critic, per gradient step"
    )
    context: str = setting("stored", ("stored", "zero"), "state before a sequence: recorded while collecting, or zeros")
    free_nats: float = setting(
        1.0, "[0, inf)", "divergence of prior and posterior, in nats, below which it is not trained"
    )
    prior_weight: float = setting(1.0, "[0, inf)", "weight of the divergence that trains the prior")
    posterior_weight: float = setting(0.1, "[0, inf)", "weight of the divergence that trains the posterior")
    horizon: int = setting(15, "[1, 1000]", "number of imagined steps")
    starts: int = setting(256, "[1, 1e6]", "maximum number of states per gradient step from which imagination starts")
    actor_gradient: str = setting(
        "reinforce",
        ("reinforce", "dynamics"),
        "gradient of the actor: by the likelihood of its actions, or through the world model",
    )
    return_scale: bool = setting(True, None, "divide advantages by the range of imagined returns if it exceeds 1")
    return_decay: float = setting(
        0.99, "[0, 1)", "decay of the running means of the percentiles 5 and 95 of the returns"
    )


class DreamerSettings(PolicySection):
    model: DreamerModel
    learn: DreamerLearn
    collect: ModelCollect
    eval: shared.Evaluation
    other: shared.Replay = section(buffer_size=100_000)


ALGORITHMS = (
    Algorithm("alphazero", "AlphaZero", AlphaZeroSettings, DISCRETE, "self_play"),
    Algorithm("dreamer", "Dreamer", DreamerSettings, SINGLE_ACTIONS, "sequence_replay", unit_box=True),
    Algorithm("muzero", "MuZero", MuZeroSettings, DISCRETE, "sequence_replay"),
)
