"""Checks if an environment is fit for training: spaces, masks, ends, scales, resume, speed, and the interface."""

import contextlib
import dataclasses
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import env_checker

from minding.engine.data.observation import ACTION_MASK, LEGAL_ACTION, observation_leaves
from minding.engine.errors import ConfigError, EnvError, MindingError, ShapeError, SpaceError
from minding.envs.config import env_settings
from minding.envs.guards.answers import InterfaceError
from minding.envs.guards.faults import Hang, describe
from minding.envs.guards.watchdog import watched
from minding.envs.making import make_env_manager
from minding.envs.manager import BatchedEnvManager
from minding.envs.normalize import NORMALIZE_OBS, NORMALIZE_REWARD
from minding.envs.random_play import SEED, RandomPlay, Trial, replay_difference, roll_out
from minding.envs.single.factory import EnvFactory, env_factory
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.actions import is_bounded
from minding.envs.spaces.info import agents_space
from minding.envs.spec import describe_made, episode_limit, undeclared_mask

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
                env_checker.check_env(own, skip_render_check=True, skip_close_check=True)
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


SECONDS = 30.0
"""Time limit of a check by default, in seconds."""


class Budget:
    """The time that is left for a check, counted from when the object is made.

    Args:
      seconds: time limit in seconds.

    Attributes:
      each: seconds that it takes to make one environment and step it once, as far as is known.
    """

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._seconds = seconds
        self.each = 0.0
        self.fix = f"raise the limit of {seconds:g} s: minding check-env --seconds, or check_env(..., seconds=)"

    @property
    def spent(self) -> float:
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left; negative when the time is over."""
        return self._seconds - self.spent

    def covers(self, envs: int) -> bool:
        """Whether the time that is left suffices to make and step that many environments."""
        return self.left > envs * self.each


# Steps per second of eight environments that are fast enough for a learner.
_FAST = 2000
_MEASUREMENTS = 5
# About the number of steps and resets that the tests of Gymnasium and PettingZoo take.
_CALLS = 25
# Number of steps in which an episode should end before it is repeated.
_PAST = 1000
# Seconds after which a pause of the machine no longer distorts a measurement, and the most that a measurement takes.
_LONG_ENOUGH = 1.0
_LONGEST = 3.0
_INTERFACE = "reset(*, seed=None, options=None) returns (obs, info); step(action) returns 5 values, two of them bool"
_TAKE_TURNS = (
    "env.single_instance=true env.collector_env_num=1 env.evaluator_env_num=1: collecting and evaluation share one "
    "environment; the checks below use this setting"
)
_REPEAT = (
    "let reset(seed=seed) and the actions determine the episode, and keep nothing from earlier ones: in place of "
    "NormalizeObservation set policy.model.normalize_obs=true, in place of NormalizeReward env.normalize_reward=true"
)
_CALLERS = ("minding.", "gymnasium.core.", "gymnasium.wrappers.")


def check_env(
    env_cfg: Mapping[str, Any],
    steps: int = 1000,
    env_fn: Callable[..., AnyEnv] | None = None,
    *,
    seconds: float = SECONDS,
) -> list[Finding]:
    """Returns the findings of `iter_findings` as a list."""
    return list(iter_findings(env_cfg, steps, env_fn, seconds=seconds))


def iter_findings(
    env_cfg: Mapping[str, Any],
    steps: int = 1000,
    env_fn: Callable[..., AnyEnv] | None = None,
    *,
    seconds: float = SECONDS,
) -> Iterator[Finding]:
    """Runs an environment with random actions and yields findings about its fitness for training as they are made.

    Args:
      env_cfg: the `env` section of a configuration; missing keys take their defaults.
      steps: number of steps of the single environment; the speed of eight is measured over the same number.
      env_fn: function that makes the environment, in place of `env_cfg.env_id`.
      seconds: time limit of the check. Half of it is for the steps of the single environment. Findings say which
        checks were shortened or left out. Only a call of the environment that is under way can exceed the limit.
    Returns:
      Findings in the order of the checks; after an error the checks that depend on it are skipped.
    Raises:
      ConfigError: if the environment does not exist; it is raised when the first finding is asked for.
    """
    return _findings(env_settings(env_cfg), steps, env_fn, Budget(seconds))


def _findings(
    settings: dict[str, Any], steps: int, env_fn: Callable[..., AnyEnv] | None, budget: Budget
) -> Iterator[Finding]:
    factory = env_factory(settings, env_fn)
    start = budget.spent
    try:
        description, findings, masked = _describe(factory, settings)
    except MindingError as error:
        yield Finding("error", str(error), _fix_of(error.__cause__ or error), error)
        return
    budget.each = budget.spent - start
    if any(found.level == "error" for found in findings):
        yield from findings
        return
    if masked == LEGAL_ACTION:
        fix = "return it as info['action_mask'], and set env.info_keys=[action_mask]"
        yield Finding("warn", "info['legal_action'] is not read: illegal actions may be tried", fix)
    elif masked is not None:
        fix = "set env.info_keys=[action_mask], unless illegal actions may be tried; the checks below use this setting"
        yield Finding("warn", "there is an action_mask that is not declared, in info or as action_masks()", fix)
        settings["info_keys"] = [*settings["info_keys"], ACTION_MASK]
        yield from _findings(settings, steps, env_fn, budget)
        return
    brief = f"observation {_brief(description['observation'])}, action {_brief(description['action'])}"
    yield from [Finding("ok", brief), *_agents_found(description)]
    found = None
    for found in _try_steps(factory, description["observation"], settings, steps, budget):
        yield found
    if found is None or found.level == "error":
        return
    if not settings["single_instance"] and budget.covers(8) and (fault := _second(factory)) is not None:
        yield Finding("warn", f"a second environment in the same process: {fault}", _TAKE_TURNS)
        settings["single_instance"] = True
    try:
        yield _check_interface(factory, settings, description, budget)
        yield from _check_resume(settings, env_fn, description, budget)
        yield from _measure_speed(settings, steps, env_fn, description, budget)
    except MindingError as error:
        yield Finding("error", str(error), _fix_of(error.__cause__ or error))


def _try_steps(
    factory: EnvFactory, observation: Mapping[str, Any], settings: Mapping[str, Any], steps: int, budget: Budget
) -> Iterator[Finding]:
    """The findings about a single environment in that many steps; an error comes last."""
    try:
        env = factory()
    except MindingError as error:
        yield Finding("error", f"a second one after the first: {error}", _fix_of(error.__cause__ or error))
        return
    yield from judge_bounds(env) + judge_images(observation)
    rollout = Trial()
    try:
        roll_out(env, steps, settings, rollout, budget.left / 2)
    except (Exception, SystemExit, Hang) as error:
        text = str(error) if isinstance(error, MindingError) else describe(error)
        factory.close(env)
        yield Finding("error", f"{rollout.place}: {text}", _fix_of(error))
        return
    limit = episode_limit(env)
    closed = _judge_close(factory.close(env))
    yield from closed
    if any(found.level == "error" for found in closed):
        return
    tried = len(rollout.rewards)
    budget.each += rollout.seconds / tried
    if tried < steps:
        part = f"{tried:,} of {steps:,} steps"
        yield Finding("warn", f"{part} were tried in {rollout.seconds:.3g} s", budget.fix, tried=part)
    yield from judge_masks(rollout) + judge_scales(rollout)
    yield from judge_ends(rollout, limit, budget.fix if tried < steps else "") + judge_rewards(rollout)


def _describe(factory: EnvFactory, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding], str | None]:
    """The description of an environment, findings about its `close` before any step, and its mask if that is not
    declared, see `undeclared_mask`.

    This is the first environment of a check, so that an environment that hangs in `close` hangs only once.
    """
    env = factory()
    try:
        description = describe_made(env, settings)
        masked = undeclared_mask(factory, env)
    finally:
        closed = factory.close(env)
    return description, _judge_close(closed), masked


def _second(factory: EnvFactory) -> MindingError | None:
    """Why a second environment cannot be made while the first is open; None if it can."""
    first = factory()
    try:
        factory.close(factory())
    except MindingError as error:
        return error
    finally:
        factory.close(first)
    return None


def _check_interface(
    factory: EnvFactory, settings: Mapping[str, Any], description: Mapping[str, Any], budget: Budget
) -> Finding:
    # PettingZoo's test obeys a mask in the observation.
    masked = "agents" not in description and any(
        leaf.is_mask for leaf in observation_leaves(description["observation"])
    )
    if masked or ACTION_MASK in settings["info_keys"]:
        return Finding("ok", "Gymnasium's and PettingZoo's own tests are left out: they may take illegal actions")
    if not budget.covers(_CALLS):
        return _left_out("the environment with Gymnasium's and PettingZoo's own tests", budget)
    env = factory()
    try:
        return judge_interface(env, factory.name, factory.step_timeout)
    finally:
        factory.close(env)


def _judge_close(fault: BaseException | None) -> list[Finding]:
    if fault is None:
        return []
    # Closing comes last: an exception does no harm, but every environment that hangs costs time.
    level = "error" if isinstance(fault, Hang) else "warn"
    return [Finding(level, f"close: {describe(fault)}", _fix_of(fault))]


def _fix_of(error: BaseException) -> str:
    """Advice about an error that an environment raised, or that was found in its return values."""
    if isinstance(error, SpaceError):
        return "use spaces that have an array form, or wrap the environment"
    if isinstance(error, ShapeError):
        return "return observations of the shape and dtype that observation_space declares"
    if isinstance(error, InterfaceError):
        return _INTERFACE
    if isinstance(error, EnvError):
        return "give finite rewards, bools, observations that fit observation_space, and masks that leave an action"
    if isinstance(error, ConfigError):
        return "give the environment both spaces, and reset and step"
    if isinstance(error, Hang):
        return "find what the environment waits for, or raise env.step_timeout if it needs that long"
    if isinstance(error, SystemExit):
        return "raise an exception that says what is wrong; an environment must not end the process"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    caller = frames[-1].f_globals.get("__name__", "") if frames else ""
    # The error comes from the call of the environment, and not from its own code.
    if isinstance(error, (TypeError, ValueError)) and f"{caller}.".startswith(_CALLERS):
        return _INTERFACE
    return "correct the environment at the place that is named"


def _brief(space: Mapping[str, Any]) -> str:
    """A short name of a described space."""
    if space["kind"] == "box":
        return f"Box {tuple(space['shape'])} {space['dtype']}"
    detail = space.get("n", space.get("nvec", space.get("shape")))
    return f"{space['kind']} {len(space['spaces']) if detail is None else detail}"


def _agents_found(description: Mapping[str, Any]) -> list[Finding]:
    """A finding that names the agents, and their spaces if these differ; empty for a single agent."""
    agents = description.get("agents")
    if agents is None:
        return []
    own = [f"{_numbers(each['observation'])} numbers, {_brief(each['action'])}" for each in agents["spaces"]]
    names = [f"{name} ({text})" if len(set(own)) > 1 else name for name, text in zip(agents["names"], own)]
    reward = "one reward for all" if agents["team_reward"] else "each with its own reward"
    return [Finding("ok", f"{len(names)} agents, {reward}: {', '.join(names)}")]


def _numbers(space: Mapping[str, Any]) -> int:
    """The number of numbers in an observation, without its mask."""
    return sum(int(np.prod(leaf.field.shape)) for leaf in observation_leaves(space) if not leaf.is_mask)


def _single_backend(settings: Mapping[str, Any]) -> str:
    """The backend whose episodes follow from their seeds; only EnvPool can make EnvPool's environments."""
    return "envpool" if settings["backend"] == "envpool" else "sync"


def _check_resume(
    settings: Mapping[str, Any], env_fn: Callable[..., AnyEnv] | None, description: Mapping[str, Any], budget: Budget
) -> list[Finding]:
    if settings["single_instance"]:
        return [Finding("ok", "a resumed run begins a new episode (env.single_instance)")]
    if not budget.covers(4):
        return [_left_out("whether a running episode can be resumed", budget)]
    settings = dict(settings, backend=_single_backend(settings), on_error="raise")
    manager = make_env_manager(settings, 1, SEED, training=False, env_fn=env_fn)
    copy = make_env_manager(settings, 1, SEED + 1, training=False, env_fn=env_fn)
    begins = "a resumed run begins new episodes: "
    try:
        # The time is for twice the steps of the first environment, and for the replay in the other one.
        seconds = min(_LONGEST, budget.left * 0.2)
        differing = replay_difference(manager, description, past=_PAST, seconds=seconds)
        if differing:
            used = f"after others, an episode with the same seed and actions has another {differing}"
            return [Finding("warn", begins + used, _REPEAT)]
        copy.repeats = lambda: True
        copy.load_state_dict(manager.state_dict())
        if copy.resume_guarantee == "exact":
            return [Finding("ok", "a running episode can be resumed exactly, from its seed and actions")]
    finally:
        manager.close()
        copy.close()
    return [Finding("warn", f"{begins}a replay in another environment does not repeat this one", _REPEAT)]


def _measure_speed(
    settings: Mapping[str, Any],
    steps: int,
    env_fn: Callable[..., AnyEnv] | None,
    description: Mapping[str, Any],
    budget: Budget,
) -> list[Finding]:
    speeds: list[float] = []
    for num_envs in (1,) if settings["single_instance"] else (1, 8):
        if not budget.covers(num_envs + 1):
            return [_left_out(f"the speed of {num_envs} environment{'s' * (num_envs > 1)}", budget)]
        manager = make_env_manager(settings, num_envs, SEED, env_fn=env_fn)
        longest = min(_LONGEST, budget.left / (2 - len(speeds)))
        try:
            speeds.append(_speed(manager, max(steps // num_envs, 1), description, longest))
        finally:
            manager.close()
    if settings["single_instance"]:
        return [Finding("ok", f"{speeds[0]:,.0f} steps/s")]
    text = (
        f"{speeds[0]:,.0f} steps/s with 1 environment, {speeds[1]:,.0f} steps/s with 8 "
        f"(env.backend={settings['backend']})"
    )
    if speeds[1] < _FAST and settings["backend"] != "subprocess":
        return [Finding("warn", text, "try env.backend=subprocess")]
    return [Finding("ok", text)]


def _speed(manager: BatchedEnvManager, rounds: int, description: Mapping[str, Any], longest: float) -> float:
    """Steps per second of all environments, over `rounds` rounds or `longest` seconds.

    A pause of the machine distorts a measurement of milliseconds: short ones are repeated, and the best counts.
    """
    speed = 0.0
    manager.reset()
    play = RandomPlay(manager, description)
    for _ in range(_MEASUREMENTS):
        start, done, taken = play.seconds, 0, 0.0
        while done < rounds and taken <= longest:
            play.step()
            done, taken = done + 1, play.seconds - start
        speed = max(speed, done * manager.num_envs / taken)
        if speed >= _FAST or taken > min(_LONG_ENOUGH, longest):
            break
    return speed


def _left_out(what: str, budget: Budget) -> Finding:
    return Finding("warn", f"the time did not suffice to check {what}", budget.fix, left_out=True)
