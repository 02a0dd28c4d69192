"""Small environments in the shapes of those that people bring, with their habits."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Parking(gymnasium.Env):
    """As highway-env's parking: goals in float64, `compute_reward` alone, info of arrays, its own clock truncates."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                key: spaces.Box(-np.inf, np.inf, (6,), np.float64)
                for key in ("observation", "achieved_goal", "desired_goal")
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = np.zeros(6), self.np_random.uniform(-1, 1, 6)
        self.steps = 0
        return self.observe(), self.say(np.zeros(2))

    def step(self, action):
        self.steps += 1
        self.at[:2] += 0.1 * action
        reward = self.compute_reward(self.at, self.goal, {})
        reached = self.say(action)["is_success"]
        return self.observe(), reward, reached, self.steps >= 20 and not reached, self.say(action)

    def compute_reward(self, achieved_goal, desired_goal, info, p=0.5):
        return -np.power(np.dot(np.abs(achieved_goal - desired_goal), np.array([1, 0.3, 0, 0, 0.02, 0.02])), p)

    def observe(self):
        return {"observation": self.at, "achieved_goal": self.at, "desired_goal": self.goal}

    def say(self, action):
        near = self.compute_reward(self.at, self.goal, {}) > -0.12
        return {"speed": 0.0, "crashed": False, "action": action, "is_success": near}


class Flappy(gymnasium.Env):
    """As flappy-bird-gymnasium: float64 numbers just outside of their bounds, rewards of several sizes, int flags."""

    def __init__(self):
        self.observation_space = spaces.Box(-1.0, 1.0, (12,), np.float64)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height, self.steps = 0.5, 0
        return self.observe(), {"score": 0}

    def step(self, action):
        self.steps += 1
        self.height += 0.1 if action == 1 else -0.06
        over = not 0 < self.height < 1
        reward = -1 if over else 1.0 if self.steps % 8 == 0 else 0.1
        return self.observe(), reward, int(over), False, {"score": self.steps // 8}

    def observe(self):
        return np.append(self.np_random.uniform(0, 1, 11), 1.2 * self.height)


class Tetris(gymnasium.Env):
    """As tetris-gymnasium: a Dict of uint8 boards (not images), integer rewards, flags of NumPy."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            board=spaces.Box(0, 9, (24, 18), np.uint8),
            active_tetromino_mask=spaces.Box(0, 1, (24, 18), np.uint8),
            holder=spaces.Box(0, 9, (4, 4), np.uint8),
            queue=spaces.Box(0, 9, (4, 16), np.uint8),
        )
        self.action_space = spaces.Discrete(8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board = np.zeros((24, 18), np.uint8)
        return self.observe(), {"lines_cleared": 0}

    def step(self, action):
        column = int(self.np_random.integers(4))
        free = int((self.board[:, column] == 0).sum())
        over = free == 0
        if not over:
            self.board[free - 1, column] = action + 1
        full = int((self.board != 0).all(axis=1).sum())
        return self.observe(), full**2 + np.int64(1), np.bool_(over), False, {"lines_cleared": full}

    def observe(self):
        zeros = np.zeros_like
        return {
            "board": self.board,
            "active_tetromino_mask": zeros(self.board),
            "holder": np.zeros((4, 4), np.uint8),
            "queue": np.zeros((4, 16), np.uint8),
        }


class Stocks(gymnasium.Env):
    """As gym-anytrading's stocks: a window (10, 2) of prices in float32, one start, an end by `truncated` alone."""

    def __init__(self):
        self.observation_space = spaces.Box(-1e10, 1e10, (10, 2), np.float32)
        self.action_space = spaces.Discrete(2)
        self.prices = (100 + np.cumsum(np.random.default_rng(0).normal(size=80))).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action_space.seed(int(self.np_random.uniform(0, seed if seed is not None else 1)))
        self.tick = 10
        return self.observe(), {"total_profit": 1.0, "position": "Short"}

    def step(self, action):
        self.tick += 1
        change = float(self.prices[self.tick - 1] - self.prices[self.tick - 2])
        done = self.tick == len(self.prices)
        return self.observe(), change if action else 0, False, done, {"total_profit": 1.0, "position": "Long"}

    def observe(self):
        window = self.prices[self.tick - 10 : self.tick]
        return np.column_stack([window, np.append(0, np.diff(window))]).astype(np.float32)
