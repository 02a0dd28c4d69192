"""Tasks for defaults against defaults that no library was tuned on: large scales and offsets, an image beside a vector,
and places that are mostly empty.

Gymnasium and NumPy only, so that other libraries train on the same code.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Float = np.ndarray[Any, np.dtype[np.float32]]


class Servers(gym.Env[Float, int]):
    """A queue of jobs whose rewards are of the order of 1e5: how many of four servers run in the next hour?

    An hour brings 7 + 5 sin(2 pi t / 24) jobs on average (Poisson), a server finishes at most four of them. A finished
    job earns 20,000, a running server costs 45,000 and a waiting job 6,000; the queue holds 60 jobs. An episode has
    168 hours, a week.

    Observation: float32 (3,), waiting jobs (0 to 60), sine and cosine of the hour. Action: 0 to 4 servers.
    """

    HOURS, PLACES, RATE = 168, 60, 4

    def __init__(self) -> None:
        low, high = np.array([0, -1, -1], np.float32), np.array([self.PLACES, 1, 1], np.float32)
        self.observation_space = spaces.Box(low, high)
        self.action_space = spaces.Discrete(5)
        self._hour = self._waiting = 0

    def _observation(self) -> Float:
        angle = 2 * math.pi * self._hour / 24
        return np.array([self._waiting, math.sin(angle), math.cos(angle)], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float, dict[str, Any]]:
        super().reset(seed=seed)
        self._hour, self._waiting = 0, int(self.np_random.integers(10))
        return self._observation(), {}

    def step(self, action: int) -> tuple[Float, float, bool, bool, dict[str, Any]]:
        finished = min(self._waiting, self.RATE * int(action))
        arrived = self.np_random.poisson(7 + 5 * math.sin(2 * math.pi * self._hour / 24))
        self._waiting = min(self._waiting - finished + int(arrived), self.PLACES)
        reward = 20_000.0 * finished - 45_000.0 * int(action) - 6_000.0 * self._waiting
        self._hour += 1
        return self._observation(), reward, False, self._hour >= self.HOURS, {}


class Warehouse(gym.Env[Float, Float]):
    """A stock of goods whose observation holds cash in the ten thousands: how much is ordered for tomorrow?

    Demand is Poisson with a mean of 60 + 30 sin(2 pi t / 30); a sold piece earns 20, an ordered one costs 12, and a
    piece that stays over night 1. The reward is the change in cash. The stock holds 400 pieces; an episode has 120
    days and begins with cash of 30,000.

    Observation: float32 (4,), stock, cash, sine and cosine of the day. Action: float32 (1,) in [-1, 1], from 0 to 200
    pieces.
    """

    DAYS, PLACES, LARGEST = 120, 400, 200

    def __init__(self) -> None:
        low, high = np.array([0, -1e6, -1, -1], np.float32), np.array([self.PLACES, 1e6, 1, 1], np.float32)
        self.observation_space = spaces.Box(low, high)
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self._day, self._stock, self._cash = 0, 0, 0.0

    def _observation(self) -> Float:
        angle = 2 * math.pi * self._day / 30
        return np.array([self._stock, self._cash, math.sin(angle), math.cos(angle)], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float, dict[str, Any]]:
        super().reset(seed=seed)
        self._day, self._stock, self._cash = 0, int(self.np_random.integers(100)), 30_000.0
        return self._observation(), {}

    def step(self, action: Float) -> tuple[Float, float, bool, bool, dict[str, Any]]:
        wanted = round((float(action[0]) + 1) / 2 * self.LARGEST)
        ordered = min(max(wanted, 0), self.PLACES - self._stock)
        demand = int(self.np_random.poisson(60 + 30 * math.sin(2 * math.pi * self._day / 30)))
        sold = min(self._stock, demand)
        self._stock += ordered - sold
        reward = 20.0 * sold - 12.0 * ordered - 1.0 * self._stock
        self._cash += reward
        self._day += 1
        return self._observation(), reward, False, self._day >= self.DAYS, {}


class Room(gym.Env[Float, int]):
    """A room whose temperatures are in kelvin: how much is heated in the next half hour?

    The room loses a twentieth of its difference to the outside and gains 0.6 K per level of heating, which costs half
    the price. Each kelvin beyond 1 around 294 costs 60. An episode has 96 half hours.

    Observation: float32 (5,), temperature inside and outside, price from 50 to 350, sine and cosine of the hour.
    Action: level of heating, 0 to 3.
    """

    STEPS = 96

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1e4, 1e4, (5,))
        self.action_space = spaces.Discrete(4)
        self._step = 0
        self._usual = self._inside = self._outside = self._price = 0.0

    def _observation(self) -> Float:
        angle = 2 * math.pi * self._step / 48
        return np.array([self._inside, self._outside, self._price, math.sin(angle), math.cos(angle)], np.float32)

    def _change_weather(self) -> None:
        angle = 2 * math.pi * self._step / 48
        self._outside = self._usual - 5 * math.cos(angle) + self.np_random.normal()
        self._price = float(np.clip(200 - 100 * math.cos(2 * angle) + 30 * self.np_random.normal(), 50, 350))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._usual = 0, 278 + 4 * self.np_random.normal()
        self._inside = 293 + self.np_random.normal()
        self._change_weather()
        return self._observation(), {}

    def step(self, action: int) -> tuple[Float, float, bool, bool, dict[str, Any]]:
        cost = 0.5 * self._price * int(action)
        self._inside += 0.05 * (self._outside - self._inside) + 0.6 * int(action)
        self._step += 1
        self._change_weather()
        reward = -cost - 60 * max(0.0, abs(self._inside - 294) - 1)
        return self._observation(), reward, False, self._step >= self.STEPS, {}


class Spot(gym.Env[dict[str, Any], int]):
    """A spot on an image is to be reached by a walker whose place only a vector tells.

    A store of 6 x 6 squares; the image has 6 x 6 pixels a square. A reached spot gives 1 and another one appears, each
    step costs 0.02. An episode has 60 steps.

    Observation: `image` uint8 (1, 36, 36), `place` float32 (2,), row and column from 0 to 1. Action: stay, up, down,
    left, right.
    """

    STEPS, SQUARES, PIXELS = 60, 6, 6
    MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self) -> None:
        side = self.SQUARES * self.PIXELS
        image = spaces.Box(0, 255, (1, side, side), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "place": spaces.Box(0.0, 1.0, (2,))})
        self.action_space = spaces.Discrete(len(self.MOVES))
        self._step = 0
        self._place = self._spot = np.zeros(2, np.int64)

    def _draw(self) -> np.ndarray[Any, Any]:
        while True:
            square = self.np_random.integers(self.SQUARES, size=2)
            if (square != self._place).any():
                return square

    def _observation(self) -> dict[str, Any]:
        image = np.zeros(self.observation_space["image"].shape, np.uint8)  # type: ignore[index]
        row, column = self._spot * self.PIXELS
        image[0, row : row + self.PIXELS, column : column + self.PIXELS] = 255
        return {"image": image, "place": (self._place / (self.SQUARES - 1)).astype(np.float32)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._place = 0, self.np_random.integers(self.SQUARES, size=2)
        self._spot = self._draw()
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self._place = np.clip(self._place + self.MOVES[int(action)], 0, self.SQUARES - 1)
        reward = -0.02
        if (self._place == self._spot).all():
            reward += 1.0
            self._spot = self._draw()
        self._step += 1
        return self._observation(), reward, False, self._step >= self.STEPS, {}


class Dispatcher(gym.Env[dict[str, Any], int]):
    """Ten places for jobs, most of them empty: which job is worked on in the next hour?

    A job arrives in an hour with a probability of 0.3, if there is a free place. It needs 1 to 4 hours of work, has a
    weight of 1 to 5, and is due 0 to 8 hours after it could be done. A finished job earns 2; each hour that a job is
    overdue costs its weight. An episode has 200 hours.

    Observation: `observation` float32 (80,), for each place eight numbers, all 0 if it is empty: 1, hours of work that
    are left, hours until it is due, weight, hours since it arrived, and its kind as three numbers, which has no effect;
    `action_mask` int8 (11,). Action: rest, or the place of a job.
    """

    HOURS, PLACES, NUMBERS, ARRIVALS = 200, 10, 8, 0.3

    def __init__(self) -> None:
        numbers = spaces.Box(-self.HOURS, self.HOURS, (self.PLACES * self.NUMBERS,))
        mask = spaces.MultiBinary(self.PLACES + 1)
        self.observation_space = spaces.Dict({"observation": numbers, "action_mask": mask})
        self.action_space = spaces.Discrete(self.PLACES + 1)
        self._hour, self._jobs = 0, np.zeros((self.PLACES, self.NUMBERS), np.float32)

    def _arrive(self) -> None:
        free = np.flatnonzero(self._jobs[:, 0] == 0)
        if len(free) and self.np_random.random() < self.ARRIVALS:
            work, weight, spare, kind = self.np_random.integers([1, 1, 0, 0], [5, 6, 9, 3])
            self._jobs[self.np_random.choice(free)] = [1, work, work + spare, weight, 0, *np.eye(3)[kind]]

    def _observation(self) -> dict[str, Any]:
        mask = np.append(1, self._jobs[:, 0]).astype(np.int8)
        return {"observation": self._jobs.ravel().copy(), "action_mask": mask}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._hour, self._jobs[:] = 0, 0
        self._arrive()
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        jobs, reward = self._jobs, 0.0
        if action and jobs[action - 1, 0]:
            jobs[action - 1, 1] -= 1
            if not jobs[action - 1, 1]:
                jobs[action - 1], reward = 0, 2.0
        there = jobs[:, 0] == 1
        jobs[there, 2] -= 1
        jobs[there, 4] += 1
        reward -= float(jobs[jobs[:, 2] < 0, 3].sum())
        self._arrive()
        self._hour += 1
        return self._observation(), reward, False, self._hour >= self.HOURS, {}
