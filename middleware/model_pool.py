"""Adds versions of the policy to the model pool of the run."""

import logging
from collections.abc import Callable
from typing import Any

from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import PoolSection
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.run.pool import ModelPool
from minding.engine.types import Policy, StateDict

_log = logging.getLogger("minding.run")
POOL_UNITS = PoolSection.options()["unit"].allowed


@declare(reads=("total_step", "train_iter"), optional=("env_step", "eval_value", "eval_params", "last_eval_clock"))
class model_pool:
    """Adds the policy to a model pool every `freq` iterations or gradient steps, from the first iteration on, and after
    each evaluation.

    Put it after the evaluator and before the collector, so that it adds the weights that were measured. A version that
    was evaluated has the evaluation mean as its score. In an asynchronous run the version has the measured weights, and
    its env_step is the clock at which they were measured. The pool is a part of checkpoints: a resumed run continues
    with the pool of its checkpoint and adds no version twice. Versions of an earlier run in that folder are set aside
    as ``left-<time>-<name>``. If a version cannot be written (full disk), this is reported, the version is left out and
    training continues.

    Reads: total_step, train_iter; env_step, eval_value, eval_params and last_eval_clock if present.

    Args:
      policy: the policy whose acting weights are added.
      pool: the pool that takes the versions.
      freq: iterations or gradient steps between two versions; of the latter at least as many.
      unit: ``'iteration'`` or ``'train_iter'``.
      score: function that returns the score of a version; evaluations then add no versions.

    Attributes:
      pool: the pool that takes the versions.
    """

    def __init__(
        self,
        policy: Policy,
        pool: ModelPool,
        freq: int,
        *,
        unit: str = "iteration",
        score: Callable[[], float] | None = None,
    ) -> None:
        if freq < 1:
            raise ConfigError(f"model_pool(freq={freq}): expected at least 1")
        if unit not in POOL_UNITS:
            raise ConfigError(f"model_pool(unit={unit!r}): expected one of {', '.join(POOL_UNITS)}")
        self.pool, self._unit = pool, unit
        self._freq, self._score = freq, score
        self._policy: Any = policy
        self._begun = False
        # Iteration of the newest version: an aborted iteration is repeated, and must not add its version twice.
        self._iteration = -1
        # Gradient steps at the newest version that was due by them.
        self._train_iter: int | None = None

    def __call__(self, ctx: LearningContext) -> None:
        self._begin()
        mean = None if self._score is not None else ctx.optional("eval_value", float)
        due = self._is_due(ctx)
        if ctx.total_step == self._iteration or not (due or mean is not None):
            return
        weights, network = self._policy.acting_arrays()
        env_step = ctx.optional("env_step", int) or 0
        if mean is not None and ctx.eval_params is not None:
            weights = {**weights, **{name: ctx.eval_params[name] for name in weights if name in ctx.eval_params}}
            env_step = ctx.last_eval_clock if ctx.unit == "env_step" else env_step
        score = mean if self._score is None else self._score()
        try:
            self.pool.add(weights, ctx.total_step, env_step, score, network=network)
        except OSError as error:
            _log.warning("no version was added to %s (%s); training continues", self.pool.folder, error)
            return
        self._iteration = ctx.total_step
        if due:
            self._train_iter = ctx.train_iter

    def _is_due(self, ctx: LearningContext) -> bool:
        if self._unit == "iteration":
            return not ctx.total_step % self._freq
        return self._train_iter is None or ctx.train_iter - self._train_iter >= self._freq

    def _begin(self) -> None:
        """Before the first version of this run, sets the versions of an earlier run aside."""
        if self._begun:
            return
        self._begun = True
        try:
            aside = self.pool.set_aside()
        except OSError as error:
            raise CheckpointError(
                f"{self.pool.folder} holds versions of an earlier run and cannot be renamed ({error.strerror}): use "
                "another folder, or resume that run"
            ) from None
        if aside is not None:
            _log.warning("%s holds versions of an earlier run: it is now %s", self.pool.folder, aside)

    def state_dict(self) -> StateDict:
        """The state of the pool, with all weights."""
        return {"iteration": self._iteration, "train_iter": self._train_iter, "pool": self.pool.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self._begun, self._iteration = True, int(state["iteration"])
        self._train_iter = None if state["train_iter"] is None else int(state["train_iter"])
        try:
            self.pool.load_state_dict(state["pool"])
        except OSError as error:
            raise CheckpointError(f"{self.pool.folder} cannot be written: {error.strerror}") from None
