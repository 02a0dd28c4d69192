"""`Config`: the tree of settings, read by attribute.

Each setting is declared here once, as a field of its section, with type, default, allowed values and meaning; the
schema that checks a user's settings follows from that.

From the section `policy`, the settings that several algorithms share or that middleware and chains read are declared
here, such as ``policy.learn.learning_rate``. An algorithm names those that it has, with defaults of its own, and adds
others in `policies.settings`; reading one that it lacks raises AttributeError. For type checkers a setting of a single
algorithm is an `object`, to which `Section.read` gives a type. Nothing is `Any`: a type checker finds a misspelt key
before the run, and checks expressions with settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from minding.engine.annealing import SHAPES
from minding.engine.config.options import MODULE_NAME, WIDTH, Declared, Option, setting
from minding.engine.errors import ConfigError, nearest

if TYPE_CHECKING:
    EasyDict = dict[str, object]
else:
    from easydict import EasyDict

_T = TypeVar("_T")


class Section(EasyDict):
    """A part of the settings: an EasyDict, a dict whose keys are also attributes.

    Mappings in it, also those in lists, are sections. Other than in a plain EasyDict, a value is held only once, and an
    unknown attribute is an AttributeError with the nearest key.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **more: object) -> None:
        # EasyDict's own would add the methods of the class as settings.
        dict.__init__(self)
        self.update({**(settings or {}), **more})

    _declared: ClassVar[dict[str, Option]] = {}

    def __init_subclass__(cls) -> None:
        found = {key: value for key, value in vars(cls).items() if isinstance(value, Declared)}
        own = {key: declared.option(cls.__annotations__[key]) for key, declared in found.items()}
        cls._declared = {**cls._declared, **own}
        for key in found:
            # An attribute of the class would hide the item of that name.
            delattr(cls, key)

    @classmethod
    def options(cls, *keys: str, **defaults: object) -> dict[str, Any]:
        """The schema of the section: the options of its settings by key; sections in it are nested dicts.

        Args:
          keys: the settings to include; all if neither these nor `defaults` are given.
          defaults: more settings to include, with other defaults than declared.
        """
        known = {*cls._declared, *_sections_in(cls)}
        chosen = {*keys, *defaults} or known
        if chosen - known:
            raise ConfigError(f"{cls.__name__} declares no {', '.join(sorted(chosen - known))}")
        found: dict[str, Any] = {}
        for key in _annotations(cls):
            if key in chosen and key in cls._declared:
                option = cls._declared[key]
                found[key] = dataclasses.replace(option, default=option.check(defaults.get(key, option.default), key))
            elif key in chosen and (inner := _sections_in(cls)[key].options()):
                found[key] = inner
        return found

    def read(self, path: str, kind: type[_T], default: _T | None = None) -> _T:
        """The value at a dotted path, such as ``cfg.policy.read("model.n_quantiles", int)``.

        Args:
          path: keys, joined by dots.
          kind: class of the value.
          default: the value if there is no such key.
        Raises:
          ConfigError: there is no such key and no default, or the value has another type.
        """
        value: object = self
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                if default is not None:
                    return default
                known = list(value) if isinstance(value, Mapping) else []
                raise ConfigError(f"read({path!r}): there is no key {key!r}{nearest(key, known)}")
            value = value[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"read({path!r}): expected {kind.__name__}, but the settings hold {value!r}")
        return value

    def __setitem__(self, key: str, value: object) -> None:
        # EasyDict's own would hold the value as an attribute as well.
        dict.__setitem__(self, key, _sections(value))

    def update(self, *settings: Mapping[str, object], **more: object) -> None:  # type: ignore[override]
        for each in (*settings, more):
            for key, value in each.items():
                self[key] = value

    def setdefault(self, key: str, default: object = None) -> object:
        if key not in self:
            self[key] = default
        return self[key]

    pop = dict.pop

    def copy(self) -> Section:
        """A shallow copy of this section: it shares the sections in it."""
        return type(self)(self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    if not TYPE_CHECKING:
        # To type checkers a section has the keys that it declares.

        def __getattr__(self, name):
            if name in self:
                return self[name]
            hint = nearest(name, self) or f"; it has {', '.join(self) or 'none'}"
            raise AttributeError(f"the settings have no key {name!r} here{hint}", name=name, obj=self)

        def __setattr__(self, name, value):
            self[name] = value

        def __delattr__(self, name):
            if name not in self:
                raise AttributeError(f"the settings have no key {name!r} here", name=name, obj=self)
            del self[name]


def _sections(value: object) -> object:
    if isinstance(value, Mapping) and not isinstance(value, Section):
        return Section(value)
    if type(value) is list or type(value) is tuple:
        return type(value)(_sections(each) for each in value)
    return value


class OpenSection(Section):
    """A section that may hold further keys, which belong to a single algorithm or environment."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> object: ...

        def __setattr__(self, name: str, value: object) -> None: ...


def _annotations(section: type[Section]) -> dict[str, Any]:
    """The annotations of a section and of the sections that it extends, in order."""
    return {
        key: name for each in reversed(section.__mro__) for key, name in vars(each).get("__annotations__", {}).items()
    }


def _sections_in(section: type[Section]) -> dict[str, type[Section]]:
    """The sections that the annotations of a section name, by key."""
    named = {key: globals().get(name) for key, name in _annotations(section).items()}
    return {key: kind for key, kind in named.items() if isinstance(kind, type) and issubclass(kind, Section)}


# To type checkers each section is of its class; at run time every section is a plain `Section`.


class RunSection(Section):
    """`run`: the length of a run, its evaluations, logs and files."""

    max_env_step: int | None = setting(
        None,
        "[1, inf)",
        "environment steps after which the run ends; 100,000 by default, unless it learns from recorded data",
    )
    max_train_iter: int | None = setting(
        None, "[1, inf)", "gradient steps after which the run ends; 10,000 by default with recorded data"
    )
    max_train_epoch: int | None = setting(None, "[1, inf)", "passes over recorded data after which the run ends")
    schedule_begin: int = setting(
        0, "[0, inf)", "step of the clock at which schedules over the run start, such as the learning rate schedule"
    )
    begin_from: str | None = setting(
        None,
        None,
        "run folder whose weights, targets and optimizer state this run starts from",
        reaches="reads a folder outside of the run",
    )
    final_episodes: int = setting(100, "[1, 1e6]", "episodes in the evaluation after training")
    max_step: int | None = setting(None, "[1, inf)", "iterations after which the run ends")
    stop_value: float | None = setting(None, None, "evaluation mean at which the run ends; None: never")
    target: float | None = setting(
        None, None, "mean return to reach, a line in plots of the learning curve; it does not end the run"
    )
    log_freq: float = setting(0.5, "(0, inf)", "seconds between two refreshes of the progress display")
    metrics_freq: int = setting(1000, "[1, inf)", "steps of the clock between two rows of metrics")
    loggers: list[str] = setting(
        ["tensorboard"],
        ("tensorboard", "wandb", "mlflow", "swanlab", MODULE_NAME),
        "trackers that receive metrics besides metrics.csv, or your own, see extending.md; each of minding's but "
        "TensorBoard needs an extra",
        reaches="sends metrics and settings to a service, with your account",
    )
    video: bool = setting(
        False, None, "film an episode of the final policy, for episode.gif and TensorBoard; takes a few seconds"
    )
    gradient_stats: bool = setting(False, None, "log norms of gradients, weights and steps, by group of parameters")
    ckpt_freq: int = setting(1000, "[1, inf)", "gradient steps between two checkpoints")
    out_dir: str = setting("runs", None, "folder that holds the run folders", reaches="chooses where files are written")
    jit_threads: int = setting(
        1, "[1, 256]", "threads of the kernels, at most one per core; several help with wide layers, see kernels.md"
    )
    profile: bool = setting(False, None, "print the time of each middleware at the end")
    trace: bool = setting(False, None, "write a timeline of all lanes to trace.json, for chrome://tracing")


class PoolSection(Section):
    """`pool`, the model pool."""

    freq: int | None = setting(
        None, "[1, inf)", "`pool.unit` between two versions of the policy in the model pool; None: no model pool"
    )
    unit: str = setting(
        "iteration", ("iteration", "train_iter"), "what `pool.freq` counts: iterations, or gradient steps"
    )
    last: int = setting(
        10, "[1, inf)", "number of newest versions to keep; the best and pinned versions are always kept"
    )
    every: int | None = setting(None, "[1, inf)", "keep those older versions whose number is a multiple of this")


class LeagueSection(Section):
    """`league`, the players of the chain `league`."""

    opponents: list[str] = setting(
        [], None, "names of the agents for which past versions of the policy act (chain=league)"
    )
    score: str = setting(
        "score", None, "key of env.info_keys with the outcome of an episode: 1 for won, 0 for lost, 0.5 for neither"
    )
    size: int = setting(8, "[1, 1000]", "number of past versions that play at the same time")


class LanesSection(Section):
    """`lanes`: the layout of an asynchronous run."""

    async_mode: bool = setting(False, None, "collect and evaluate in separate processes while the chain learns")
    collectors: int | None = setting(
        None, "[1, 4096]", "number of collector processes; None: chosen by the number of cores"
    )
    max_staleness: int | None = setting(
        None, "[0, 1000]", "maximum age of a rollout's weights, in learner iterations; None: chosen by the algorithm"
    )
    timeout: float | None = setting(
        None, "(0, inf)", "seconds without a heartbeat after which a worker is replaced; None: 300, on Ray 30"
    )
    start_timeout: float = setting(
        60.0, "(0, inf)", "seconds to wait for a worker's first heartbeat, or for a free place on the cluster"
    )
    limiter_timeout: float = setting(
        600.0,
        "(0, inf)",
        "order=arrival: seconds to wait for a rollout while the limiter of a replay table forbids sampling",
    )
    insecure: bool = setting(
        False,
        None,
        "use a Ray cluster without a token; anyone who can reach the cluster can run code on it",
        reaches="joins a Ray cluster without a token",
    )
    pin: str = setting(
        "auto", ("auto", "on", "off"), "pin each lane to its own cores; auto: if there are at least three cores"
    )
    transport: str = setting(
        "processes",
        ("processes", "threads", "ray"),
        "how workers run: as processes, as threads of this process (for debugging), or as actors on a Ray cluster",
        reaches="chooses where workers run",
    )
    address: str = setting(
        "local",
        None,
        "Ray cluster: local starts one on this machine for the run; HOST:PORT connects to a running one",
        reaches="connects to a Ray cluster",
    )
    resources: OpenSection = setting(
        {}, "open", "resources of a Ray cluster that each collector, evaluator and inference server takes, by name"
    )
    learners: int = setting(
        1,
        "[1, 64]",
        "processes that learn: each computes its part of every minibatch, and they average their gradients",
    )
    code: str | None = setting(
        None,
        None,
        "folder with modules that other machines of a Ray cluster lack, which are sent to its workers",
        reaches="sends a folder to other machines, and runs its code there",
    )
    shards: int = setting(
        1, "[1, 4096]", "number of collectors that share one iteration and divide its environments; 1: not shared"
    )
    order: str = setting(
        "exact",
        ("exact", "arrival"),
        "which rollout an iteration uses; exact: its own, so that runs are repeatable; arrival: the next one to arrive",
    )
    inference: str = setting(
        "local",
        ("local", "server", "auto"),
        "where collectors' networks are computed: local: in each collector; server: in one worker, in batches; auto: "
        "where a trial before the run is faster",
    )
    max_batch: int = setting(256, "[1, 1e6]", "observations of collectors that an inference server computes together")
    max_wait_ms: float = setting(
        2.0, "[0, inf)", "milliseconds that an inference server waits for more observations before it computes"
    )


class AgentsSection(OpenSection):
    """`env.spec.agents`, for environments with several agents."""

    names: list[str]
    spaces: list[OpenSection]
    state: OpenSection | None
    team_reward: bool


class SpecSection(OpenSection):
    """`env.spec`, the description of the environment: see `envs.spec.describe_env`."""

    observation: OpenSection
    action: OpenSection
    env_action: OpenSection
    max_episode_steps: int | None
    num_agents: int
    agents: AgentsSection


class EnvSection(Section):
    """`env`: the environments."""

    env_id: str = setting(
        "",
        None,
        "Gymnasium id, 'mpe2/NAME', 'sisl/NAME', 'smac/MAP', or your own 'module:ClassOrFunction'; 'data': no "
        "environment, spaces and limits come from the recorded data; required",
    )
    env_kwargs: OpenSection = setting({}, "open", "keyword arguments of the environment")
    evaluator_kwargs: OpenSection = setting(
        {}, "open", "keyword arguments of environments for evaluation that differ; their spaces are the same"
    )
    collector_env_num: int = setting(8, "[1, 65536]", "environments used to collect training data")
    evaluator_env_num: int = setting(5, "[1, 65536]", "environments used for evaluation")
    single_instance: bool = setting(
        False,
        None,
        "only one instance can exist at a time, as with a robot: collecting and evaluation take turns on it",
    )
    backend: str = setting(
        "auto",
        ("auto", "native", "sync", "subprocess", "envpool", MODULE_NAME),
        "how environments are stepped, or your own, see extending.md; subprocess pays off only for slow ones",
    )
    info_keys: list[str] = setting([], None, "keys of info passed on with each step, such as action_mask or success")
    global_state: bool = setting(
        False, None, "several agents: add the global state, or else all observations, to the observation"
    )
    team_reward: bool = setting(False, None, "several agents: each receives the sum of all rewards")
    wrappers: list[object] = setting(
        [], None, "wrappers as name or {name: kwargs}, innermost first; see environment_packages.md"
    )
    max_episode_steps: int | None = setting(None, "[1, inf)", "time limit in steps, instead of the environment's own")
    rescale_action: bool = setting(True, None, "policies act in [-1, 1], mapped to the bounds of a finite Box")
    normalize_reward: bool = setting(
        False, None, "divide rewards by the running standard deviation of the discounted return"
    )
    reward_gamma: float = setting(0.99, "[0, 1]", "discount factor of that return; use the policy's gamma")
    reward_clip: float | None = setting(
        None,
        "(0, inf]",
        "clip training rewards to plus or minus this; None: 10 with normalize_reward, otherwise no clipping",
    )
    episodic_life: bool = setting(False, None, "end training episodes at the loss of a life (Atari)")
    on_error: str = setting("raise", ("raise", "restart"), "after a fault: end the run, or restart that environment")
    step_timeout: float = setting(60.0, "(0, inf)", "seconds that a step or reset of an environment may take")
    workers: int = setting(0, "[0, 4096]", "worker processes (subprocess only); 0 means one per core")
    spec: SpecSection


class ModelSection(OpenSection):
    """`policy.model`: the networks."""

    hidden: list[int] = setting([64, 64], WIDTH, "sizes of the hidden layers")
    activation: str = setting(
        "relu", ("relu", "tanh", "silu", "gelu", "elu"), "activation function of the hidden layers"
    )
    norm: str = setting(
        "none",
        ("none", "layer"),
        "layer normalization of each hidden layer before its activation, over the layer's units",
    )
    block: str = setting(
        "plain",
        ("plain", "residual"),
        "hidden layers, or SimBa's residual blocks with layer normalization, one for each entry of hidden",
    )
    encoder: str | None = setting(
        None,
        None,
        "your own encoder of observations, 'module:Class', see howto/custom_networks.md; None: minding's own",
    )
    encoder_dim: int = setting(64, WIDTH, "features of each key except images, if an observation has several keys")
    normalize_obs: bool = setting(False, None, "normalize vectors to zero mean and unit variance, inside the network")
    cnn: list[list[int]] = setting([], None, "convolutions as [channels, kernel, stride]; empty: chosen by image size")
    cnn_dim: int = setting(256, WIDTH, "output features of an image encoder")
    augment: int = setting(
        0,
        "[0, 64]",
        "pixels by which learning moves each image at most, at random (DrQ-v2: 4 of 84); 0: images stay as they are",
    )
    central: bool = setting(
        True,
        None,
        "centralized critics, which see all observations and actions; false: critics see only their own agent, as in "
        "DDPG",
    )
    memory: str = setting(
        "none", ("none", "gru", "lstm", "gtrxl"), "recurrent layer or gated transformer between encoder and heads"
    )
    memory_dim: int = setting(
        64,
        WIDTH,
        "units of the memory; its state has one number per unit, two with an LSTM, and with gtrxl about one per unit, "
        "layer and remembered step",
    )
    memory_length: int = setting(16, "[1, 4096]", "gtrxl: steps that each layer remembers")
    memory_layers: int = setting(2, "[1, 64]", "gtrxl: layers")
    memory_heads: int = setting(4, "[1, 1024]", "gtrxl: heads of the attention, which divide memory_dim")
    dueling: bool = setting(False, None, "separate streams for state value and advantages")
    log_std: float = setting(
        0.0,
        "[-5, 2]",
        "initial log standard deviation of continuous actions; -1 may help if the best actions lie near a bound",
    )
    n_critics: int = setting(2, "[1, 1000]", "critics")
    n_atoms: int = setting(51, "[2, 16384]", "atoms of the return distribution, equally spaced")
    v_min: float = setting(-10.0, None, "smallest atom; smaller returns are clipped to it")
    v_max: float = setting(10.0, None, "largest atom; larger returns are clipped to it")


class TargetSection(OpenSection):
    """`policy.learn.target`: the update of target networks."""

    kind: str = setting(
        "periodic",
        ("periodic", "soft"),
        "copy the online network every `freq` steps, or average with `tau` at each step",
    )
    freq: int = setting(250, "[1, inf)", "periodic: gradient steps between copies")
    tau: float = setting(0.005, "(0, 1]", "soft: weight of the online network in the moving average")


class LearnSection(OpenSection):
    """`policy.learn`: gradient steps."""

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
    optimizer: str = setting(
        "adam", ("adam", "rmsprop", MODULE_NAME), "optimizer, or your own, see extending.md; RMSProp uses decay 0.99"
    )
    length: int = setting(32, "[1, 10000]", "transitions in a sequence")
    burn_in: int = setting(10, "[0, 10000]", "transitions before the sequence, which only warm up the recurrent state")
    rescale: bool = setting(True, None, "apply the value rescaling h to returns")
    gamma: float = setting(0.99, "[0, 1]", "discount factor")
    batch_size: int = setting(256, "[1, 1e6]", "transitions per gradient step")
    update_per_collect: int = setting(8, "[1, 1e6]", "gradient steps per iteration")
    updates_per_step: float | None = setting(
        None,
        "(0, 10000]",
        "gradient steps per environment step, in calls of update_per_collect; None: one call per iteration",
    )
    train_ratio: float = setting(
        64.0,
        "(0, 1e6]",
        "replayed transitions per environment step: each gradient step replays batch_size times length",
    )
    warmup: int = setting(1000, "[1, inf)", "transitions in the buffer before learning starts")
    nstep: int = setting(1, "[1, 10000]", "steps of the n-step return")
    n_epoch: int = setting(1, "[1, 10000]", "passes over each rollout")
    max_times_sampled: int = setting(
        1, "[1, 100]", "iterations that learn from a rollout: its own and those after it, with newer rollouts beside it"
    )
    n_minibatch: int = setting(
        1, "[1, 1e6]", "minibatches per pass, reshuffled each time; with memory at most one per environment"
    )
    grad_norm: float = setting(10.0, "[0, inf)", "clip the global norm of the gradients to this; 0: no clipping")
    on_nan: str = setting(
        "stop", ("stop", "skip"), "after an update with NaN or infinity: end the run, or undo the update"
    )
    double: bool = setting(True, None, "double Q-learning: the online network selects the next action")
    target: TargetSection
    tau: float = setting(
        0.005, "(0, 1]", "weight of the online networks in the moving average of the targets, per target update"
    )
    td_lambda: float = setting(0.0, "[0, 1]", "lambda of the lambda-returns; 0: one-step targets")
    kappa: float = setting(1.0, "(0, inf)", "threshold of the Huber loss, beyond which it is linear")
    gae_lambda: float = setting(0.95, "[0, 1]", "bias-variance trade-off of GAE")
    clip_ratio: float = setting(0.2, "(0, 1)", "clip range of the probability ratio")
    entropy_weight: float = setting(0.01, "[0, inf)", "weight of the entropy bonus")
    value_weight: float = setting(0.5, "[0, inf)", "weight of the value loss")
    value_clip: bool = setting(True, None, "clip the change in value to clip_ratio")
    normalize_advantage: bool = setting(
        True, None, "normalize advantages to zero mean and unit variance in each minibatch"
    )
    target_kl: float | None = setting(
        None, "(0, inf)", "skip the remaining gradient steps on a rollout once the KL divergence exceeds 1.5 times this"
    )
    alpha: float = setting(1.0, "(0, inf)", "entropy temperature, or its initial value if it is learned")
    auto_alpha: bool = setting(True, None, "tune the temperature automatically")
    target_entropy: float | None = setting(
        None, None, "target entropy in nats; None: minus the number of action dimensions"
    )
    target_entropy_share: float = setting(
        0.2, "[0, 1]", "target entropy as a fraction of the maximum, log(number of legal actions)"
    )
    temperature: float = setting(1.0, "(0, inf)", "discrete actions: temperature of the Gumbel-softmax")
    critic_learning_rate: float = setting(0.001, "(0, 1]", "learning rate of the critic")
    policy_delay: int = setting(2, "[1, inf)", "critic updates per update of the actor and the targets")
    target_noise: float = setting(
        0.2, "[0, inf)", "standard deviation of the noise on target actions (target policy smoothing)"
    )
    noise_clip: float = setting(0.5, "[0, inf)", "clipping range of that noise")
    weight_scale: float = setting(1.0, "[0, inf)", "factor of the advantage in the exponent of an action's weight")
    weight_limit: float = setting(100.0, "(0, inf)", "largest weight of an action")
    steps_per_call: int = setting(
        32, "[1, 1e5]", "gradient steps per iteration, all in one compiled call; results do not depend on it"
    )


class NoiseSection(OpenSection):
    """`policy.collect.noise`: the noise on continuous actions."""

    kind: str = setting(
        "gaussian", ("gaussian", "ou"), "independent noise at each step, or an Ornstein-Uhlenbeck process"
    )
    sigma: float = setting(
        0.1, "[0, inf)", "standard deviation of the noise drawn at each step; actions lie in [-1, 1]"
    )
    theta: float = setting(0.15, "(0, 1]", "ou: rate of mean reversion per step")


class CollectSection(OpenSection):
    """`policy.collect`: acting during collection."""

    n_sample: int = setting(8, "[1, 1e8]", "environment steps per iteration, over all environments together")
    backend: str = setting(
        "auto", ("auto", "graph", "numpy"), "how actions are computed: by a compiled graph, or by NumPy"
    )
    random_steps: int = setting(0, "[0, inf)", "environment steps of uniformly random actions at the start")
    noise: NoiseSection


class EvalSection(OpenSection):
    """`policy.eval`: evaluations."""

    freq: int = setting(10_000, "[1, inf)", "steps of the clock between evaluations")
    n_episode: int = setting(10, "[1, 1e6]", "episodes per evaluation, spread evenly over the environments")
    max_episode_steps: int = setting(
        30_000, "[1, inf)", "steps after which an evaluation episode is truncated; its return so far counts"
    )
    fqe: bool = setting(False, None, "chain=offline: fitted Q evaluation, the value of the policy from the data alone")
    fqe_steps: int = setting(5000, "[1, inf)", "fqe: gradient steps of each fit")


class EpsSection(OpenSection):
    """`policy.other.eps`: the schedule of random actions."""

    kind: str = setting("linear", (*SHAPES, MODULE_NAME), "shape of the schedule, or your own, see extending.md")
    start: float = setting(1.0, "[0, 1]", "initial probability of a random action")
    end: float = setting(0.05, "[0, 1]", "final probability of a random action")
    decay: int = setting(10_000, "[1, inf)", "environment steps from start to end (exp: time constant)")
    points: list[list[float]] = setting(
        [],
        None,
        "piecewise: [fraction of decay, remaining fraction of start - end] at each breakpoint; [0, 1] is implied",
    )


class HindsightSection(OpenSection):
    """`policy.other.hindsight`: transitions with other goals."""

    k: int = setting(4, "[1, 1000]", "chain=hindsight: copies of each transition with goals that were reached later")


class PrioritySection(OpenSection):
    """`policy.other.priority`: prioritized sampling."""

    alpha: float = setting(
        0.6, "[0, 1]", "prioritized: exponent of the priorities; 0 samples uniformly, 1 in proportion to the error"
    )
    beta: float = setting(
        0.4, "[0, 1]", "prioritized: initial exponent of the importance-sampling weights; annealed to 1"
    )
    beta_steps: int = setting(100_000, "[1, inf)", "prioritized: gradient steps over which beta is annealed")
    eta: float = setting(
        0.9, "[0, 1]", "prioritized: weight of the largest TD error of a sequence; the mean has the weight 1 - eta"
    )
    stride: int = setting(
        10, "[1, 10000]", "prioritized: transitions between the starts of successive sequences; a divisor of length"
    )


class NoveltySection(OpenSection):
    """`policy.other.rnd`: the intrinsic reward of random network distillation."""

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


class IcmSection(NoveltySection):
    """`policy.other.icm`: the intrinsic reward of the intrinsic curiosity module."""

    beta: float = setting(
        0.2, "[0, 1]", "weight of the forward model in the loss; the inverse model has the weight 1 - beta"
    )


class TableSection(OpenSection):
    """`policy.other.table`: a replay table, see `engine.buffers.table`."""

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


class OtherSection(OpenSection):
    """`policy.other`: exploration and the replay buffer."""

    eps: EpsSection
    buffer_size: int = setting(50_000, "[1, 1e9]", "capacity of the replay buffer, in transitions")
    save_buffer: bool = setting(True, None, "save the replay buffer in checkpoints; otherwise a resumed run refills it")
    replay: str = setting(
        "uniform",
        ("uniform", "prioritized", "table", MODULE_NAME),
        "sample transitions uniformly, by priority (the size of their TD error), from a table with the settings "
        "policy.other.table, or from a buffer of your own, see howto/custom_algorithms.md",
    )
    priority: PrioritySection
    table: TableSection
    hindsight: HindsightSection
    rnd: NoveltySection
    icm: IcmSection
    data: str | None = setting(
        None,
        None,
        "chain=prior_data: folder of recorded data, which are added to the collected data; see offline.md",
        reaches="reads a folder outside of the run",
    )
    data_memory: str = setting(
        "device",
        ("device", "mapped"),
        "chain=offline: place of the data during training: on the device, or in their file, which may exceed RAM",
    )
    data_share: float = setting(0.5, "(0, 1)", "chain=prior_data: share of the recorded data in each minibatch")
    holdout: float = setting(
        0.0, "[0, 1)", "chain=offline: share of the episodes that is held out of learning and evaluates the policy"
    )
    reward: str = setting(
        "raw",
        ("raw", "return_range", "shift"),
        "scale of the rewards in learning: raw; return_range: times 1000 / (best - worst return of the recorded "
        "episodes); shift: minus 1; evaluations stay raw",
    )


class PolicySection(Section):
    """`policy`: the algorithm and its settings."""

    type: str
    model: ModelSection
    learn: LearnSection
    collect: CollectSection
    eval: EvalSection
    other: OtherSection


class Config(Section):
    """The settings of a run. What `compile_run` returns has all of these sections."""

    exp_name: str = setting(None, None, "name of the run folder; '<env>_<algorithm>' by default")
    seed: int = setting(0, "[0, inf)", "seed of every random stream of the run")
    device: str = setting("auto", ("auto", "CPU", "Ascend", "GPU"), "device on which MindSpore runs")
    chain: str = setting(
        None, None, "name of the chain, or your own as 'module:function'; the algorithm's chain by default"
    )
    use: list[object] = setting(
        [], None, "your own middleware, each 'module:Name' or {call: 'module:Name', before: middleware, role: collect}"
    )
    run: RunSection
    pool: PoolSection
    league: LeagueSection
    lanes: LanesSection
    env: EnvSection
    policy: PolicySection
