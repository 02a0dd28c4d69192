"""Compares a world model's predictions with real episodes, under the actions that were taken there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.configs import compile_run
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.dataset import Dataset
from minding.engine.data.description import describe
from minding.engine.errors import ConfigError
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array
from minding.envs import make_evaluator_env
from minding.envs.config import check_playable
from minding.training.loading import load_policy
from minding.training.recording import play_recorded
from minding.training.saved_agent import is_saved

REWARD, CONTINUES = "reward", "continues"
_SHOWN = 4
"""Most components of an observation that a window shows."""
Imagine = Callable[[Array, Array], Iterable[Any]]
"""Function from states ``(B, F)`` and the actions after them ``(H, B, A)`` to a prediction after each action, with the
leaves `obs` ``(B, ...)``, `reward` ``(B,)`` and `going` ``(B,)``, the probability that the episode continues."""


@dataclasses.dataclass(frozen=True)
class Horizon:
    """Prediction errors a number of steps after the last observation that the model saw.

    Attributes:
      step: the number of steps, from 1.
      count: number of windows whose episode lasted that long.
      imagined, repeated: by name, the errors of the world model, and of a model that repeats the last observation and
        reward and always continues. The error is the root mean squared error for rewards and for each leaf of the
        observation, the share of wrong values for choices, and for `continues` the mean absolute difference between the
        probability and the outcome.
    """

    step: int
    count: int
    imagined: dict[str, float]
    repeated: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Window:
    """One window to print: a row per step and a column per quantity; imagined values are NaN within the context.

    Attributes:
      columns: names of the columns.
      steps: step of each row, 0 for the last observation that the model saw.
      real, imagined: float64 (rows, columns).
    """

    columns: tuple[str, ...]
    steps: tuple[int, ...]
    real: Array
    imagined: Array


def imaginable(run: RunDir, ckpt: Path | None) -> Config:
    """The configuration of a run whose agent has a world model; works without MindSpore.

    Raises:
      ConfigError: the agent has no world model, or only its acting network was saved.
    """
    cfg = compile_run(run.load_config())
    if "posterior" not in cfg.policy.model:
        raise ConfigError(
            f"{run.path}: policy.type={cfg.policy.type!r} has no world model; expected a run of "
            "dreamer, such as minding train pendulum_dreamer"
        )
    if ckpt is None and is_saved(run.path):
        raise ConfigError(f"{run.path} holds only the acting network, without the world model; give a run folder")
    check_playable(cfg.env)
    return cfg


def check_window(cfg: Config, context: int, horizon: int) -> None:
    """Refuses windows that no episode can hold.

    Raises:
      ConfigError: the context or the horizon is longer than the longest episode.
    """
    longest = cfg.env.spec.max_episode_steps
    for option, steps in (("--context", context), ("--horizon", horizon)):
        if longest is not None and steps > longest:
            raise ConfigError(
                f"{option} {steps} exceeds the {longest} steps of the longest episode of {cfg.env.env_id}"
            )


def inspect_imagination(
    run: RunDir,
    steps: int,
    context: int,
    horizon: int,
    *,
    seed: int | None = None,
    ckpt: Path | None = None,
) -> tuple[list[Horizon], Window, Path]:
    """Plays episodes without exploration, and predicts from each state the next steps under the actions that followed.

    Args:
      run: the run of an agent with a world model.
      steps: environment steps to play.
      context, horizon: see `compare`.
      seed: seed of the environments; the run's own by default.
      ckpt: the checkpoint folder; the newest by default.

    Returns:
      (errors of each step, one window, the checkpoint).

    Raises:
      CheckpointError, TrustError: as in `load_policy`.
      ConfigError: the agent has no world model, or every episode was shorter than the context.
    """
    imaginable(run, ckpt)
    cfg, policy, found = load_policy(run, ckpt, modes=("eval", "learn"))
    env = make_evaluator_env(Config({**cfg, "seed": cfg.seed if seed is None else seed}), "env.inspect")
    try:
        mode = policy.eval_mode
        data = play_recorded(mode.forward, mode.reset, env, steps, {"env": describe(cfg.env)})
    finally:
        env.close()
    imagine = policy.imagination()  # type: ignore[attr-defined]
    remembered = _remembered(policy, data)
    size = imagine.state_size
    errors, window = compare(data, remembered[:, :size], remembered[:, size:], imagine, context, horizon)
    return errors, window, found


def _remembered(policy: Any, data: Dataset) -> Array:
    """The agent's memory after each observation of the data, ``(S, M)``: state and action."""
    mode, actor, rows = policy.eval_mode, policy.actors["eval"], []
    begun = {0, *(data.end[:-1] + 1).tolist()}
    for k in range(len(data)):
        if k in begun:
            mode.reset()
        mode.forward(obs_trees.unflatten({path: leaf[k : k + 1] for path, leaf in data.obs.items()}))
        rows.append(actor.newest_memory.copy())
    return np.concatenate(rows)


def compare(
    data: Dataset, states: Array, actions: Array, imagine: Imagine, context: int, horizon: int
) -> tuple[list[Horizon], Window]:
    """Compares predictions from the states of real steps, under the actions that followed, with the real steps.

    Args:
      data: S real steps.
      states: the model's state after the observation of each step, float32 ``(S, F)``.
      actions: the actions in the form that the model takes, float32 ``(S, A)``.
      imagine: see `Imagine`.
      context: observations of an episode that the model has seen, at least 2; a window starts at each later state.
      horizon: number of steps to predict; fewer if the episode ends before.
    Raises:
      ConfigError: every episode is shorter than the context.
    """
    number = np.searchsorted(data.end, np.arange(len(data)))
    first, last = np.concatenate([[0], data.end[:-1] + 1])[number], data.end[number]
    starts = np.flatnonzero(np.arange(len(data)) - first >= context - 1)
    if not len(starts):
        raise ConfigError(
            f"the longest of {len(data.end)} episodes has only {int((last - first).max()) + 1} steps: lower --context "
            f"({context}), or play more with --steps"
        )
    # The window that starts with the most steps of its episode left or, among several, the first.
    shown = int(np.argmax((last - first)[starts]))
    begin, leaves = int(starts[shown]), list(data.obs)
    window = _Shown(data, begin, context, leaves)
    errors = []
    taken = np.minimum(starts[None] + np.arange(horizon)[:, None], len(data) - 1)
    for k, expected in enumerate(imagine(states[starts], actions[taken])):
        step = starts + k
        there = step <= last[starts]
        if not there.any():
            break
        real = _real(data, leaves, step[there])
        found = {**dict(zip(leaves, expected.obs)), REWARD: expected.reward, CONTINUES: expected.going}
        same = {**{path: data.obs[path][starts] for path in leaves}, REWARD: data.reward[starts - 1]}
        same[CONTINUES] = np.ones(len(starts))
        kinds = {name: found[name].dtype.kind in "biu" for name in found}
        made, kept = (
            {_name(name): _error(name, kinds[name], each[name][there], real[name]) for name in found}
            for each in (found, same)
        )
        errors.append(Horizon(k + 1, int(there.sum()), made, kept))
        if there[shown]:
            window.add(k + 1, _real(data, leaves, step[shown : shown + 1]), {n: v[shown] for n, v in found.items()})
    return errors, window.made()


def _real(data: Dataset, leaves: Sequence[str], step: Array) -> dict[str, Array]:
    """The outcome of these steps: the next observation, the reward, whether the episode continued."""
    fields = {path: f"next_obs.{path}" if path else "next_obs" for path in leaves}
    rows = data.rows(fields.values(), step)
    real = {path: rows[field] for path, field in fields.items()}
    return {**real, REWARD: data.reward[step], CONTINUES: 1.0 - data.terminated[step]}


def _name(path: str) -> str:
    return path or "observation"


def _error(name: str, chosen: bool, found: Array, real: Array) -> float:
    if chosen:
        return float((found != real).mean())
    distance = found.astype(np.float64) - real
    return float(np.abs(distance).mean() if name == CONTINUES else np.sqrt(np.square(distance).mean()))


class _Shown:
    """Gathers the rows of a `Window`: reward, whether the episode continues, the first numbers that are not pixels."""

    def __init__(self, data: Dataset, begin: int, context: int, leaves: Sequence[str]) -> None:
        self._numbers = {path: data.obs[path][0].size for path in leaves if data.obs[path].ndim <= 2}
        names = [f"{_name(path)}[{k}]" for path, size in self._numbers.items() for k in range(size)][:_SHOWN]
        self._columns = (REWARD, CONTINUES, *names)
        self._rows: list[tuple[int, Array, Array]] = []
        for k in range(1 - context, 1):
            step = begin + k
            row = {path: data.obs[path][step] for path in leaves}
            # The first observation of an episode follows no step.
            fresh = step == 0 or step - 1 in data.end
            row[REWARD] = np.float32(np.nan) if fresh else data.reward[step - 1]
            self._add(k, {**row, CONTINUES: 1.0}, None)

    def add(self, step: int, real: Any, imagined: Any) -> None:
        """Adds a step that was imagined."""
        self._add(step, {name: values[0] for name, values in real.items()}, imagined)

    def _add(self, step: int, real: Any, imagined: Any) -> None:
        none = np.full(len(self._columns), np.nan)
        self._rows.append((step, self._row(real), none if imagined is None else self._row(imagined)))

    def _row(self, values: Any) -> Array:
        numbers = [np.ravel(values[path]) for path in self._numbers]
        joined = np.concatenate([[values[REWARD], values[CONTINUES]], *numbers]).astype(np.float64)
        return joined[: len(self._columns)]

    def made(self) -> Window:
        """The window of the steps so far."""
        steps, real, imagined = zip(*self._rows, strict=True)
        return Window(self._columns, steps, np.stack(real), np.stack(imagined))
