"""A trial of one environment: steps with random actions, and observations about them; part of `envs.check`."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import EnvError
from minding.envs.guards.answers import as_flag, reset_answer, step_answer
from minding.envs.guards.values import ValueCheck, step_reward
from minding.envs.guards.watchdog import Activity, Watch
from minding.envs.normalize import ScaleMeter
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.dtypes import as_declared, other_dtypes
from minding.envs.spaces.info import sample_action
from minding.envs.spaces.layout import ObsLayout

SEED = 12345


@dataclasses.dataclass
class Trial:
    """The record of a random policy's trial in one environment."""

    rewards: list[Any] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    terminated: int = 0
    truncated: int = 0
    outside: int = 0
    place: str = "reset"
    aliased: bool = False
    rounded: list[str] = dataclasses.field(default_factory=list)
    other_dtypes: set[str] = dataclasses.field(default_factory=set)
    legal: list[float] = dataclasses.field(default_factory=list)
    """Share of legal actions in each step, if there is a mask."""
    scales: ScaleMeter | None = None
    """The scales of rewards and observations, after the first step."""
    seconds: float = 0.0
    """Duration of the trial in seconds."""


def roll_out(env: AnyEnv, steps: int, settings: Mapping[str, Any], found: Trial, seconds: float = math.inf) -> None:
    """Steps an environment at least once, up to `steps` times or for `seconds`, and records the results in `found`."""
    start = time.monotonic()
    activity = Activity()
    watch = Watch(activity, lambda: "the environment", settings["step_timeout"])
    layout = ObsLayout(env.observation_space, env.action_space)
    found.scales = ScaleMeter(layout, 1, settings)
    row = layout.allocate(1)
    values = ValueCheck(layout)
    env.action_space.seed(SEED)
    rng, none = np.random.default_rng(SEED), np.zeros(layout.reward_shape)

    def look(obs: Any, reward: Any = none, over: bool = False) -> None:
        layout.write(row, 0, obs)
        if bad := values.bad_rows(row, np.array([reward]), np.array([over])):
            raise EnvError(bad[0][1])
        found.legal += [float(mask.mean()) for leaf, mask in zip(layout.leaves, row) if leaf.choices and not over]
        found.rounded += [what for _, what in values.rounded(row)]
        found.outside += not env.observation_space.contains(as_declared(env.observation_space, obs))
        found.other_dtypes |= other_dtypes(layout, obs)

    with activity.during("reset"):
        obs, _ = reset_answer(env.reset(seed=SEED))
    look(obs)
    length = 0
    for step in range(1, steps + 1):
        found.place = f"step {step}"
        before = _snapshot(obs)
        with activity.during("step"):
            answer = step_answer(env.step(sample_action(env, obs, {}, rng)))
        next_obs, reward, terminated, truncated, _ = answer
        terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
        reward = step_reward(reward, layout.reward_shape)
        look(next_obs, reward, terminated)
        found.scales.add(layout.unflatten(row), np.array([reward]), np.array([terminated or truncated]))
        found.aliased |= not _equal(before, _snapshot(obs))
        found.rewards.append(reward)
        length += 1
        obs = next_obs
        if terminated or truncated:
            found.terminated += terminated
            found.truncated += truncated
            found.lengths.append(length)
            length = 0
            found.place = f"reset after step {step}"
            with activity.during("reset"):
                obs, _ = reset_answer(env.reset())
            look(obs)
        found.seconds = time.monotonic() - start
        if found.seconds > seconds:
            break
    watch.close()


def _snapshot(obs: Any) -> Any:
    if isinstance(obs, Mapping):
        return {key: _snapshot(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return [_snapshot(value) for value in obs]
    return np.array(obs)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return all(_equal(a, b) for a, b in zip(left, right))
    return np.array_equal(left, right)
