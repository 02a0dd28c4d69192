"""Random play in the environments of a manager, also to see if a seed and actions repeat an episode."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data import trees
from minding.engine.data.agents import num_agents
from minding.engine.data.masks import ACTION_MASK, random_legal
from minding.engine.data.observation import observation_leaves
from minding.engine.types import Array, EnvStep, Obs
from minding.envs.manager import BatchedEnvManager

_SEED = 12345


class RandomPlay:
    """Steps environments with random actions in the policy's units; an action mask is obeyed.

    Args:
      manager: manager of the environments.
      description: description of the environments, see `describe_env`.
      seed: seed of the actions.

    Attributes:
      seconds: time in seconds that the environments have taken so far.
    """

    def __init__(self, manager: BatchedEnvManager, description: Mapping[str, Any], seed: int = _SEED) -> None:
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
        space = self._space
        if space["kind"] == "box":
            return self._rng.uniform(-1, 1, (*self._lead, *space["shape"])).astype(np.float32)
        counts = space.get("nvec", [space.get("n")])
        mask = np.ones((*self._lead, sum(counts)), bool)
        if self._masked:
            mask = trees.named(self._manager.obs)[ACTION_MASK]
        action = random_legal(mask, counts, self._rng)
        return action.reshape(*self._lead, -1) if space["kind"] == "multi_discrete" else action


def replay_difference(
    manager: BatchedEnvManager,
    description: Mapping[str, Any],
    *,
    steps: int = 20,
    past: int = 200,
    seconds: float = 0.5,
) -> str:
    """First difference when new environments repeat their first steps from the same seed, later in time.

    They play `steps` steps and continue to the end of an episode; then these steps are repeated. It fails if
    it depends on a clock, or keeps something from one episode to the next, such as a running mean.

    Args:
      manager: manager of the environments.
      description: description of the environments, see `describe_env`.
      steps: number of steps that are repeated.
      past: number of steps after which they are repeated even if no episode has ended.
      seconds: time limit of the steps before they are repeated; at least one is made.
    Returns:
      ``'observation'``, ``'reward'`` or ``'end'``, whichever differs first; empty if nothing differs.
    """
    play, actions = RandomPlay(manager, description), []
    first = [_shown(manager.reset(_SEED))]
    ended = False
    for number in range(1, max(steps, past) + 1):
        actions.append(play.action())
        step = play.step(actions[-1])
        if number <= steps:
            first.append(_shown(step.next_obs, step))
        ended = ended or bool((step.terminated | step.truncated).any())
        if (ended and number >= steps) or play.seconds > seconds:
            break
    again = _shown(manager.reset(_SEED))
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
    shown = {"observation": [leaf for _, leaf in trees.leaves(obs)]}
    return shown if step is None else {**shown, "reward": [step.reward], "end": [step.terminated, step.truncated]}
