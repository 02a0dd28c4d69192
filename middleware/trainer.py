"""On-policy learning from the rows of this iteration."""

from collections.abc import Mapping, Sequence

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.agent_axis import ALIVE, num_agents
from minding.engine.data.batch import Field, IndexedBatch, RowLayout, minibatches
from minding.engine.data.rollout import uneven
from minding.engine.errors import ShapeError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, LearnMode, StateDict
from minding.middleware.ctx_fields import train_data_in, train_rows_in
from minding.middleware.learning import Schedule, learn_from

_learns = declare(
    role="learn",
    reads=("train_data", "clock", "train_iter"),
    optional=("policy_lag", "train_output"),
    writes=("train_output", "train_iter"),
)


@_learns
class trainer:
    """Makes one gradient step on all valid rows of train_data, or one on each of its minibatches, in one compiled call.

    From flat arrays, such as a rollout, it takes the valid rows, and makes no step if no row is valid. The places of
    rows that are not valid are padded with other rows of weight 0 (`IndexedBatch.valid`). The minibatches of
    `offline_data_fetcher` are an `IndexedBatch`, which is used unchanged.

    Reads: train_data (flat arrays or an `IndexedBatch`), clock, train_iter; policy_lag if present.
    Writes: train_output, train_iter.
    Config: policy.learn.anneal_steps, run.max_env_step or run.max_train_iter (schedules).
    """

    def __init__(self, cfg: Config, policy: LearnMode) -> None:
        self._policy, self._cfg = policy, cfg
        self._store = RolloutStore(policy.fields, "trainer, train_data", rows_of(cfg, policy))
        self._schedule = Schedule(cfg)

    def requirements(self) -> Sequence[str]:
        return lone_rows(self._cfg, 1)

    def __call__(self, ctx: LearningContext) -> None:
        data = train_data_in(ctx, "trainer")
        if isinstance(data, IndexedBatch):
            learn_from(ctx, self._policy, data, self._schedule)
            return
        tables, valid = self._store.put(data), np.flatnonzero(data["valid"])
        if not len(valid):
            return
        if learns_from_sequences(self._policy):
            index, counts = sequences(data)[None].astype(np.int32), None
        else:
            index, counts = minibatches([valid], 1, len(data["valid"]))
        learn_from(ctx, self._policy, IndexedBatch(tables.layout, tables, index, valid=counts), self._schedule)


@_learns
class multistep_trainer:
    """Makes several passes over train_data in shuffled minibatches, all in one compiled call.

    Every pass is reshuffled and takes each valid row once: the rows without those of resets and absent agents are split
    evenly over the minibatches. All minibatches have the same size: shorter ones are padded with rows of weight 0
    (`IndexedBatch.valid`). With fewer valid rows than minibatches each row is a minibatch; without valid rows there is
    no gradient step.

    A policy with memory gets whole sequences: a minibatch has the rows of some of the environments, at least of one, in
    the order of time, index ``(K, T, B)``, including reset rows, which the policy leaves out itself.

    Reads: train_data (flat arrays), clock, train_iter; policy_lag if present.
    Writes: train_output (mean of each metric over the gradient steps), train_iter.
    Config: policy.learn.n_epoch, policy.learn.n_minibatch, policy.learn.anneal_steps, run.max_env_step or
      run.max_train_iter (schedules), seed.
    """

    def __init__(self, cfg: Config, policy: LearnMode) -> None:
        learn = cfg.policy.learn
        self._policy, self._cfg = policy, cfg
        self._store = RolloutStore(policy.fields, "multistep_trainer, train_data", rows_of(cfg, policy))
        self._passes, self._minibatches = learn.n_epoch, learn.n_minibatch
        self._n_sample = cfg.policy.collect.n_sample
        self._sequences = learns_from_sequences(policy)
        self._envs = cfg.env.collector_env_num
        if self._sequences:
            self._minibatches = min(self._minibatches, self._envs)
        self._schedule = Schedule(cfg)
        self._rng = SeedStreams(cfg.seed).generator("multistep_trainer")

    def requirements(self) -> Sequence[str]:
        if self._sequences and self._envs % self._minibatches:
            return [uneven_sequences(self._minibatches, self._envs, "env.collector_env_num=")]
        parts = {"env.collector_env_num": self._envs, "policy.learn.n_minibatch": self._minibatches}
        problems = uneven(self._n_sample, "policy.learn.n_minibatch", parts)
        return problems or lone_rows(self._cfg, self._minibatches)

    def __call__(self, ctx: LearningContext) -> None:
        data = train_rows_in(ctx, "multistep_trainer")
        tables = self._store.put(data)
        valid, rows = np.flatnonzero(data["valid"]), len(data["valid"])
        if not len(valid):
            return
        if self._sequences:
            index, counts = self._minibatches_of(sequences(data)).astype(np.int32), None
        else:
            passes = [self._rng.permutation(valid) for _ in range(self._passes)]
            index, counts = minibatches(passes, self._minibatches, rows)
        learn_from(ctx, self._policy, IndexedBatch(tables.layout, tables, index, valid=counts), self._schedule)

    def _minibatches_of(self, rows: Array) -> Array:
        """Sequences ``(T, N)`` in a new order for each pass: ``(K, T, B)``."""
        envs = rows.shape[1]
        if envs % self._minibatches:
            raise ShapeError(f"multistep_trainer: {uneven_sequences(self._minibatches, envs, 'ctx.train_data holds ')}")
        return shuffled_sequences(rows, self._passes, self._minibatches, self._rng)

    def state_dict(self) -> StateDict:
        return {"rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self._rng, state["rng"])


class RolloutStore:
    """Device tables for one rollout of `rows` rows, refilled in each iteration."""

    def __init__(self, fields: Mapping[str, Field], where: str, rows: int = 0) -> None:
        self._layout = RowLayout(fields)
        self._where = where
        self._tables = DeviceTables(self._layout, rows) if rows else None

    def put(self, data: Mapping[str, Array]) -> DeviceTables:
        """Writes all rows of the data; see `DeviceTables.refill`, also for its errors."""
        rows = len(next(iter(data.values())))
        if self._tables is None or self._tables.rows != rows:
            self._tables = DeviceTables(self._layout, rows)
        self._tables.refill(data, self._where)
        return self._tables


def rows_of(cfg: Config, policy: LearnMode) -> int:
    """The rows of a rollout: one per step or, with several agents, one per agent unless a row has all of them."""
    each = 1 if f"obs.{ALIVE}" in policy.fields else num_agents(cfg.env.spec)
    return cfg.policy.collect.n_sample * (each or 1)


def learns_from_sequences(policy: LearnMode) -> bool:
    """Whether a policy has a memory, and so learns from the rows of an environment in the order of time."""
    return "memory" in policy.fields


def sequences(data: Mapping[str, Array]) -> Array:
    """The rows of each sequence of train_data in the order of time, ``(T, N)``."""
    if "sequence" not in data:
        raise ShapeError(
            "ctx.train_data has no field 'sequence', without which a policy with memory cannot learn; let "
            "gae_estimator write the data, or add the number of each row's environment"
        )
    numbers, lengths = np.unique(data["sequence"], return_counts=True)
    if (lengths != lengths[0]).any():
        raise ShapeError(
            f"ctx.train_data: sequences must have one length, got {lengths.min()} to {lengths.max()} rows; mark rows "
            "that are not to be learned from in 'valid' instead of removing them"
        )
    return np.argsort(data["sequence"], kind="stable").reshape(len(numbers), -1).T


def shuffled_sequences(rows: Array, passes: int, minibatches: int, rng: np.random.Generator) -> Array:
    """Sequences ``(T, N)`` in a new order for each pass: ``(K, T, B)``, K = passes * minibatches."""
    steps, envs = rows.shape
    order = np.concatenate([rng.permutation(envs) for _ in range(passes)])
    return rows[:, order].reshape(steps, passes * minibatches, -1).transpose(1, 0, 2)


def uneven_sequences(minibatches: int, envs: int, where: str) -> str:
    """The message about a number of minibatches that does not divide the number of environments."""
    return (
        f"policy.learn.n_minibatch={minibatches} does not divide the environments ({where}{envs}), whose sequences "
        "are learned from as wholes: change one of them"
    )


def lone_rows(cfg: Config, minibatches: int) -> list[str]:
    """Reports minibatches of a single row from which their own mean would be subtracted; empty if they are
    larger."""
    learn = cfg.policy.learn
    if learn.get("normalize_advantage"):
        setting, instead = "policy.learn.normalize_advantage=true", "policy.learn.normalize_advantage=false"
    elif learn.get("baseline") in ("mean", "standardized"):
        setting, instead = f"policy.learn.baseline={learn.baseline}", "policy.learn.baseline=none"
    else:
        return []
    n_sample = cfg.policy.collect.n_sample
    if n_sample * (num_agents(cfg.env.spec) or 1) != minibatches:
        return []
    steps = "1 minibatch" if minibatches == 1 else f"{minibatches} minibatches"
    return [
        f"policy.collect.n_sample={n_sample} in {steps} leaves one row in each, but {setting} subtracts the mean of a "
        f"minibatch, and nothing is left: use policy.collect.n_sample={2 * n_sample} or more, or {instead}"
    ]
