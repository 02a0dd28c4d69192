"""Sections that the settings of several families share.

Each setting of several algorithms is declared here, and in the one class from which their sections inherit it.
"""

from __future__ import annotations

import math
from typing import Any

from minding.engine.annealing import SHAPES, check_points
from minding.engine.config.config import (
    CollectSection,
    Config,
    EpsSection,
    EvalSection,
    HindsightSection,
    LearnSection,
    ModelSection,
    OtherSection,
    PolicySection,
    RecordedFolder,
)
from minding.engine.config.named import is_named
from minding.engine.config.options import MODULE_NAME, WIDTH, setting, short
from minding.engine.config.section import Section
from minding.engine.data.agent_axis import num_agents
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import ConfigError

_MOST_OF_CONVOLUTIONS = 4096, 256, 256
"""Largest numbers of channels, kernel and stride."""
_MEMORIES = ("none", "gru", "lstm", "gtrxl")
_NORMS = ("none", "layer")


# Networks


class Network(ModelSection):
    """Hidden layers and encoder, of all algorithms."""

    hidden: list[int] = setting([64, 64], WIDTH, "sizes of the hidden layers")
    activation: str = setting(
        "relu", ("relu", "tanh", "silu", "gelu", "elu"), "activation function of the hidden layers"
    )
    norm: str = setting(
        "none", _NORMS, "layer normalization of each hidden layer before its activation, over the layer's units"
    )
    encoder: str | None = setting(
        None,
        None,
        "your own encoder of observations, 'module:Class', see howto/custom_networks.md; None: minding's own",
    )
    encoder_dim: int = setting(64, WIDTH, "features of each key except images, if an observation has several keys")
    normalize_obs: bool = setting(
        False, None, "scale vectors to a root mean square of 1, without their offset, inside the network"
    )
    cnn: list[list[int]] = setting([], None, "convolutions as [channels, kernel, stride]; empty: chosen by image size")
    cnn_dim: int = setting(256, WIDTH, "output features of an image encoder")

    def check(self, cfg: Config) -> None:
        for number, layer in enumerate(self.cnn):
            whole = isinstance(layer, list) and len(layer) == 3 and all(type(each) is int for each in layer)
            if not whole or not all(1 <= each <= most for each, most in zip(layer, _MOST_OF_CONVOLUTIONS)):
                raise ConfigError(
                    f"policy.model.cnn[{number}]={short(layer)}: expected [channels, kernel, stride], integers from 1 "
                    f"to {', '.join(map(str, _MOST_OF_CONVOLUTIONS))}, such as [32, 8, 4]"
                )
        sized: dict[str, Any] = {
            key: self[key] for key in ("hidden", "critic_hidden") if key in self and self.norm != "none"
        }
        for key, sizes in sized.items():
            if sizes and 1 not in sizes:
                continue
            fault = "there is no layer to normalize" if not sizes else "a layer of one unit would always give its bias"
            raise ConfigError(
                f"policy.model.norm={self.norm} with policy.model.{key}={list(sizes)}: {fault}; give layers of 2 units "
                "or more, or policy.model.norm=none"
            )


class CriticNetwork(Network):
    """With critics that are networks separate from the acting network."""

    norm: str = setting(
        allowed=(*_NORMS, "critics"),
        doc="layer normalization of each hidden layer before its activation, over the layer's units: in all networks "
        "('layer') or in the critics only ('critics')",
    )


class Blocks(Network):
    """The kind of hidden layers."""

    block: str = setting(
        "plain",
        ("plain", "residual"),
        "hidden layers, or SimBa's residual blocks with layer normalization, one for each entry of hidden",
    )

    def check(self, cfg: Config) -> None:
        if self.block == "plain":
            return
        if self.get("noisy"):
            raise ConfigError(
                f"policy.model.block={self.block} with policy.model.noisy=true: noisy layers have no residual form; "
                "use policy.model.noisy=false or policy.model.block=plain"
            )
        if not self.hidden or len(set(self.hidden)) > 1:
            raise ConfigError(
                f"policy.model.block={self.block} with policy.model.hidden={list(self.hidden)}: a block adds to its "
                "input, so all blocks have the same width; give one equal number per block"
            )
        if self.norm != "none" or self.get("dropout"):
            key = "dropout" if self.get("dropout") else "norm"
            raise ConfigError(
                f"policy.model.block={self.block} with policy.model.{key}={self[key]}: residual blocks have a "
                f"normalization of their own and no dropout; leave policy.model.{key} out"
            )


class Augmentation(ModelSection):
    augment: int = setting(
        0,
        "[0, 64]",
        "pixels by which learning moves each image at most, at random (DrQ-v2: 4 of 84); 0: images stay as they are",
    )

    def check(self, cfg: Config) -> None:
        if self.augment and not any(leaf.is_image for leaf in observation_leaves(cfg.env.spec.observation)):
            raise ConfigError(
                f"policy.model.augment={self.augment} moves images, but no observation of {cfg.env.env_id} is an image "
                "(uint8, channel first, see howto/images.md): use policy.model.augment=0"
            )


class Attention(ModelSection):
    """Sizes of a transformer over time."""

    memory_dim: int = setting(
        64,
        WIDTH,
        "units of the memory; its state has one number per unit, two with an LSTM, and with gtrxl about one per unit, "
        "layer and remembered step",
    )
    memory_length: int = setting(16, "[1, 4096]", "gtrxl: steps that each layer remembers")
    memory_layers: int = setting(2, "[1, 64]", "gtrxl: layers")
    memory_heads: int = setting(4, "[1, 1024]", "gtrxl: heads of the attention, which divide memory_dim")

    def check(self, cfg: Config) -> None:
        dim, heads = self.memory_dim, self.memory_heads
        if self.get("memory", "gtrxl") == "gtrxl" and dim % heads:
            fits = next(number for number in range(min(dim, heads), 0, -1) if dim % number == 0)
            raise ConfigError(
                f"policy.model.memory_heads={heads} with policy.model.memory_dim={dim}: the heads have to divide the "
                f"units; use policy.model.memory_heads={fits}"
            )


class Memory(Attention):
    memory: str = setting("none", _MEMORIES, "recurrent layer or gated transformer between encoder and heads")


class Dueling(ModelSection):
    dueling: bool = setting(False, None, "separate streams for state value and advantages")


class ActionDeviation(ModelSection):
    """The deviation of continuous actions, a parameter that does not depend on the state."""

    log_std: float = setting(
        0.0,
        "[-5, 2]",
        "initial log standard deviation of continuous actions; -1 may help if the best actions lie near a bound",
    )


class Ensemble(ModelSection):
    n_critics: int = setting(2, "[1, 1000]", "critics")


class Atoms(ModelSection):
    """The support of return distributions."""

    n_atoms: int = setting(51, "[2, 16384]", "atoms of the return distribution, equally spaced")
    v_min: float = setting(-10.0, None, "smallest atom; smaller returns are clipped to it")
    v_max: float = setting(10.0, None, "largest atom; larger returns are clipped to it")

    def check(self, cfg: Config) -> None:
        if not -math.inf < self.v_min < self.v_max < math.inf:
            raise ConfigError(
                f"policy.model.v_min={self.v_min} and policy.model.v_max={self.v_max}: expected numbers with v_min "
                "below v_max, which enclose the discounted returns of the environment"
            )


# Gradient steps


class Learn(LearnSection):
    """Learning rate and its schedule, of all algorithms."""

    learning_rate: float = setting(0.0003, "(0, 1]", "learning rate of Adam")
    anneal_lr: bool = setting(False, None, "anneal the learning rate over anneal_steps")
    anneal_kind: str = setting(
        "linear",
        (*(shape for shape in SHAPES if shape != "constant"), MODULE_NAME),
        "schedule: linear to 0, exponential to 0.7 %, along anneal_points, or your own, see extending.md",
    )
    anneal_points: list[list[float]] = setting(
        [],
        None,
        "piecewise: [fraction of anneal_steps, fraction of the learning rate] at each breakpoint; [0, 1] is implied",
    )
    anneal_steps: int | None = setting(
        None, "[1, inf)", "steps of the clock over which the learning rate is annealed; None: the whole run"
    )
    on_nan: str = setting(
        "stop", ("stop", "skip"), "after an update with NaN or infinity: end the run, or undo the update"
    )

    def check(self, cfg: Config) -> None:
        check_points(self.anneal_kind, self.anneal_points, "policy.learn.anneal_points")


class Optimized(Learn):
    optimizer: str = setting(
        "adam", ("adam", "rmsprop", MODULE_NAME), "optimizer, or your own, see extending.md; RMSProp uses decay 0.99"
    )


class Discounted(Optimized):
    gamma: float = setting(0.99, "[0, 1]", "discount factor")


class GradNorm(LearnSection):
    grad_norm: float = setting(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping")


class Passes(LearnSection):
    """Minibatches of a rollout."""

    n_epoch: int = setting(1, "[1, 10000]", "passes over each rollout")
    n_minibatch: int = setting(
        1, "[1, 1e6]", "minibatches per pass, reshuffled each time; with memory at most one per environment"
    )


class Reused(LearnSection):
    max_times_sampled: int = setting(
        1, "[1, 100]", "iterations that learn from a rollout: its own and those after it, with newer rollouts beside it"
    )


class Gae(LearnSection):
    gae_lambda: float = setting(0.95, "[0, 1]", "bias-variance trade-off of GAE")


class Normalized(LearnSection):
    normalize_advantage: bool = setting(
        True, None, "normalize advantages to zero mean and unit variance in each minibatch"
    )


class EntropyBonus(LearnSection):
    entropy_weight: float = setting(0.01, "[0, inf)", "weight of the entropy bonus")


class ValueWeight(LearnSection):
    value_weight: float = setting(0.5, "[0, inf)", "weight of the value loss")


class TrustRegion(LearnSection):
    """Steps along the natural gradient."""

    max_kl: float = setting(0.01, "(0, 1]", "largest mean divergence of the policy by a step")
    cg_iterations: int = setting(10, "[1, 1000]", "iterations of the conjugate gradient method")
    cg_damping: float = setting(0.1, "[0, inf)", "multiple of the identity that is added to the Fisher matrix")


class CriticRate(LearnSection):
    critic_learning_rate: float = setting(0.001, "(0, 1]", "learning rate of the critic")


class Replayed(LearnSection):
    """Minibatches from a replay buffer."""

    batch_size: int = setting(256, "[1, 1e6]", "transitions per gradient step")
    update_per_collect: int = setting(8, "[1, 1e6]", "gradient steps per iteration")
    warmup: int = setting(1000, "[1, inf)", "transitions in the buffer before learning starts")


class UpdatesPerStep(LearnSection):
    updates_per_step: float | None = setting(
        None,
        "(0, 10000]",
        "gradient steps per environment step, in calls of update_per_collect; None: one call per iteration",
    )


class NStep(LearnSection):
    nstep: int = setting(1, "[1, 10000]", "steps of the n-step return")


class OffPolicyLearn(NStep, UpdatesPerStep, Replayed, Discounted):
    """Learning from replayed transitions."""


class Sequences(LearnSection):
    length: int = setting(32, "[1, 10000]", "transitions in a sequence")


class TrainRatio(LearnSection):
    train_ratio: float = setting(
        64.0,
        "(0, 1e6]",
        "replayed transitions per environment step: each gradient step replays batch_size times length",
    )


class SoftTargets(LearnSection):
    """Target networks that are moving averages of the online networks."""

    tau: float = setting(
        0.005, "(0, 1]", "weight of the online networks in the moving average of the targets, per target update"
    )


class Target(Section):
    """The update of a target network."""

    kind: str = setting(
        "periodic",
        ("periodic", "soft"),
        "copy the online network every `freq` steps, or average with `tau` at each step",
    )
    freq: int = setting(250, "[1, inf)", "periodic: gradient steps between copies")
    tau: float = setting(0.005, "(0, 1]", "soft: weight of the online network in the moving average")


class DoubleQ(LearnSection):
    double: bool = setting(True, None, "double Q-learning: the online network selects the next action")


class LambdaReturns(LearnSection):
    td_lambda: float = setting(0.0, "[0, 1]", "lambda of the lambda-returns; 0: one-step targets")


class Temperature(LearnSection):
    """The entropy temperature of soft actor-critics."""

    alpha: float = setting(1.0, "(0, inf)", "entropy temperature, or its initial value if it is learned")
    auto_alpha: bool = setting(True, None, "tune the temperature automatically")


class EntropyInNats(LearnSection):
    target_entropy: float | None = setting(
        None, None, "target entropy in nats; None: minus the number of action dimensions"
    )


class EntropyShare(LearnSection):
    target_entropy_share: float = setting(
        0.2, "[0, 1]", "target entropy as a fraction of the maximum, log(number of legal actions)"
    )


class Delayed(LearnSection):
    policy_delay: int = setting(2, "[1, inf)", "critic updates per update of the actor and the targets")


class SmoothedTargets(LearnSection):
    target_noise: float = setting(
        0.2, "[0, inf)", "standard deviation of the noise on target actions (target policy smoothing)"
    )
    noise_clip: float = setting(0.5, "[0, inf)", "clipping range of that noise")


class TwinDelayedLearn(SmoothedTargets, Delayed, SoftTargets):
    """Learning as TD3 does."""


class FromData(Optimized):
    """Minibatches of recorded steps."""

    batch_size: int = setting(256, "[1, 1e6]", "recorded steps per gradient step")
    steps_per_call: int = setting(
        32, "[1, 1e5]", "gradient steps per iteration, all in one compiled call; results do not depend on it"
    )


# Acting and evaluations


class Acting(CollectSection):
    backend: str = setting(
        "auto", ("auto", "graph", "numpy"), "how actions are computed: by a compiled graph, or by NumPy"
    )


class Collect(Acting):
    n_sample: int = setting(8, "[1, 1e8]", "environment steps per iteration, over all environments together")


class RandomSteps(CollectSection):
    random_steps: int = setting(0, "[0, inf)", "environment steps of uniformly random actions at the start")


class Noise(Section):
    """The noise on continuous actions."""

    kind: str = setting(
        "gaussian", ("gaussian", "ou"), "independent noise at each step, or an Ornstein-Uhlenbeck process"
    )
    sigma: float = setting(
        0.1, "[0, inf)", "standard deviation of the noise drawn at each step; actions lie in [-1, 1]"
    )
    theta: float = setting(0.15, "(0, 1]", "ou: rate of mean reversion per step")


class Noisy(CollectSection):
    noise: Noise


class Evaluation(EvalSection):
    freq: int = setting(10_000, "[1, inf)", "steps of the clock between evaluations")
    n_episode: int = setting(10, "[1, 1e6]", "episodes per evaluation, spread evenly over the environments")
    max_episode_steps: int = setting(
        30_000, "[1, inf)", "steps after which an evaluation episode is truncated; its return so far counts"
    )


class StochasticEvaluation(Evaluation):
    """Evaluations of policies that learn which action to draw."""

    deterministic: bool = setting(True, None, "take the likeliest action; false: draw it, as while collecting")


class DataEvaluation(Evaluation):
    """Evaluations of algorithms that learn from recorded data."""

    freq = 1000
    fqe: bool = setting(False, None, "chain=offline: fitted Q evaluation, the value of the policy from the data alone")
    fqe_steps: int = setting(5000, "[1, inf)", "fqe: gradient steps of each fit")


# Exploration, replay and data


class Eps(EpsSection):
    kind: str = setting("linear", (*SHAPES, MODULE_NAME), "shape of the schedule, or your own, see extending.md")
    start: float = setting(1.0, "[0, 1]", "initial probability of a random action")
    end: float = setting(0.05, "[0, 1]", "final probability of a random action")
    decay: int = setting(10_000, "[1, inf)", "environment steps from start to end (exp: time constant)")
    points: list[list[float]] = setting(
        [],
        None,
        "piecewise: [fraction of decay, remaining fraction of start - end] at each breakpoint; [0, 1] is implied",
    )

    def check(self, cfg: Config) -> None:
        check_points(self.kind, self.points, "policy.other.eps.points")


class Exploration(OtherSection):
    eps: Eps


class Buffer(OtherSection):
    buffer_size: int = setting(50_000, "[1, 1e9]", "capacity of the replay buffer, in transitions")
    save_buffer: bool = setting(True, None, "save the replay buffer in checkpoints; otherwise a resumed run refills it")


class Replay(Buffer):
    replay: str = setting(
        "uniform",
        ("uniform", MODULE_NAME),
        "sample uniformly, or from a buffer of your own, see howto/custom_algorithms.md",
    )


class HindsightCopies(HindsightSection):
    k: int = setting(4, "[1, 1000]", "chain=hindsight: copies of each transition with goals that were reached later")


class Hindsight(OtherSection):
    hindsight: HindsightCopies


class Rnd(Section):
    """The intrinsic reward of random network distillation."""

    weight: float = setting(0.0, "[0, inf)", "weight of the intrinsic reward; 0 turns it off")
    learning_rate: float = setting(1e-3, "(0, 1]", "learning rate of Adam")
    gamma: float = setting(
        0.99,
        "[0, 1]",
        "discount factor of the intrinsic returns, whose standard deviation divides the intrinsic rewards",
    )
    n_epoch: int = setting(1, "[1, 10000]", "passes over each rollout")
    n_minibatch: int = setting(4, "[1, 1e6]", "minibatches per pass; with fewer rows, one per row")
    hidden: list[int] = setting([64], WIDTH, "sizes of the hidden layers before the features")
    dim: int = setting(32, WIDTH, "features of an observation")


class Icm(Rnd):
    """The intrinsic reward of the intrinsic curiosity module."""

    beta: float = setting(
        0.2, "[0, 1]", "weight of the forward model in the loss; the inverse model has the weight 1 - beta"
    )


class Novelty(OtherSection):
    """Rewards for novelty."""

    rnd: Rnd
    icm: Icm

    def check(self, cfg: Config) -> None:
        for name, settings in (("rnd", self.rnd), ("icm", self.icm)):
            if settings.weight and num_agents(cfg.env.spec) is not None:
                raise ConfigError(
                    f"policy.other.{name}.weight={settings.weight} with env.env_id={cfg.env.env_id!r}: {name.upper()} "
                    f"rewards one agent, and this environment has several; use policy.other.{name}.weight=0"
                )


class DataShare(RecordedFolder):
    data_share: float = setting(0.5, "(0, 1)", "chain=prior_data: share of the recorded data in each minibatch")


class PriorData(DataShare):
    """Recorded data that are used in addition to collected data."""

    data: str | None = setting(
        doc="chain=prior_data: folder of recorded data, which are added to the collected data; see offline.md"
    )


class DataInMemory(RecordedFolder):
    data_memory: str = setting(
        "device",
        ("device", "mapped"),
        "chain=offline: place of the data during training: on the device, or in their file, which may exceed RAM",
    )


class Recorded(DataInMemory):
    """Recorded data that an algorithm learns from without an environment."""

    holdout: float = setting(
        0.0, "[0, 1)", "chain=offline: share of the episodes that is held out of learning and evaluates the policy"
    )


class RewardScales(OtherSection):
    """The scale of the rewards of recorded data."""

    reward: str = setting(
        "raw",
        ("raw", "return_range", "shift"),
        "scale of the rewards in learning: raw; return_range: times 1000 / (best - worst return of the recorded "
        "episodes); shift: minus 1; evaluations stay raw",
    )

    def check(self, cfg: Config) -> None:
        if self.reward == "raw":
            return
        known = cfg.chain in ("offline", "prior_data") or is_named(cfg.chain) or cfg.run.begin_from is not None
        if self.reward == "return_range" and not known:
            raise ConfigError(
                f"policy.other.reward=return_range with chain={cfg.chain!r}: its factor comes from recorded rewards, "
                "which only the chains offline and prior_data learn from; use policy.other.reward=raw"
            )
        if self.reward == "shift" and cfg.policy.learn.nstep > 1:
            raise ConfigError(
                f"policy.other.reward=shift with policy.learn.nstep={cfg.policy.learn.nstep}: the rewards of several "
                "steps are one number there, which would be shifted once; use policy.learn.nstep=1"
            )
        if cfg.env.get("normalize_reward"):
            raise ConfigError(
                f"policy.other.reward={self.reward} with env.normalize_reward=true: collected rewards would be "
                "rescaled twice, and recorded ones once; use env.normalize_reward=false"
            )


class SoftSettings(PolicySection):
    """Settings of soft actor-critics with Box actions."""

    learn: EntropyInNats


class DeterministicSettings(PolicySection):
    """Settings of policies that explore with noise."""

    collect: Noisy


class TwinDelayedSettings(DeterministicSettings):
    """Settings of policies that learn as TD3 does."""

    learn: TwinDelayedLearn
