"""Scales of rewards and observations: a running one for rewards, and a measurement in the first steps of a run."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.observation import OBSERVATION
from minding.engine.types import Array, Obs, StateDict
from minding.envs.spaces.layout import Leaf, ObsLayout

CLIP = 10.0
"""Bound of scaled rewards, unless ``env.reward_clip`` is set."""
REWARD = "reward"
NORMALIZE_REWARD = "set env.normalize_reward=true, or scale the reward"
NORMALIZE_OBS = "set policy.model.normalize_obs=true, or scale the observation"
LARGE_RETURN = 1000.0
"""Standard deviation of discounted returns from which rewards are large: ten times that of usual tasks, below 100."""
LARGE_NUMBER = 100.0
"""Root mean square of an observed number from which it is large: networks expect numbers of about 1."""
LARGE_RATIO = 1e4
"""Ratio of the largest to the smallest root mean square from which numbers have very different scales."""
_LEAST_STEPS, _LEAST_ROUNDS = 1000, 100


class RewardScaler:
    """Divides rewards by the standard deviation of the discounted return (no mean is subtracted).

        G_t = gamma * G_{t-1} + r_t        (0 where an episode begins)
        r'_t = r_t / sqrt(var(G))

    The variance is taken over all environments and steps so far (Welford's update by batches), and over a return of 0
    in each environment before the first step, because environments that begin with equal rewards would otherwise have
    no spread. While the variance is 0, as before the first reward, rewards pass unchanged.

    Args:
      shape: ``(N,)``, or ``(N, M)`` for rewards of M agents, which share one scale.
    """

    def __init__(self, shape: tuple[int, ...], gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(shape)
        self._count = self._returns.size
        self._mean = 0.0
        self._squares = 0.0

    @property
    def scale(self) -> float:
        """The number by which rewards are divided now."""
        return math.sqrt(self._squares / self._count) or 1.0

    def __call__(self, reward: Array, valid: Array | None) -> Array:
        """Adds the rewards of one step, float32 ``(N,)`` or ``(N, M)``, to the statistics and scales them. Rows that
        are not `valid`, bool ``(N,)`` or None, are left out of the statistics and begin a new return."""
        self._returns *= self._gamma
        self._returns += reward
        if valid is not None:
            self._returns[~valid] = 0.0
        returns = self._returns if valid is None else self._returns[valid]
        self._update(returns if returns.ndim == 1 else returns.ravel())
        return (reward / self.scale).astype(np.float32, copy=False)

    def forget(self, envs: Array) -> None:
        """Begins a new return in the environments of the mask or index array `envs`, as for a new episode."""
        self._returns[envs] = 0.0

    def state_dict(self) -> StateDict:
        return {"returns": self._returns.copy(), "count": self._count, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: StateDict) -> None:
        self._returns[:] = state["returns"]
        self._count = int(state["count"])
        self._mean = float(state["mean"])
        self._squares = float(state["squares"])

    def _update(self, returns: Array) -> None:
        if not len(returns):
            return
        total = self._count + len(returns)
        mean = float(returns.sum()) / len(returns)
        delta = mean - self._mean
        self._squares += float(((returns - mean) ** 2).sum()) + delta**2 * self._count * len(returns) / total
        self._mean += delta * len(returns) / total
        self._count = total


class ScaleMeter:
    """Measures the scales of rewards and observations in the first steps of environments."""

    def __init__(
        self,
        layout: ObsLayout,
        num_envs: int,
        settings: Mapping[str, Any],
        watch: Collection[str] = (REWARD, OBSERVATION),
    ) -> None:
        tamed = settings["normalize_reward"] or settings["reward_clip"] is not None
        self._watch = frozenset(watch) - ({REWARD} if tamed else set())
        self._returns = RewardScaler((num_envs, *layout.reward_shape), settings["reward_gamma"])
        self._largest = 0.0
        self._leaves = {leaf.path: leaf for leaf in layout.leaves if _is_measured(leaf)}
        self._squares = {path: np.zeros(leaf.shape) for path, leaf in self._leaves.items()}
        self._rows = self._rounds = 0
        self._wanted = max(_LEAST_ROUNDS, math.ceil(_LEAST_STEPS / num_envs))

    def add(self, obs: Obs, reward: Array, over: Array, valid: Array | None = None) -> bool:
        """Adds a step of all environments: observations after it, ``(N, ...)``, the environments' own rewards, and bool
        ``(N,)``, where an episode has ended and (None: everywhere) rows are valid. Returns whether there are enough
        steps for a judgement."""
        self._returns(reward, valid)
        self._returns.forget(over)
        self._largest = max(self._largest, float(np.abs(reward).max()))
        for path, values in obs_trees.leaves(obs):
            if path in self._squares:
                self._squares[path] += (values.astype(np.float64) ** 2).sum(axis=0)
        self._rows += len(reward)
        self._rounds += 1
        return self._rounds >= self._wanted

    def reward_trouble(self) -> str:
        """Problem of the rewards; empty if they are not large."""
        scale = self._returns.scale
        if REWARD not in self._watch or scale <= LARGE_RETURN:
            return ""
        return (
            f"rewards are large, up to {self._largest:.3g}: discounted returns vary by {scale:.3g}, and values are "
            f"learned slowly if they vary by more than {LARGE_RETURN:,.0f}"
        )

    def observation_trouble(self) -> str:
        """Problem of the scales of the observed numbers; empty if they are near 1."""
        found = [
            (float(scale), leaf.entry(number))
            for path, leaf in self._leaves.items()
            for number, scale in enumerate(np.sqrt(self._squares[path] / max(self._rows, 1)).ravel())
            if scale > 0
        ]
        if OBSERVATION not in self._watch or not found:
            return ""
        (smallest, one), (largest, other) = min(found), max(found)
        if largest <= LARGE_NUMBER and largest <= LARGE_RATIO * smallest:
            return ""
        beside = "" if one == other else f" beside {one} of about {smallest:.2g}"
        return f"{other} is of about {largest:.2g}{beside}, and networks learn slowly from numbers that are far from 1"

    def troubles(self) -> dict[str, str]:
        """Each trouble with its remedy."""
        remedies = {self.reward_trouble(): NORMALIZE_REWARD, self.observation_trouble(): NORMALIZE_OBS}
        return {trouble: remedy for trouble, remedy in remedies.items() if trouble}


def _is_measured(leaf: Leaf) -> bool:
    if leaf.part != OBSERVATION or leaf.count is not None or leaf.choices:
        return False
    return leaf.dtype.kind in "fiu" and not (leaf.dtype == np.uint8 and len(leaf.shape) > 1)
