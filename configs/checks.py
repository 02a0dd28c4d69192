"""Conditions that settings of a compiled configuration must meet together."""

from __future__ import annotations

from collections.abc import Iterator

from minding.engine.buffers.limiters import least_error
from minding.engine.chain.context import UNITS
from minding.engine.config.compiler import RUN_SCHEMA, setting_paths
from minding.engine.config.config import Config, EnvSection, run_length, updates_per_step
from minding.engine.config.named import is_named
from minding.engine.config.options import Option, setting_at, short
from minding.engine.config.section import check_section
from minding.engine.data.episode import RECORDED
from minding.engine.data.rollout import uneven
from minding.engine.errors import MOST_NAMED, ConfigError
from minding.engine.lanes.options import LaneOptions
from minding.policies import get_algorithm
from minding.policies.rewards import NOVELTY

_OF_CHAINS = {
    **dict.fromkeys(("league.opponents", "league.score", "league.size"), ("league",)),
    **dict.fromkeys(("policy.eval.fqe", "policy.eval.fqe_steps"), ("offline",)),
    **dict.fromkeys(("policy.other.holdout", "policy.other.data_memory"), ("offline",)),
    "policy.other.data": ("offline", "prior_data", "sqil", "recorded_reward"),
    "policy.other.data_share": ("prior_data", "sqil"),
    "policy.other.hindsight.k": ("hindsight",),
    **{f"policy.other.{name}.weight": ("on_policy", "off_policy", "sequence_replay") for name in NOVELTY},
}
"""Settings with an effect in some chains only, and these chains."""
MOST_ROWS = 100_000_000
"""Maximum number of rows in all gradient steps of an iteration: their indices are sampled first and take 0.4 GB."""
SHORT_ROLLOUT = 10_000
"""Steps of a rollout that may be longer than the run, as in a short trial of settings."""


def check_settings(cfg: Config) -> None:
    """Refuses settings whose run could not start, or would end before some of them take effect."""
    _check_single_instance(cfg)
    _check_shards(cfg)
    _check_rollout(cfg)
    _check_warmup(cfg)
    _check_updates(cfg)
    _check_ratio(cfg)
    _check_random_steps(cfg)
    _check_stop_value(cfg)
    check_section(get_algorithm(cfg.policy.type).settings, cfg.policy, cfg)
    _check_effect(cfg)
    _check_table(cfg)


def largest_sizes(cfg: Config) -> str:
    """The sizes among the settings that are furthest above their defaults, with both values; empty if none is above."""
    schema = {**RUN_SCHEMA, "env": EnvSection.options(), "policy": get_algorithm(cfg.policy.type).config_schema()}
    found = []
    for path in setting_paths(schema):
        option, value = setting_at(schema, path), setting_at(cfg, path)
        if isinstance(option, Option) and option.is_size and value and option.default:
            given, usual = (max(each) if isinstance(each, list) else each for each in (value, option.default))
            found.append((given / usual, f"{path}={value} (default {option.default})"))
    return ", ".join(text for share, text in sorted(found, reverse=True)[:MOST_NAMED] if share > 1)


def _check_single_instance(cfg: Config) -> None:
    """If only one environment can exist, collection and evaluation have to share it in one process."""
    if not cfg.env.single_instance:
        return
    for name in ("collector_env_num", "evaluator_env_num"):
        count = int(setting_at(cfg.env, name))
        if count > 1:
            raise ConfigError(
                f"env.single_instance=true with env.{name}={count}: expected one environment at a time; set "
                "env.collector_env_num=1 and env.evaluator_env_num=1"
            )
    if cfg.lanes.async_mode:
        raise ConfigError(
            "env.single_instance=true with lanes.async_mode=true: collecting and evaluation take turns on the "
            "environment in one process; run without --async"
        )


def _check_shards(cfg: Config) -> None:
    """The shards of an iteration have equal numbers of environments."""
    if not cfg.lanes.async_mode:
        return
    options, envs = LaneOptions.of(cfg.lanes), cfg.env.collector_env_num
    if envs % options.shards:
        fitting = -(-envs // options.shards) * options.shards
        raise ConfigError(
            f"lanes.shards={options.shards} does not divide env.collector_env_num={envs}, and each shard has as many "
            f"environments: use env.collector_env_num={fitting}"
        )


def _check_rollout(cfg: Config) -> None:
    """A rollout is a whole number of steps in every environment, splits into equal minibatches and fits the run."""
    if "n_sample" not in cfg.policy.collect:
        return
    n_sample = cfg.policy.collect.n_sample
    parts = {"env.collector_env_num": cfg.env.collector_env_num}
    if "n_minibatch" in cfg.policy.learn:
        parts["policy.learn.n_minibatch"] = cfg.policy.learn.n_minibatch
    for name in parts:
        for problem in uneven(n_sample, name, parts):
            raise ConfigError(problem)
    unit, steps = run_length(cfg)
    if unit == "env_step" and n_sample > max(steps, SHORT_ROLLOUT):
        raise ConfigError(
            f"policy.collect.n_sample={n_sample} exceeds run.max_env_step={steps}: the first rollout would be longer "
            "than the run; lower the first or raise the second"
        )


def _check_warmup(cfg: Config) -> None:
    """Learning from replay starts within the run."""
    if "warmup" not in cfg.policy.learn or run_length(cfg).unit == "train_iter":
        return
    warmup, size = cfg.policy.learn.warmup, cfg.policy.other.buffer_size
    for name, steps in _limits(cfg).items():
        if warmup > steps:
            raise ConfigError(
                f"policy.learn.warmup={warmup} exceeds {name}, {steps} environment steps: the run would end before any "
                "learning; lower the first or raise the second"
            )
    if warmup > size:
        raise ConfigError(
            f"policy.learn.warmup={warmup} exceeds policy.other.buffer_size={size}: learning would never start; lower "
            "the first or raise the second"
        )
    collected = cfg.policy.collect.n_sample
    if collected > size:
        raise ConfigError(
            f"policy.collect.n_sample={collected} exceeds policy.other.buffer_size={size}: the steps of one "
            "iteration do not fit; lower the first or raise the second"
        )
    if cfg.policy.learn.batch_size > size:
        raise ConfigError(
            f"policy.learn.batch_size={cfg.policy.learn.batch_size} exceeds policy.other.buffer_size={size}: every "
            "minibatch would hold rows twice; lower the first or raise the second"
        )


def _check_updates(cfg: Config) -> None:
    """The indices of the rows of an iteration fit into memory."""
    updates = cfg.policy.learn.update_per_collect
    batch_size = cfg.policy.learn.batch_size
    if updates * batch_size > MOST_ROWS:
        raise ConfigError(
            f"policy.learn.update_per_collect={updates} with policy.learn.batch_size={batch_size}: an iteration would "
            f"learn from {updates * batch_size:,} rows, more than {MOST_ROWS:,}; lower one of the two"
        )


def _check_ratio(cfg: Config) -> None:
    """The ratio of gradient steps to environment steps leads to at least one learn call within the run."""
    if "warmup" not in cfg.policy.learn or run_length(cfg).unit == "train_iter":
        return
    (ratio, key), learn = updates_per_step(cfg), cfg.policy.learn
    for name, steps in _limits(cfg).items():
        due = 0.0 if ratio is None else ratio * (steps - learn.warmup)
        if ratio is not None and due < learn.update_per_collect:
            raise ConfigError(
                f"{key} is never reached: the {steps - learn.warmup} environment steps from policy.learn.warmup="
                f"{learn.warmup} to {name} bring {due:.3g} gradient steps, and a call makes policy.learn."
                f"update_per_collect={learn.update_per_collect}; raise the ratio or lower one of the others"
            )


def _check_random_steps(cfg: Config) -> None:
    """The random steps at the start end before the run."""
    random_steps = cfg.policy.collect.random_steps
    for name, steps in _limits(cfg).items():
        if random_steps >= steps:
            raise ConfigError(
                f"policy.collect.random_steps={random_steps} takes up all of {name}, {steps} environment steps: the "
                "policy would never act; lower the first or raise the second"
            )


def _check_stop_value(cfg: Config) -> None:
    """The run has evaluations that can reach `run.stop_value`."""
    if cfg.run.stop_value is None:
        return
    if cfg.env.env_id == RECORDED:
        raise ConfigError(
            f"run.stop_value={cfg.run.stop_value} can never be reached: without an environment (env.env_id={RECORDED}) "
            "nothing is evaluated in one; leave it out"
        )
    freq = cfg.policy.eval.freq
    for name, steps in _limits(cfg).items():
        if freq > steps:
            raise ConfigError(
                f"run.stop_value={cfg.run.stop_value} can never be reached: policy.eval.freq={freq} exceeds {name}, "
                f"{steps} {UNITS[run_length(cfg).unit]}; lower policy.eval.freq"
            )


def _check_effect(cfg: Config) -> None:
    """Settings that have an effect only together with another one are changed only where it is given."""
    schema = {**RUN_SCHEMA, "policy": get_algorithm(cfg.policy.type).config_schema()}
    for key, needed in _idle(cfg):
        option, value = setting_at(schema, key), setting_at(cfg, key)
        if isinstance(option, Option) and value != option.default:
            raise ConfigError(f"{key}={short(value)} has no effect without {needed}: give both, or leave it out")


def _idle(cfg: Config) -> Iterator[tuple[str, str]]:
    """Keys without an effect in this configuration, each with what would give it one; not every algorithm has them."""
    if cfg.pool.freq is None:
        yield from ((f"pool.{name}", "pool.freq") for name in ("unit", "last", "every"))
    if not is_named(cfg.chain):
        for key, chains in _OF_CHAINS.items():
            if cfg.chain not in chains:
                yield key, f"chain={' or '.join(chains)}"
    other = cfg.policy.other
    if "table" not in other:
        return
    if other.replay != "table":
        yield from ((f"policy.other.table.{name}", "policy.other.replay=table") for name in other.table)
    elif other.table.limiter != "ratio":
        for name in ("samples_per_insert", "limiter_error"):
            yield f"policy.other.table.{name}", "policy.other.table.limiter=ratio"


def _check_table(cfg: Config) -> None:
    """A call of the learner can get its samples from a replay table."""
    if cfg.policy.other.get("replay") != "table":
        return
    settings, size = cfg.policy.other.table, cfg.policy.other.buffer_size
    if settings.limiter != "none" and settings.limiter_rows > size:
        raise ConfigError(
            f"policy.other.table.limiter_rows={settings.limiter_rows} exceeds policy.other.buffer_size={size}: "
            "learning would never start; lower the first or raise the second"
        )
    least = least_error(settings.samples_per_insert)
    if settings.limiter == "ratio" and settings.limiter_error < least:
        raise ConfigError(
            f"policy.other.table.limiter_error={settings.limiter_error:g}: expected at least {least:g}, the larger of "
            "1 and policy.other.table.samples_per_insert: below that, neither inserts nor samples may be allowed"
        )
    _check_times(cfg)


def _check_times(cfg: Config) -> None:
    """Rows that are removed after a number of samples last for a call of the learner."""
    times, size = cfg.policy.other.table.max_times_sampled, cfg.policy.other.buffer_size
    samples = cfg.policy.learn.update_per_collect * cfg.policy.learn.batch_size
    for name, steps in {"policy.other.buffer_size": size, **_limits(cfg)}.items():
        if times > 0 and min(steps, size) * times < samples:
            raise ConfigError(
                f"policy.other.table.max_times_sampled={times} with {name}, {steps} transitions: they last for "
                f"{min(steps, size) * times} samples, and each call of the learner draws {samples} "
                "(policy.learn.update_per_collect x policy.learn.batch_size), so that it would never learn; draw "
                "fewer, or raise one of the others"
            )


def _limits(cfg: Config) -> dict[str, int]:
    """The limits of the run's clock, by the setting that sets them."""
    unit, steps = run_length(cfg)
    limits = {f"run.max_{unit}": steps}
    if cfg.run.max_step is not None and "n_sample" in cfg.policy.collect:
        limits["run.max_step x policy.collect.n_sample"] = cfg.run.max_step * cfg.policy.collect.n_sample
    return limits
