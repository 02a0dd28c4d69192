"""On-policy learning from whole trajectories in their order."""

from collections.abc import Sequence

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.batch import IndexedBatch
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.errors import ShapeError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, LearnMode, StateDict
from minding.middleware.ctx_fields import rollout_in
from minding.middleware.learning import Schedule, learn_from
from minding.middleware.trainer import RolloutStore, rows_of, shuffled_sequences, uneven_sequences


@declare(
    role="learn",
    reads=("trajectories", "clock", "train_iter"),
    optional=("policy_lag", "train_output"),
    writes=("train_output", "train_iter"),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed",),
)
class trajectory_trainer:
    """Takes gradient steps on whole trajectories, for policies that compute their own targets (IMPALA).

    The policy gets rows in the order of time, index ``(K, T, N)``. Each row has its true successor, `cut`, true where
    the next row does not continue the trajectory, and `valid`, false for rows in which an environment was reset. With
    several minibatches each gradient step uses the rows of some of the environments, in a new order for each pass.

    Reads: trajectories, clock, train_iter; policy_lag if present.
    Writes: train_output (mean of each metric over the gradient steps), train_iter.
    Config: policy.learn.n_epoch (passes over each rollout), policy.learn.n_minibatch where the algorithm has it,
      policy.learn.anneal_steps, run.max_env_step (schedules), seed.
    """

    # Policies that compute their own targets correct for the age of the data.
    staleness = 8

    def __init__(self, cfg: Config, policy: LearnMode) -> None:
        self._policy = policy
        self._store = RolloutStore(policy.fields, "trajectory_trainer, trajectories", rows_of(cfg, policy))
        self._passes, self._minibatches = cfg.policy.learn.n_epoch, cfg.policy.learn.n_minibatch
        self._envs = cfg.env.collector_env_num
        self._schedule = Schedule(cfg)
        self._rng = SeedStreams(cfg.seed).generator("trajectory_trainer")

    def requirements(self) -> Sequence[str]:
        if "cut" not in self._policy.fields:
            return ["the policy does not learn from trajectories: use gae_estimator and trainer or multistep_trainer"]
        if self._envs % self._minibatches:
            return [uneven_sequences(self._minibatches, self._envs, "env.collector_env_num=")]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "trajectory_trainer")
        tables = self._store.put(trajectory_rows(rollout))
        if rollout.valid is not None and not rollout.valid.any():
            return
        steps, envs = rollout.shape
        rows = np.arange(steps * envs, dtype=np.int32).reshape(steps, envs)
        if envs % self._minibatches:
            where = uneven_sequences(self._minibatches, envs, "ctx.trajectories holds ")
            raise ShapeError(f"trajectory_trainer: {where}")
        if self._minibatches == 1:
            index = np.repeat(rows[None], self._passes, axis=0)
        else:
            index = shuffled_sequences(rows, self._passes, self._minibatches, self._rng)
        learn_from(ctx, self._policy, IndexedBatch(tables.layout, tables, index), self._schedule)

    def state_dict(self) -> StateDict:
        return {"rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self._rng, state["rng"])


def trajectory_rows(rollout: Rollout) -> dict[str, Array]:
    """All steps of a rollout as flat arrays ``(T * N, ...)``, ordered by time, then environment."""
    columns: dict[str, Array] = {
        **dict(named_leaves("obs", rollout.obs)),
        **dict(named_leaves("next_obs", rollout.next_obs())),
        "action": rollout.action,
        "reward": rollout.reward,
        "terminated": rollout.terminated,
        "cut": rollout.cut(),
        "valid": np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid,
        **rollout.record,
    }
    rows = rollout.shape[0] * rollout.shape[1]
    return {name: array.reshape(rows, *array.shape[2:]) for name, array in columns.items()}
