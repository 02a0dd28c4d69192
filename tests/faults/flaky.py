"""An environment with a known truth that goes wrong at random, importable by worker processes."""

import os
import signal

import gymnasium
import numpy as np
from gymnasium import spaces

FAULTS = ("raise", "nan", "inf", "reward", "shape", "dtype", "reset")


class Flaky(gymnasium.Env):
    """Observation (environment's own mark, episode's mark, age); every reward is 1. Episodes of 9 steps.

    Args:
      kind: of `FAULTS`, or 'die' for a process that kills itself.
      share: of the steps (of the resets for 'reset') that go wrong.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, kind="raise", share=0.1):
        self.kind, self.share = kind, share
        self.mark = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.kind == "reset" and self.np_random.random() < self.share:
            raise RuntimeError("reset failed")
        self.mark, self.age = float(self.np_random.integers(1 << 23)), 0
        return self.observe(), {}

    def step(self, action):
        self.age += 1
        obs, reward = self.observe(), 1.0
        if self.np_random.random() < self.share:
            if self.kind == "raise":
                raise RuntimeError("motor stalled")
            if self.kind == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            obs = {"nan": obs * np.nan, "inf": obs + np.inf, "shape": obs[:1], "dtype": obs.astype(complex)}.get(
                self.kind, obs
            )
            reward = np.nan if self.kind == "reward" else reward
        return obs, reward, self.age == 9, False, {}

    def observe(self):
        return np.array([1.0, self.mark, self.age], np.float32)


class Huge(Flaky):
    """Rewards that are finite, and whose squares are not."""

    def __init__(self):
        super().__init__(share=0.0)

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, 1e30, *rest
