"""Is an environment fit for training? Spaces, signatures, dtypes, seeds, ends, rewards, resume, speed."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from minding.engine.data import trees
from minding.engine.data.masks import ACTION_MASK
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import ConfigError, EnvError, MindingError, ShapeError, SpaceError
from minding.envs.config import env_settings
from minding.envs.guards.faults import Hang, describe
from minding.envs.making import make_env_manager
from minding.envs.random_play import RandomPlay
from minding.envs.single.factory import EnvFactory, env_factory
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spec import describe_env, describe_made, episode_limit
from minding.envs.trial import SEED, Trial, roll_out

_LARGE_REWARD = 100.0
_IMAGE_SIZE = 256
_MANY_VALUES = 2000
# Steps per second of eight environments that a learner does not wait for.
_FAST = 2000
_MEASUREMENTS = 5
# Seconds after which a pause of the machine no longer counts.
_LONG_ENOUGH = 1.0
_CALLERS = ("minding.", "gymnasium.core.", "gymnasium.wrappers.")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of a check.

    Attributes:
      level: ok, warn or error.
      text: what was found.
      fix: what to do; empty where nothing is wrong.
      refused: what was raised if no environment could be made, or none that has an array form.
    """

    level: str
    text: str
    fix: str = ""
    refused: MindingError | None = None


def check_env(
    env_cfg: Mapping[str, Any], steps: int = 1000, env_fn: Callable[..., AnyEnv] | None = None
) -> list[Finding]:
    """Runs an environment with random actions and reports what would cause trouble in training.

    Args:
      env_cfg: the `env` section of a configuration; missing keys take their defaults.
      steps: steps of the single environment; the speed of eight is measured over as many.
      env_fn: makes the environment, in place of `env_cfg.env_id`.
    Returns:
      Findings in the order of the checks; after an error the checks that depend on it are skipped.
    Raises:
      ConfigError: if there is no such environment.
    """
    settings = env_settings(env_cfg)
    factory = env_factory(settings, env_fn)
    try:
        description, findings = _describe(factory, settings)
    except MindingError as error:
        return [Finding("error", str(error), _fix_of(error.__cause__ or error), error)]
    if any(found.level == "error" for found in findings):
        return findings
    if _has_undeclared_mask(settings, env_fn, description):
        fix = "set env.info_keys=[action_mask], unless illegal actions may be tried; what follows is with it"
        settings["info_keys"] = [*settings["info_keys"], ACTION_MASK]
        return [
            Finding("warn", "info holds an action_mask that is not declared", fix),
            *check_env(settings, steps, env_fn),
        ]
    env = factory()
    findings = [
        Finding("ok", f"observation {_brief(description['observation'])}, action {_brief(description['action'])}"),
        *_told_agents(description),
    ]
    findings += _check_bounds(env) + _check_images(description["observation"])
    rollout = Trial()
    try:
        roll_out(env, steps, settings["step_timeout"], rollout)
    except (Exception, SystemExit, Hang) as error:
        text = str(error) if isinstance(error, MindingError) else describe(error)
        factory.close(env)
        return [*findings, Finding("error", f"{rollout.place}: {text}", _fix_of(error))]
    limit = episode_limit(env)
    findings += _judge_close(factory.close(env))
    if findings[-1].level == "error":
        return findings
    findings += _judge_arrays(rollout) + _judge_masks(rollout) + _judge_ends(rollout, limit) + _judge_rewards(rollout)
    try:
        findings += _check_seeds(settings, env_fn) + _check_resume(settings, env_fn)
        findings += _measure_speed(settings, steps, env_fn)
    except MindingError as error:
        findings.append(Finding("error", str(error), _fix_of(error.__cause__ or error)))
    return findings


def _describe(factory: EnvFactory, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The description of an environment, and what its `close` is like without a step.

    This is the first environment of a check, so that one that hangs in `close` hangs once.
    """
    env = factory()
    try:
        description = describe_made(env, settings)
    finally:
        closed = factory.close(env)
    return description, _judge_close(closed)


def _judge_close(fault: BaseException | None) -> list[Finding]:
    if fault is None:
        return []
    # Closing comes last: nothing is lost by an exception, but each environment that hangs is waited for.
    level = "error" if isinstance(fault, Hang) else "warn"
    return [Finding(level, f"close: {describe(fault)}", _fix_of(fault))]


def _has_undeclared_mask(
    settings: Mapping[str, Any], env_fn: Callable[..., AnyEnv] | None, description: Mapping[str, Any]
) -> bool:
    if any(leaf.is_mask for leaf in observation_leaves(description["observation"])):
        return False
    factory = env_factory({**settings, "info_keys": [ACTION_MASK]}, env_fn)
    try:
        env = factory()
    except MindingError:
        return False
    try:
        # Where there are several agents, each tells its own mask.
        env.reset(seed=SEED)
    except Exception:
        return False
    finally:
        factory.close(env)
    return True


def _fix_of(error: BaseException) -> str:
    """What to do about an error that an environment raised, or that was found in what it returned."""
    if isinstance(error, SpaceError):
        return "use spaces that have an array form, or wrap the environment"
    if isinstance(error, ShapeError):
        return "return observations of the shape and dtype that observation_space declares"
    if isinstance(error, EnvError):
        return "give finite rewards, observations that fit observation_space, and masks that leave an action"
    if isinstance(error, ConfigError):
        return "give the environment both spaces, and reset and step"
    if isinstance(error, Hang):
        return "find what the environment waits for, or raise env.step_timeout if it needs that long"
    if isinstance(error, SystemExit):
        return "raise an exception that says what is wrong; an environment must not end the process"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    caller = frames[-1].f_globals.get("__name__", "") if frames else ""
    # Raised where the environment was called, and not in it.
    if isinstance(error, (TypeError, ValueError)) and f"{caller}.".startswith(_CALLERS):
        return "reset(*, seed=None, options=None) returns (obs, info); step(action) returns 5 values, two of them bool"
    return "correct the environment at the place that is named"


def _brief(space: Mapping[str, Any]) -> str:
    """A short name of a described space."""
    if space["kind"] == "box":
        return f"Box {tuple(space['shape'])} {space['dtype']}"
    detail = space.get("n", space.get("nvec", space.get("shape")))
    return f"{space['kind']} {len(space['spaces']) if detail is None else detail}"


def _told_agents(description: Mapping[str, Any]) -> list[Finding]:
    """Who the agents are, where there are several, and what each has for itself if that differs."""
    agents = description.get("agents")
    if agents is None:
        return []
    own = [f"{_numbers(each['observation'])} numbers, {_brief(each['action'])}" for each in agents["spaces"]]
    names = [f"{name} ({text})" if len(set(own)) > 1 else name for name, text in zip(agents["names"], own)]
    reward = "one reward for all" if agents["team_reward"] else "each with its own reward"
    return [Finding("ok", f"{len(names)} agents, {reward}: {', '.join(names)}")]


def _numbers(space: Mapping[str, Any]) -> int:
    """How many numbers an observation has, without its mask."""
    return sum(int(np.prod(leaf.field.shape)) for leaf in observation_leaves(space) if not leaf.is_mask)


def _check_bounds(env: AnyEnv) -> list[Finding]:
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        text = f"the action space {space} has infinite bounds, so actions are not rescaled"
        return [Finding("warn", text, "give the Box the limits of the actuators")]
    return []


def _check_images(space: Mapping[str, Any]) -> list[Finding]:
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
            fix = "images are uint8 (C, H, W): use env.wrappers such as channel_first, or flatten it if it is none"
            findings.append(Finding("warn", text, fix))
    return findings


def _judge_arrays(rollout: Trial) -> list[Finding]:
    findings = [
        Finding("warn", text, "return the declared dtype; it is converted at every step until then")
        for text in sorted(rollout.other_dtypes)
    ]
    findings += [Finding("warn", text, "do so in the environment or in a wrapper") for text in rollout.rounded]
    if rollout.outside:
        text = f"{rollout.outside} observations were outside the observation space"
        findings.append(Finding("warn", text, "widen the bounds of the space, or clip the observation"))
    if rollout.aliased:
        text = "step overwrites the observation it returned before"
        findings.append(Finding("warn", text, "return a copy; minding copies, other tools may not"))
    return findings or [Finding("ok", "observations fit the space, and each is a separate array")]


def _judge_masks(rollout: Trial) -> list[Finding]:
    if not rollout.legal:
        return []
    text = (
        f"the action mask leaves {np.mean(rollout.legal):.0%} of the actions on average, and always one that is legal"
    )
    if min(rollout.legal) == 1:
        return [Finding("warn", "the action mask never forbids an action", "leave it out, or see how it is computed")]
    return [Finding("ok", text)]


def _judge_ends(rollout: Trial, limit: int | None) -> list[Finding]:
    steps = len(rollout.rewards)
    if not rollout.lengths:
        fix = "set env.max_episode_steps" if limit is None else f"check more steps than the limit of {limit}"
        return [Finding("warn", f"no episode ended in {steps} steps", fix)]
    text = (
        f"{len(rollout.lengths)} episodes of {np.mean(rollout.lengths):.0f} steps on average: "
        f"{rollout.terminated} terminated, {rollout.truncated} truncated; time limit {limit or 'none'}"
    )
    return [Finding("ok", text)]


def _judge_rewards(rollout: Trial) -> list[Finding]:
    rewards = np.array(rollout.rewards)
    largest = float(np.abs(rewards).max())
    text = f"rewards lie in [{rewards.min():.3g}, {rewards.max():.3g}], mean {rewards.mean():.3g}"
    if largest == 0:
        return [Finding("warn", "a random policy met no reward but 0", "a sparse task: expect to need exploration")]
    if largest > _LARGE_REWARD:
        return [Finding("warn", text, "set env.normalize_reward=true, or scale the reward")]
    return [Finding("ok", text)]


def _single_backend(settings: Mapping[str, Any]) -> str:
    """What steps environments as their seeds say; EnvPool's are known to it alone."""
    return "envpool" if settings["backend"] == "envpool" else "sync"


def _check_seeds(settings: Mapping[str, Any], env_fn: Callable[..., AnyEnv] | None) -> list[Finding]:
    description = describe_env(settings, env_fn)
    settings = dict(settings, backend=_single_backend(settings), on_error="raise")
    streams, firsts = [], []
    for _ in range(2):
        manager = make_env_manager(settings, 2, SEED, env_fn=env_fn)
        firsts.append(manager.obs)
        stream = []
        play = RandomPlay(manager, description)
        for _ in range(50):
            step = play.step()
            stream += [leaf for _, leaf in trees.leaves(step.next_obs)] + [step.reward]
        streams.append(stream)
        manager.close()
    if not all(np.array_equal(a, b) for a, b in zip(*streams)):
        fix = "draw all randomness from self.np_random, and begin reset with super().reset(seed=seed)"
        return [Finding("warn", "two runs with one seed differ", fix)]
    findings = [Finding("ok", "the same seed gives the same run")]
    if all(np.array_equal(leaf[0], leaf[1]) for _, leaf in trees.leaves(firsts[0])):
        text = "two environments with different seeds begin alike"
        findings.append(Finding("warn", text, "harmless if the task has one start; else use self.np_random in reset"))
    return findings


def _check_resume(settings: Mapping[str, Any], env_fn: Callable[..., AnyEnv] | None) -> list[Finding]:
    description = describe_env(settings, env_fn)
    settings = dict(settings, backend=_single_backend(settings), on_error="raise")
    manager = make_env_manager(settings, 1, SEED, env_fn=env_fn)
    copy = make_env_manager(settings, 1, SEED + 1, env_fn=env_fn)
    try:
        manager.reset()
        play = RandomPlay(manager, description)
        for _ in range(20):
            play.step()
        copy.load_state_dict(manager.state_dict())
        if copy.resume_guarantee == "exact":
            return [Finding("ok", "a running episode can be resumed exactly, from its seed and actions")]
    finally:
        manager.close()
        copy.close()
    fix = "make reset(seed=seed) and the actions determine the episode"
    return [Finding("warn", "a resumed run begins new episodes, because replay does not repeat this one", fix)]


def _measure_speed(settings: Mapping[str, Any], steps: int, env_fn: Callable[..., AnyEnv] | None) -> list[Finding]:
    speeds = [_speed(settings, num_envs, steps, env_fn) for num_envs in (1, 8)]
    text = (
        f"{speeds[0]:,.0f} steps/s with 1 environment, {speeds[1]:,.0f} steps/s with 8 "
        f"(env.backend={settings['backend']})"
    )
    if speeds[1] < _FAST and settings["backend"] != "subprocess":
        return [Finding("warn", text, "try env.backend=subprocess")]
    return [Finding("ok", text)]


def _speed(settings: Mapping[str, Any], num_envs: int, steps: int, env_fn: Callable[..., AnyEnv] | None) -> float:
    """Steps per second of so many environments.

    A pause of the machine makes a measurement of milliseconds look slow: such a one is repeated, and the best counts.
    """
    manager = make_env_manager(settings, num_envs, SEED, env_fn=env_fn)
    rounds, speed = max(steps // num_envs, 1), 0.0
    try:
        manager.reset()
        play = RandomPlay(manager, describe_env(settings, env_fn))
        for _ in range(_MEASUREMENTS):
            start = play.seconds
            for _ in range(rounds):
                play.step()
            taken = play.seconds - start
            speed = max(speed, rounds * num_envs / taken)
            if speed >= _FAST or taken > _LONG_ENOUGH:
                break
    finally:
        manager.close()
    return speed
