"""Recorded data for tests: episodes as a program logs them, descriptions of environments, folders with any content."""

import numpy as np
from fakes import discrete, space_of

from minding.engine.checkpoint import save_checkpoint
from minding.engine.data.dataset import Dataset


def log(steps, action, **changes):
    """An episode as `Dataset.of_episodes` takes it; its observations are pairs of successive numbers."""
    obs = np.arange(2.0 * (steps + 1)).reshape(-1, 2)
    parts = {"obs": obs, "action": action, "reward": np.ones(steps), "terminated": True, "truncated": False}
    return {**parts, **changes}


def described(observation=None, action=None, **changes):
    """The description of an environment: two numbers are seen, and one in [-1, 1] is done."""
    action = {**space_of(1), "rescaled": True} if action is None else action
    spaces = {"observation": observation or space_of(2, low=-np.inf, high=np.inf), "env_action": action}
    return {"env_id": "Toy-v0", "wrappers": [], "env_kwargs": {}, "max_episode_steps": None, **spaces, **changes}


def choices(n):
    """The description of actions that are one of n."""
    return {**discrete(n), "shape": [], "dtype": "int64"}


def dataset(episodes, observation=None, action=None):
    """Recorded data of an environment that need not exist."""
    return Dataset.of_episodes(episodes, described(observation, action))


def save_unchecked(path, data, **info):
    """A folder of recorded data with right checksums, whatever the data are."""
    save_checkpoint(path, {"data": data.arrays}, {"kind": "recorded data", "about": data.about, "steps": 5, **info})
