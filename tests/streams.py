"""Streams of experience that are cut into rollouts."""

import numpy as np

from minding.engine.data.rollout import Rollout

GAMMA = 0.9


class Stream:
    """What happens in N environments, step by step; observations are (environment, time), half a step later at ends.

    Args:
      seed: of what happens.
      steps, envs: how long, and in how many environments.
      agents: number of agents with a reward of their own; 0: one for the environment.
      resets: steps after an end are spent on the reset. Without, environments still restart after faults.
      image: shape; observations are then uint8 images, which tell environment and time (modulo 64) by their pixels.
    """

    def __init__(self, seed, steps, envs=3, agents=0, resets=False, image=None):
        rng = np.random.default_rng(seed)
        self.steps, self.envs, self.image = steps, envs, image
        self.reward = rng.standard_normal((steps, envs, *[agents] * bool(agents))).astype(np.float32)
        self.terminated, self.truncated = np.zeros((2, steps, envs), bool)
        self.valid = np.ones((steps, envs), bool)
        over = np.zeros(envs, bool)
        for t in range(steps):
            fault = rng.random(envs) < 0.08
            self.valid[t] = ~((over & resets) | fault)
            draw = rng.random(envs)
            self.terminated[t] = self.valid[t] & (draw < 0.12)
            self.truncated[t] = self.valid[t] & (draw > 0.9)
            over = self.terminated[t] | self.truncated[t]
        self.reward[~self.valid] = 0.0

    def obs(self, t):
        return self._seen(np.arange(self.envs), np.full(self.envs, t))

    def _seen(self, env, t):
        if self.image is None:
            return np.stack([env, t], axis=1).astype(np.float32)
        pixels = np.arange(np.prod(self.image)).reshape(1, *self.image)
        return ((env * 64 + 2 * t).astype(int).reshape(-1, *[1] * len(self.image)) + 7 * pixels).astype(np.uint8)

    def rollout(self, start, stop):
        ends = np.argwhere((self.terminated | self.truncated)[start:stop])
        fresh = np.zeros((stop - start, self.envs), bool)
        # No step of the running episode was taken before.
        fresh[0] = start == 0 or (self.terminated | self.truncated | ~self.valid)[start - 1]
        return Rollout(
            obs=np.stack([self.obs(t) for t in range(start, stop)]),
            last_obs=self.obs(stop),
            final_obs=self._seen(ends[:, 1], ends[:, 0] + start + 0.5) if len(ends) else None,
            ends=ends,
            action=np.arange(start, stop)[:, None] * 100 + np.arange(self.envs),
            reward=self.reward[start:stop],
            terminated=self.terminated[start:stop],
            truncated=self.truncated[start:stop],
            valid=None if self.valid[start:stop].all() else self.valid[start:stop],
            record={"mark": self.reward[start:stop] * 2},
            fresh=fresh,
        )

    def expected(self, n):
        """(environment, time) -> return, discount, successor, terminated, by a loop in double precision."""
        rows = {}
        for env in range(self.envs):
            for start in range(self.steps):
                total = np.zeros(self.reward.shape[2:])
                for t in range(start, min(start + n, self.steps)):
                    if not self.valid[t, env]:
                        break
                    total = total + GAMMA ** (t - start) * self.reward[t, env].astype(np.float64)
                    over = self.terminated[t, env] or self.truncated[t, env]
                    if over or t == start + n - 1 or (t + 1 < self.steps and not self.valid[t + 1, env]):
                        successor = (env, t + 0.5 if over else t + 1)
                        rows[env, start] = total, GAMMA ** (t + 1 - start), successor, self.terminated[t, env]
                        break
        return rows
