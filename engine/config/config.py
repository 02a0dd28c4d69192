"""`Config`: the tree of settings, read by attribute, with the types of its keys.

All keys of the run, its lanes and the environment are declared here with their types. From the section `policy`, the
keys that several algorithms share or that middleware and chains read are declared, such as
``policy.learn.learning_rate``; reading one that an algorithm lacks raises AttributeError. For type checkers any other
key of an algorithm is an `object`, to which `Section.read` gives a type. Nothing is `Any`: a type checker finds a
misspelt key before the run, and checks expressions with settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

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


# Everything below is for type checkers: at run time every section is a plain `Section`.


class RunSection(Section):
    """`run`, see `engine.config.compiler.RUN_SCHEMA`."""

    max_env_step: int | None
    max_train_iter: int | None
    max_train_epoch: int | None
    schedule_begin: int
    begin_from: str | None
    final_episodes: int
    max_step: int | None
    stop_value: float | None
    target: float | None
    log_freq: float
    metrics_freq: int
    loggers: list[str]
    video: bool
    gradient_stats: bool
    ckpt_freq: int
    out_dir: str
    jit_threads: int
    profile: bool
    trace: bool


class PoolSection(Section):
    """`pool`, the model pool."""

    freq: int | None
    last: int
    every: int | None


class ContestSection(Section):
    """`contest`, the players of the chain `contest`."""

    opponents: list[str]
    score: str
    size: int


class LanesSection(Section):
    """`lanes`, see `engine.config.lanes`."""

    async_mode: bool
    collectors: int | None
    max_staleness: int | None
    timeout: float | None
    start_timeout: float
    limiter_timeout: float
    insecure: bool
    pin: str
    transport: str
    address: str
    shards: int
    order: str
    inference: str
    max_batch: int
    max_wait_ms: float


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
    """`env`, see `envs.config`."""

    env_id: str
    env_kwargs: OpenSection
    collector_env_num: int
    evaluator_env_num: int
    single_instance: bool
    backend: str
    info_keys: list[str]
    global_state: bool
    team_reward: bool
    wrappers: list[object]
    max_episode_steps: int | None
    rescale_action: bool
    normalize_reward: bool
    reward_gamma: float
    reward_clip: float | None
    episodic_life: bool
    on_error: str
    step_timeout: float
    workers: int
    spec: SpecSection


class ModelSection(OpenSection):
    """`policy.model`: the networks."""

    hidden: list[int]
    activation: str
    norm: str
    encoder: str | None
    encoder_dim: int
    normalize_obs: bool
    cnn: list[list[int]]
    cnn_dim: int
    memory: str
    memory_dim: int
    dueling: bool
    log_std: float
    n_atoms: int
    v_min: float
    v_max: float


class TargetSection(OpenSection):
    """`policy.learn.target`: the update of target networks."""

    kind: str
    freq: int
    tau: float


class LearnSection(OpenSection):
    """`policy.learn`: gradient steps."""

    learning_rate: float
    anneal_lr: bool
    anneal_kind: str
    anneal_points: list[list[float]]
    anneal_steps: int | None
    optimizer: str
    length: int
    burn_in: int
    rescale: bool
    gamma: float
    batch_size: int
    update_per_collect: int
    updates_per_step: float | None
    train_ratio: float
    warmup: int
    nstep: int
    n_epoch: int
    n_minibatch: int
    grad_norm: float
    on_nan: str
    double: bool
    target: TargetSection
    tau: float
    td_lambda: float
    gae_lambda: float
    clip_ratio: float
    entropy_weight: float
    value_weight: float
    value_clip: bool
    normalize_advantage: bool
    target_kl: float | None
    alpha: float
    auto_alpha: bool
    target_entropy: float | None
    critic_learning_rate: float
    policy_delay: int
    target_noise: float
    noise_clip: float
    steps_per_call: int


class NoiseSection(OpenSection):
    """`policy.collect.noise`: the noise on continuous actions."""

    kind: str
    sigma: float
    theta: float


class CollectSection(OpenSection):
    """`policy.collect`: acting during collection."""

    n_sample: int
    backend: str
    random_steps: int
    noise: NoiseSection


class EvalSection(OpenSection):
    """`policy.eval`: evaluations."""

    freq: int
    n_episode: int
    max_episode_steps: int
    fqe: bool
    fqe_steps: int


class EpsSection(OpenSection):
    """`policy.other.eps`: the schedule of random actions."""

    kind: str
    start: float
    end: float
    decay: int
    points: list[list[float]]


class HindsightSection(OpenSection):
    """`policy.other.hindsight`: transitions with other goals."""

    k: int


class PrioritySection(OpenSection):
    """`policy.other.priority`: prioritized sampling."""

    alpha: float
    beta: float
    beta_steps: int
    eta: float
    stride: int


class RndSection(OpenSection):
    """`policy.other.rnd`: the intrinsic reward of random network distillation."""

    weight: float


class TableSection(OpenSection):
    """`policy.other.table`: a replay table, see `engine.buffers.table`."""

    sampler: str
    remover: str
    max_times_sampled: int
    limiter: str
    limiter_rows: int
    samples_per_insert: float
    limiter_error: float


class OtherSection(OpenSection):
    """`policy.other`: exploration and the replay buffer."""

    eps: EpsSection
    buffer_size: int
    save_buffer: bool
    replay: str
    priority: PrioritySection
    table: TableSection
    hindsight: HindsightSection
    rnd: RndSection
    data: str | None
    data_memory: str
    data_share: float
    holdout: float
    reward: str


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

    exp_name: str
    seed: int
    device: str
    chain: str
    use: list[object]
    run: RunSection
    pool: PoolSection
    contest: ContestSection
    lanes: LanesSection
    env: EnvSection
    policy: PolicySection
