"""Small environments with known answers, for the tests of managers; importable as ``worlds:Counter``."""

import os
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from agent_worlds import Mixed, Nobody, Shared, Squad  # noqa: F401
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from pettingzoo import ParallelEnv


class OfPettingZoo(Mixed, ParallelEnv):
    """Returns new objects as its spaces with each call."""


class Counter(gymnasium.Env):
    """Observation (start, steps so far); an episode has 2 to 6 steps, and its length comes from the seed.

    The reward of step k is k. Episodes of even length terminate, those of odd length are truncated.
    """

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(2, 7))
        self.start = float(self.np_random.integers(1_000_000))
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        return (self.observe(), float(self.steps), over and self.length % 2 == 0, over and self.length % 2 == 1, {})

    def observe(self):
        return np.array([self.start, self.steps], np.float32)


def answering(world, change):
    """A class of environments whose steps answer what `change` makes of those of `world`."""
    return type(world.__name__, (world,), {"step": lambda self, actions: change(world.step(self, actions))})


class Small(Counter):
    """Observes numbers that a network takes as they are."""

    def observe(self):
        return np.array([self.start / 1_000_000, self.steps], np.float32)


class Late(Counter):
    """Endless; the reward is 0 for `zeros` steps and 1 after them."""

    def __init__(self, zeros):
        super().__init__()
        self.zeros = zeros

    def step(self, action):
        self.steps += 1
        return self.observe(), float(self.steps > self.zeros), False, False, {}


class Both(Counter):
    """Every step terminates and is truncated."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, True, True, {}


class Echo(gymnasium.Env):
    """Observation (own tag, steps, last action); steps and resets take a random time. Episodes of 7 steps."""

    def __init__(self, delay=0.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1000.0, 1000.0, (1,), np.float32)
        self.delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.tag, self.steps = float(self.np_random.integers(1 << 20)), 0
        self.wait()
        return np.array([self.tag, 0, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        self.wait()
        return np.array([self.tag, self.steps, action[0]], np.float32), 1.0, self.steps == 7, False, {}

    def wait(self):
        time.sleep(float(self.np_random.uniform(0, self.delay)))


class Recycler(Counter):
    """Writes every observation into the same array."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def observe(self):
        self.array[:] = self.start, self.steps
        return self.array


class Nested(gymnasium.Env):
    """Dict of an image, a tuple and a dict; every leaf tells the step."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            camera=spaces.Box(0, 255, (1, 2, 2), np.uint8),
            joint=spaces.Dict(position=spaces.Box(-1e3, 1e3, (3,), np.float64)),
            pair=spaces.Tuple((spaces.Discrete(100, start=10), spaces.MultiBinary(2))),
        )
        self.action_space = spaces.MultiDiscrete([3, 2])
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), float(action[0] * 10 + action[1]), self.steps == 3, False, {}

    def observe(self):
        return {
            "camera": np.full((1, 2, 2), self.steps, np.uint8),
            "joint": {"position": np.full(3, self.steps / 4)},
            "pair": (10 + self.steps, np.array([1, 0], np.int8)),
        }


class Faulty(Counter):
    """Goes wrong at step `at` (of 6) of every episode whose start is below `share` of a million."""

    def __init__(self, kind="raise", at=3, share=1.0):
        super().__init__()
        self.kind, self.at, self.share = kind, at, share

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.length = 6
        return obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps == self.at and self.start < self.share * 1_000_000:
            if self.kind == "raise":
                raise RuntimeError("motor stalled")
            if self.kind == "hang":
                time.sleep(60)
            if self.kind == "die":
                os._exit(3)
            obs = {"nan": obs * np.nan, "shape": obs[:1], "dtype": obs.astype(complex)}.get(self.kind, obs)
            reward = np.inf if self.kind == "reward" else reward
        return obs, reward, terminated, truncated, info


class Modules(Counter):
    """Observation: (1 if MindSpore is imported in this process, 1 if treevalue is)."""

    def observe(self):
        return np.array([name in sys.modules for name in ("mindspore", "treevalue")], np.float32)


class Unseeded(Counter):
    """Ignores its seed."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if hasattr(self, "start") else int.from_bytes(os.urandom(4), "little"))


class Clocked(Counter):
    """Shows how long an episode has taken."""

    def reset(self, **kwargs):
        self.begin = time.perf_counter()
        return super().reset(**kwargs)

    def observe(self):
        return np.array([time.perf_counter() - self.begin, self.steps], np.float32)


def normalized_obs():
    """Keeps a running mean of observations from episode to episode."""
    return NormalizeObservation(Counter())


def normalized_reward():
    """Keeps a running scale of rewards from episode to episode."""
    return NormalizeReward(Counter())


class Shortening(Counter):
    """From its third episode on, an episode ends after its first step."""

    episodes = 0

    def reset(self, **kwargs):
        self.episodes += 1
        return super().reset(**kwargs)

    def step(self, action):
        obs, reward, terminated, *rest = super().step(action)
        return obs, reward, terminated or self.episodes > 2, *rest


class Switches(Counter):
    """Earns the number of switches that are on.

    Args:
      masked: info holds a mask that leaves only on.
    """

    def __init__(self, masked=False):
        super().__init__()
        self.action_space = spaces.MultiBinary((2, 2))
        self.masked = masked

    def info(self):
        return {"action_mask": np.tile(np.array([0, 1], np.int8), 4)} if self.masked else {}

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], self.info()

    def step(self, action):
        assert self.action_space.contains(action)
        obs, _, *ends, _ = super().step(0)
        return obs, float(action.sum()), *ends, self.info()


class Torque(gymnasium.Env):
    """Action in [-2, 6] x [0, 1]; the observation is the action it got."""

    def __init__(self, high=6.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([high, 1.0]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return action.astype(np.float32), 0.0, False, False, {}


class Stock(gymnasium.Env):
    """A shop orders 0 to 50 units a day, and sells what is asked for: 20 a day on average, for 100 days.

    It observes its cash, which begins at 20,000, its stock, what was asked for yesterday, and the day. The reward is
    the change of cash: 10 for a unit sold, -6 for one ordered, -0.5 for one in stock. Random orders lose about 10,400,
    and an order that fills the stock up to 50 earns 6,400.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cash, self.stock, self.asked, self.day = 20_000.0, 40, 20, 0
        return self.observe(), {}

    def step(self, action):
        self.day += 1
        self.asked = int(self.np_random.poisson(20))
        sold = min(self.asked, self.stock)
        self.stock += 10 * int(action) - sold
        earned = 10.0 * sold - 60.0 * action - 0.5 * self.stock
        self.cash += earned
        return self.observe(), float(earned), False, self.day == 100, {}

    def observe(self):
        return np.array([self.cash, self.stock, self.asked, self.day], np.float32)


class Queue(gymnasium.Env):
    """Serves up to four callers of one of two queues in each of 100 steps.

    It observes how many wait in each queue, at most 40; 1.5 and 2.5 come in a step on average. A caller who is served
    earns 100,000 or 40,000, and one who waits costs 4,000 or 2,000. Random service earns 15.4 million, and service of
    the first queue from three callers on 19.0 million.
    """

    observation_space = spaces.Box(0, 40, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.waiting, self.steps = np.zeros(2), 0
        return self.waiting.astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        served = min(self.waiting[action], 4)
        self.waiting[action] -= served
        self.waiting = np.minimum(self.waiting + self.np_random.poisson((1.5, 2.5)), 40)
        reward = (100_000, 40_000)[action] * served - self.waiting @ (4_000, 2_000)
        return self.waiting.astype(np.float32), float(reward), False, self.steps == 100, {}


class Slowpoke(Counter):
    """Every step takes `seconds`."""

    def __init__(self, seconds=0.0):
        super().__init__()
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


class DiesAtFirst(Counter):
    """Kills or stops its process in the reset of as many as `folder` holds files, each of which it removes."""

    def __init__(self, folder, how):
        super().__init__()
        self.folder, self.how = Path(folder), how

    def reset(self, **kwargs):
        for file in self.folder.iterdir():
            file.unlink()
            os.kill(os.getpid(), self.how)
        return super().reset(**kwargs)


class Permit(Counter):
    """In each state one of the actions 2, 3, 4 is legal, the others are a ValueError; `rule` says which.

    At a true end none is legal. `info` also says `success` (whether the episode has reached its end) and `spot`.

    Args:
      place: where the mask is: 'info', or 'obs' as an entry of a Dict.
      bad: what is wrong with the mask from the second step on: 'empty', 'float', 'shape', 'missing', or 'two'.
    """

    def __init__(self, place="info", bad=None):
        super().__init__()
        self.place, self.bad = place, bad
        self.action_space = spaces.Discrete(3, start=2)
        if place == "obs":
            mask = spaces.Box(0, 1, (3,), np.int8)
            self.observation_space = spaces.Dict(observation=self.observation_space, action_mask=mask)

    @staticmethod
    def rule(start, steps):
        """The legal action, counted from 0."""
        return np.asarray(start + steps, int) % 3

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, self.say(False)

    def step(self, action):
        if action != 2 + self.rule(self.start, self.steps):
            raise ValueError(f"{action} is illegal")
        _, reward, terminated, truncated, _ = super().step(action)
        info = self.say(terminated)
        return self.observe(terminated), reward, terminated, truncated, info

    def mask(self, terminated):
        mask = np.zeros(3, np.int8)
        mask[self.rule(self.start, self.steps)] = not terminated
        if self.bad is None or self.steps < 2 or self.steps == self.length:
            return mask
        return {"empty": mask * 0, "float": mask.astype(float), "shape": mask[:2], "two": mask * 2}.get(self.bad)

    def observe(self, terminated=False):
        obs = super().observe()
        return obs if self.place == "info" else {"observation": obs, "action_mask": self.mask(terminated)}

    def say(self, terminated):
        info = {"success": self.steps == self.length, "spot": np.array([self.start, self.steps])}
        if self.place == "info" and not (self.bad == "missing" and self.steps == 2):
            info["action_mask"] = self.mask(terminated)
        return info
