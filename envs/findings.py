"""Findings about an environment's spaces and a trial of it; part of `envs.check`."""

import contextlib
import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from minding.engine.data.observation import observation_leaves
from minding.engine.errors import MindingError
from minding.envs.guards.faults import Hang, describe
from minding.envs.guards.watchdog import watched
from minding.envs.normalize import NORMALIZE_OBS, NORMALIZE_REWARD
from minding.envs.random_play import Trial
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.actions import is_bounded
from minding.envs.spaces.team_space import agents_space

_IMAGE_SIZE = 256
_MANY_VALUES = 2000
_CYCLES = 50
"""Steps per episode of PettingZoo's test."""
_INTERFACE_FIX = (
    "return what the spaces declare (shape, dtype, bounds), each time in new arrays; draw all randomness from "
    "self.np_random, and begin reset with super().reset(seed=seed)"
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of a check.

    Attributes:
      level: ok, warn or error.
      text: description of the finding.
      fix: advice; empty if nothing is wrong.
      refused: the error, if the environment could not be made, or if its spaces do not have an array form.
      tried: how many of the steps were tried, such as ``'1 of 1,000 steps'``, if the time limit ended them.
      left_out: whether the time limit left out this check.
    """

    level: str
    text: str
    fix: str = ""
    refused: MindingError | None = None
    tried: str = ""
    left_out: bool = False


def judge_bounds(env: AnyEnv) -> list[Finding]:
    team = agents_space(env.observation_space)
    space = env.action_space if team is None else team.one_action
    if not isinstance(space, gymnasium.spaces.Box) or is_bounded(space):
        return []
    finite = np.isfinite([space.low, space.high]).all()
    kind = "bounds too large to limit anything (9.0e15 or more)" if finite else "infinite bounds"
    text = f"the action space {space} has {kind}, so actions are not rescaled"
    return [Finding("warn", text, "give the Box the limits of the actuators")]


def judge_images(space: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for leaf in observation_leaves(space):
        shape = leaf.space.get("shape", ())
        sizes = [leaf.space["n"]] if "n" in leaf.space else leaf.space.get("nvec", [0])
        if max(sizes) > _MANY_VALUES:
            text = f"{f'observation {leaf.path}'.rstrip()} has {max(sizes):,} values, each an input of the network"
            findings.append(Finding("warn", text, "describe the state by a few numbers (a Box), if it has an order"))
        if len(shape) > 1 and not leaf.is_image and np.prod(shape) >= _IMAGE_SIZE:
            name = f"observation {leaf.path}".rstrip()
            text = f"{name} {tuple(shape)} {leaf.space.get('dtype')} is taken as {np.prod(shape)} numbers"
            fix = "images are uint8 (C, H, W): use env.wrappers such as channel_first; flatten any other array"
            findings.append(Finding("warn", text, fix))
    return findings


def judge_interface(env: AnyEnv, name: str, timeout: float) -> Finding:
    """The verdict of Gymnasium's `check_env` or PettingZoo's `parallel_api_test` on the environment within its
    wrappers. They know no masks: all actions have to be legal."""
    from pettingzoo import ParallelEnv

    own = getattr(env.unwrapped, "parallel", env.unwrapped)
    known = {gymnasium.Env: "Gymnasium's check_env", ParallelEnv: "PettingZoo's parallel_api_test"}
    test = next((test for base, test in known.items() if isinstance(own, base)), "")
    if not test:
        return Finding("ok", f"{type(own).__name__} has no base class whose own tests Gymnasium or PettingZoo brings")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None), watched(test, name, timeout):
            warnings.simplefilter("ignore")
            if isinstance(own, gymnasium.Env):
                check_env(own, skip_render_check=True, skip_close_check=True)
            else:
                # Its package still imports all games.
                from pettingzoo.test import parallel_api_test

                parallel_api_test(own, num_cycles=_CYCLES)
    except (Exception, SystemExit, Hang) as error:
        text = str(error) if isinstance(error, AssertionError) and str(error) else describe(error)
        return Finding("warn", f"{test}: {text}", _INTERFACE_FIX)
    return Finding("ok", f"passes {test}")


def judge_masks(rollout: Trial) -> list[Finding]:
    if not rollout.legal:
        return []
    text = (
        f"the action mask leaves {np.mean(rollout.legal):.0%} of the actions on average, and always one that is legal"
    )
    if min(rollout.legal) == 1:
        return [Finding("warn", "the action mask never forbids an action", "leave it out, or see how it is computed")]
    return [Finding("ok", text)]


def judge_ends(rollout: Trial, limit: int | None, shortened: str) -> list[Finding]:
    """A finding about the ends of episodes; `shortened` is the advice if the time was over before any episode ended."""
    steps = len(rollout.rewards)
    if not rollout.lengths:
        fix = "set env.max_episode_steps" if limit is None else f"check more steps than the limit of {limit}"
        return [Finding("warn", f"no episode ended in {steps} step{'s' * (steps > 1)}", shortened or fix)]
    text = (
        f"{len(rollout.lengths)} episodes of {np.mean(rollout.lengths):.0f} steps on average: "
        f"{rollout.terminated} terminated, {rollout.truncated} truncated; time limit {limit or 'none'}"
    )
    return [Finding("ok", text)]


def judge_scales(rollout: Trial) -> list[Finding]:
    findings = [Finding("warn", text, "do so in the environment or in a wrapper") for text in rollout.rounded]
    if rollout.outside:
        text = f"{rollout.outside} observations were outside the observation space, in bounds, dtype or shape"
        findings.append(Finding("warn", text, "correct the space, or clip and convert the observation"))
    trouble = "" if rollout.scales is None else rollout.scales.observation_trouble()
    return findings + [Finding("warn", trouble, NORMALIZE_OBS)] * bool(trouble)


def judge_rewards(rollout: Trial) -> list[Finding]:
    rewards = np.array(rollout.rewards)
    trouble = "" if rollout.scales is None else rollout.scales.reward_trouble()
    text = f"rewards lie in [{rewards.min():.3g}, {rewards.max():.3g}], mean {rewards.mean():.3g}"
    if not rewards.any():
        return [Finding("warn", "a random policy met no reward but 0", "a sparse task: expect to need exploration")]
    if trouble:
        return [Finding("warn", f"{text}; {trouble}", NORMALIZE_REWARD)]
    return [Finding("ok", text)]
