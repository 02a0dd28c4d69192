"""Random play: a trial of one environment, and whether a seed and actions repeat an episode."""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.actions import random_actions
from minding.engine.data.agent_axis import num_agents
from minding.engine.data.observation import ACTION_MASK, observation_leaves
from minding.engine.errors import EnvError
from minding.engine.types import Array, EnvStep, Obs
from minding.envs.guards.answers import as_flag, reset_answer, step_answer
from minding.envs.guards.values import ValueCheck, step_reward
from minding.envs.guards.watchdog import Activity, Watch
from minding.envs.manager import BatchedEnvManager
from minding.envs.normalize import ScaleMeter
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.info import sample_action
from minding.envs.spaces.layout import ObsLayout

SEED = 12345


class RandomPlay:
    """Steps environments with random actions in the policy's units; an action mask is obeyed.

    Attributes:
      seconds: time in seconds that the environments have taken so far.
    """

    def __init__(self, manager: BatchedEnvManager, description: Mapping[str, Any], seed: int = SEED) -> None:
        self._manager = manager
        self._space = description["action"]
        agents = num_agents(description)
        self._lead = (manager.num_envs,) if agents is None else (manager.num_envs, agents)
        self._masked = any(leaf.is_mask for leaf in observation_leaves(description["observation"]))
        self._rng = np.random.default_rng(seed)
        self.seconds = 0.0

    def step(self, action: Array | None = None) -> EnvStep:
        """Steps all environments once, with random actions by default; adds the time that they take to `seconds`."""
        action = self.action() if action is None else action
        start = time.perf_counter()
        step = self._manager.step(action)
        self.seconds += time.perf_counter() - start
        return step

    def action(self) -> Array:
        """Random actions for the current observations."""
        mask = obs_trees.named(self._manager.obs)[ACTION_MASK] if self._masked else None
        return random_actions(self._space, self._lead, self._rng, mask)


def replay_difference(
    manager: BatchedEnvManager,
    description: Mapping[str, Any],
    *,
    steps: int = 20,
    past: int = 200,
    seconds: float = 0.5,
) -> str:
    """First difference when new environments repeat their first steps from the same seed, later in time. They play
    `steps` steps, at least one and for at most `seconds`, and continue to the end of an episode; then these steps are
    repeated. It fails if it depends on a clock, or keeps something from one episode to the next, such as a running
    mean."""
    play, actions = RandomPlay(manager, description), []
    first = [_shown(manager.reset(SEED))]
    ended = False
    for number in range(1, max(steps, past) + 1):
        actions.append(play.action())
        step = play.step(actions[-1])
        if number <= steps:
            first.append(_shown(step.next_obs, step))
        ended = ended or bool((step.terminated | step.truncated).any())
        if (ended and number >= steps) or play.seconds > seconds:
            break
    again = _shown(manager.reset(SEED))
    for number, before in enumerate(first):
        if number:
            step = play.step(actions[number - 1])
            again = _shown(step.next_obs, step)
        for what, value in before.items():
            if not all(map(np.array_equal, value, again[what])):
                return what
    return ""


def _shown(obs: Obs, step: EnvStep | None = None) -> dict[str, list[Array]]:
    """Arrays of a reset or a step that a replay must repeat, by name."""
    shown = {"observation": [leaf for _, leaf in obs_trees.leaves(obs)]}
    return shown if step is None else {**shown, "reward": [step.reward], "end": [step.terminated, step.truncated]}


@dataclasses.dataclass
class Trial:
    """The record of a random policy's trial in one environment."""

    rewards: list[Any] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    terminated: int = 0
    truncated: int = 0
    outside: int = 0
    place: str = "reset"
    rounded: list[str] = dataclasses.field(default_factory=list)
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
        found.outside += not env.observation_space.contains(obs)
        found.rounded += [what for _, what in values.rounded(row)]

    with activity.during("reset"):
        obs, _ = reset_answer(env.reset(seed=SEED))
    look(obs)
    length = 0
    for step in range(1, steps + 1):
        found.place = f"step {step}"
        with activity.during("step"):
            answer = step_answer(env.step(sample_action(env, obs, {}, rng)))
        next_obs, reward, terminated, truncated, _ = answer
        terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
        reward = step_reward(reward, layout.reward_shape)
        look(next_obs, reward, terminated)
        found.scales.add(layout.unflatten(row), np.array([reward]), np.array([terminated or truncated]))
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
