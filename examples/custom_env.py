"""PPO on your own environment. Settings: python custom_env.py run.max_env_step=50000 seed=1"""

import sys

import gymnasium
import numpy as np
from easydict import EasyDict

from minding import training
from minding.configs import compile_run
from minding.engine.run.run_dir import RunDir


class Corridor(gymnasium.Env):
    """Walk from the left end of a corridor to the right; each step costs 0.1, arriving pays 1."""

    def __init__(self, length=10):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        done = self.place == self.length
        return np.array([self.place / self.length], np.float32), 1.0 if done else -0.1, done, False, {}


env = dict(env_id="custom_env:Corridor", env_kwargs=dict(length=10), max_episode_steps=100)
main_config = EasyDict(run=dict(max_env_step=20_000), env=env, policy=dict(type="ppo"))

if __name__ == "__main__":
    cfg = compile_run(main_config, sys.argv[1:])
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    print(f"return {summary.eval_return:.2f} after {summary.env_step:,} environment steps; 0.10 is the best")
