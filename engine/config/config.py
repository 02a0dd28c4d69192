"""`Config`: the settings of a run. Those of runs and environments are declared here, see `engine.config.section`.

The settings of an algorithm are declared by its class in `policies.settings`. The sections of `PolicySection` have what
chains, middleware and commands read of any algorithm: the types, and the values for algorithms without the setting.
Nothing is `Any`: a type checker finds a misspelt key before the run, and checks expressions with settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from minding.engine.config.options import MODULE_NAME, setting
from minding.engine.config.section import OpenSection, Section
from minding.engine.errors import ConfigError


class RunSection(Section):
    """`run`: the length of a run, its evaluations, logs and files."""

    max_env_step: int | None = setting(
        None,
        "[1, inf)",
        "environment steps; the run ends with the rollout that reaches them; 100,000 by default, unless it learns from "
        "recorded data",
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
    agent_ids: bool = setting(
        True, None, "several agents that share one network: add each agent's number to its observation, as one-hot"
    )
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

    hidden: list[int]
    augment: int = 0


class LearnSection(OpenSection):
    """`policy.learn`: gradient steps."""

    learning_rate: float
    on_nan: str
    gamma: float = 0.99
    gae_lambda: float
    nstep: int = 1
    n_epoch: int
    n_minibatch: int = 1
    max_times_sampled: int = 1
    batch_size: int = 1
    update_per_collect: int = 1
    updates_per_step: float | None = None
    warmup: int
    policy_delay: int = 1
    tau: float
    train_ratio: float
    length: int = 0
    burn_in: int = 0
    rescale: bool
    steps_per_call: int
    death_masking: bool = False


class CollectSection(OpenSection):
    """`policy.collect`: acting during collection."""

    backend: str
    n_sample: int = 0
    random_steps: int = 0


class EvalSection(OpenSection):
    """`policy.eval`: evaluations."""

    freq: int
    n_episode: int
    max_episode_steps: int
    deterministic: bool = True
    fqe: bool = False
    fqe_steps: int
    simulations: int
    opening_plies: int
    opponents: list[str]


class EpsSection(Section):
    """`policy.other.eps`: the schedule of random actions."""

    kind: str
    start: float
    end: float
    decay: int
    points: list[list[float]]


class PrioritySection(Section):
    """`policy.other.priority`: prioritized sampling."""

    alpha: float
    beta: float
    beta_steps: int


class HindsightSection(Section):
    """`policy.other.hindsight`: transitions with other goals."""

    k: int


class TableSection(Section):
    """`policy.other.table`: a replay table, see `engine.buffers.table`."""

    sampler: str
    remover: str
    max_times_sampled: int
    limiter: str
    limiter_rows: int
    samples_per_insert: float
    limiter_error: float


class OtherSection(OpenSection):
    """`policy.other`: exploration, replay and recorded data."""

    buffer_size: int
    replay: str = "uniform"
    data: str | None = None
    data_share: float
    data_memory: str = "device"
    holdout: float = 0.0
    reward: str = "raw"
    if TYPE_CHECKING:
        # At run time an annotation with a section is a section of all algorithms.
        eps: EpsSection
        priority: PrioritySection
        table: TableSection
        hindsight: HindsightSection


class RecordedFolder(OtherSection):
    """With the folder of the data that an algorithm learns from."""

    data: str | None = setting(
        None,
        None,
        "folder of the recorded data, see `minding data record`",
        reaches="reads a folder outside of the run",
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


_LENGTHS = {"env_step": 100_000, "train_iter": 10_000}
"""Steps of a run that sets no limit, by its unit."""
_OTHERS = {"env_step": "max_train_epoch", "train_iter": "max_env_step"}
"""The limit in `run` that a run with this unit can never reach."""


class RunLength(NamedTuple):
    """The unit of a run's clock (see `engine.chain.context.UNITS`), and the steps after which the run ends."""

    unit: str
    steps: int


def run_length(cfg: Mapping[str, Any]) -> RunLength:
    """The length of a run, from its compiled configuration."""
    run = cfg["run"]
    if run["max_env_step"] is not None:
        return RunLength("env_step", int(run["max_env_step"]))
    return RunLength("train_iter", int(run["max_train_iter"]))


def set_length(run: dict[str, Any], unit: str, algorithm: str) -> None:
    """Fills in the limit of a run that does not limit its clock."""
    other = _OTHERS[unit]
    if run[other] is not None:
        instead = "run.max_env_step or run.max_train_iter" if unit == "env_step" else "run.max_train_iter"
        why = "collects its data" if unit == "env_step" else "learns from recorded data"
        raise ConfigError(f"run.{other}={run[other]}: {algorithm} {why} and never reaches this limit; use {instead}")
    if run[f"max_{unit}"] is None:
        run[f"max_{unit}"] = _LENGTHS[unit]


def updates_per_step(cfg: Config) -> tuple[float | None, str]:
    """Gradient steps per environment step, or None if there is no fixed ratio, and the setting that determines it."""
    learn = cfg.policy.learn
    if "train_ratio" in learn:
        return learn.train_ratio / (learn.batch_size * learn.length), f"policy.learn.train_ratio={learn.train_ratio}"
    ratio = learn.updates_per_step if "updates_per_step" in learn else None
    return ratio, f"policy.learn.updates_per_step={ratio}"
