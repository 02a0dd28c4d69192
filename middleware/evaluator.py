"""Honest evaluation: other environments, no exploration, whole episodes."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.chain.task import Task
from minding.engine.chain.task import task as global_task
from minding.engine.config.config import Config
from minding.engine.errors import EnvError
from minding.engine.types import Array, EnvManager, EnvStep, EpisodeEnd, EvalMode, TakesReward
from minding.middleware.collector import StepsEnvs

_log = logging.getLogger("minding.envs")
_SILENT_SECONDS = 10.0
"""Seconds after which an evaluation says that no episode has ended."""


evaluates = declare(
    role="evaluate",
    reads=("clock", "train_iter", "last_eval_iter", "last_eval_clock"),
    writes=("eval_value", "eval_output", "last_eval_iter", "last_eval_value", "last_eval_clock"),
)
"""The declaration of an `Evaluator`."""


class Evaluator:
    """Evaluates whenever the clock has passed a multiple of ``policy.eval.freq``, if the policy learned since the last
    evaluation.

    A signal that ends the run aborts the evaluation, which is not counted and is due again after a resume.
    """

    def __init__(self, cfg: Config, task: Task[Any] | None) -> None:
        self._task = global_task if task is None else task
        self._freq = cfg.policy.eval.freq
        self._aborted = False

    def play(self) -> list[EpisodeEnd]:
        """Plays the episodes of one evaluation; returns an empty list if a signal aborted it."""
        raise NotImplementedError

    def due(self, ctx: LearningContext) -> bool:
        """Whether an evaluation is due by the clock and the policy has learned since the last one."""
        # By multiples, so that runs with rollouts of different lengths are evaluated at the same places.
        passed = ctx.clock // self._freq > max(ctx.last_eval_clock, 0) // self._freq
        return passed and ctx.train_iter != ctx.last_eval_iter

    def __call__(self, ctx: LearningContext) -> None:
        """Evaluates if an evaluation is due."""
        if not self.due(ctx):
            return
        episodes = self.play()
        if not episodes:
            self._aborted = True
            return
        ctx.eval_output, ctx.eval_value = episodes, float(np.mean([end.episode_return for end in episodes]))
        ctx.last_eval_iter, ctx.last_eval_value = ctx.train_iter, ctx.eval_value
        ctx.last_eval_clock = ctx.clock

    def interrupted(self) -> bool:
        """Whether a signal ends the run."""
        return self._task.interrupted_by is not None

    @property
    def resume_guarantee(self) -> str:
        """Not exact once an evaluation was aborted: it then runs an iteration later and measures another policy."""
        return "mid-iteration" if self._aborted else "exact"


@evaluates
class interaction_evaluator(Evaluator, StepsEnvs):
    """Runs `n_episode` episodes in eval mode after each multiple of `freq` on the clock, if the policy learned since.

    The clock counts environment steps, or gradient steps in offline chains.

    Each environment plays its own share of the episodes: taking the first to finish would favor short ones. A signal
    that ends the run aborts the evaluation, which is not counted and is due again after a resume.

    Reads: clock, train_iter, last_eval_iter, last_eval_clock.
    Writes: eval_value (mean return), eval_output (one `EpisodeEnd` per episode), last_eval_iter, last_eval_value,
      last_eval_clock.
    Config: policy.eval.freq, policy.eval.n_episode, policy.eval.max_episode_steps.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.eval_mode``.
      env: the evaluator's own environments.
      task: the task whose signals are obeyed; the global one by default.
    """

    def __init__(self, cfg: Config, policy: EvalMode, env: EnvManager, *, task: Task[Any] | None = None) -> None:
        super().__init__(cfg, task)
        self._policy = policy
        self._env = env
        self._n_episode, self._max_steps = cfg.policy.eval.n_episode, cfg.policy.eval.max_episode_steps

    def requirements(self) -> Sequence[str]:
        if hasattr(self._policy, "record_fields"):
            return [f"expected policy.eval_mode, got a {type(self._policy).__name__}, which explores"]
        return []

    def clashes(self, chain: Sequence[object]) -> Sequence[str]:
        """Reports if another middleware steps the same environments, whose episodes an evaluation would end."""
        if any(other is not self and getattr(other, "_env", None) is self._env for other in chain):
            return [
                "it plays in the environments of another middleware, and would end their episodes: give it its own, "
                "make_env_manager(cfg.env, cfg.env.evaluator_env_num, seed, training=False)"
            ]
        return []

    def play(self) -> list[EpisodeEnd]:
        """Plays the episodes of one evaluation; a signal leaves the environments as they were before it."""
        before = self._env.state_dict()
        episodes = play_episodes(
            self._policy, self._env, self._n_episode, max_steps=self._max_steps, stop=self.interrupted
        )
        if len(episodes) < self._n_episode:
            self._env.load_state_dict(before)
            return []
        return episodes


def play_episodes(
    policy: EvalMode, env: EnvManager, n_episode: int, *, max_steps: int, stop: Callable[[], bool] = lambda: False
) -> list[EpisodeEnd]:
    """Plays whole episodes from fresh resets, an even share in each environment.

    An episode that does not end within `max_steps` is cut off: its return so far counts, and a warning names it. Its
    environment plays its remaining episodes after another reset of all environments.

    Args:
      policy: a policy that acts on ``(N, ...)`` observations.
    """
    left = np.full(env.num_envs, n_episode // env.num_envs)
    left[: n_episode % env.num_envs] += 1
    episodes: list[EpisodeEnd] = []
    cut: list[EpisodeEnd] = []
    deadline = time.monotonic() + _SILENT_SECONDS
    while left.any() and not stop():
        played = _Round(left, max_steps)
        obs = env.reset()
        policy.reset()
        while played.playing.any() and not stop():
            step = env.play(policy.forward(obs))
            played.add(step)
            if isinstance(policy, TakesReward):
                policy.take_reward(step.team_reward)
            begun = step.begun()
            if begun is not None:
                policy.reset(begun)
            obs = step.obs
            if not (played.episodes or episodes) and time.monotonic() >= deadline:
                _log.warning(
                    "evaluation: no episode of %d has ended in %d steps; each is cut off after %d "
                    "(policy.eval.max_episode_steps): set env.max_episode_steps if episodes never end",
                    n_episode, played.steps, max_steps,
                )  # fmt: skip
                deadline = math.inf
        episodes += played.episodes
        cut += played.cut
    env.abandon()
    if cut:
        _log.warning(
            "%d of %d evaluation episodes were cut off after %d steps (policy.eval.max_episode_steps), the first in "
            "environment %d; their returns so far count: set env.max_episode_steps if episodes never end",
            len(cut), len(episodes), max_steps, cut[0].env_id,
        )  # fmt: skip
    return episodes


def info_means(episodes: Sequence[EpisodeEnd]) -> dict[str, float]:
    """Means of the declared info (``env.info_keys``) over the last steps of episodes, such as a success rate; each mean
    is over the episodes that report the key."""
    names = dict.fromkeys(name for end in episodes for name in end.info)
    return {name: float(np.mean([end.info[name] for end in episodes if name in end.info])) for name in names}


MOST_LOST = 20
"""Episodes in a row that an environment may lose to faults: if no episode ends, there is nothing to measure."""


class _Round:
    """The episodes between two resets of all environments."""

    def __init__(self, left: Array, max_steps: int) -> None:
        self.playing = left > 0
        self.episodes: list[EpisodeEnd] = []
        self.cut: list[EpisodeEnd] = []
        self._left = left
        self._max_steps = max_steps
        self.steps = 0
        self._lost = np.zeros(len(left), np.int64)
        self._returns = np.zeros(len(left))
        self._lengths = np.zeros(len(left), np.int64)

    def add(self, step: EnvStep) -> None:
        """Counts one step of all environments."""
        self._returns += step.team_reward
        self._lengths += 1
        self.steps += 1
        for end in step.episodes:
            self._returns[end.env_id] = self._lengths[end.env_id] = self._lost[end.env_id] = 0
            if self.playing[end.env_id]:
                self._count(end)
        if step.valid is not None:
            self._returns *= step.valid
            self._lengths *= step.valid
            self._count_lost(~step.valid)
        # No episode is longer than the round.
        if self.steps >= self._max_steps:
            for n in np.flatnonzero(self.playing & (self._lengths >= self._max_steps)).tolist():
                info = {name: float(values[n]) for name, values in (step.info or {}).items() if values.ndim == 1}
                self.cut.append(EpisodeEnd(n, float(self._returns[n]), int(self._lengths[n]), info))
                self._count(self.cut[-1])
                self.playing[n] = False

    def _count_lost(self, lost: Array) -> None:
        self._lost += lost & self.playing
        if self._lost.max() >= MOST_LOST:
            raise EnvError(
                f"evaluation: environment {int(self._lost.argmax())} has lost {MOST_LOST} episodes in a row to faults, "
                "and none ended (env.on_error=restart begins another one each time): correct the environment, or set "
                "env.on_error=raise to see the fault"
            )

    def _count(self, end: EpisodeEnd) -> None:
        self.episodes.append(end)
        self._left[end.env_id] -= 1
        self.playing[end.env_id] = self._left[end.env_id] > 0
