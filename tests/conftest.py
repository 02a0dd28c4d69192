"""Fixtures for the whole suite; ``fakes`` next to this file becomes importable by its presence."""

import pytest
from fakes import VECTOR, discrete, space_of

from minding.engine.config import compile_config
from minding.policies import get_algorithm


@pytest.fixture
def counting_config(tiny_config):
    """A maker of configurations for chains over `fakes.CountingEnv` with two environments."""

    def make(algorithm="dqn", **overrides):
        return tiny_config(algorithm, space_of(3), **{"policy.collect.n_sample": 8, **overrides})

    return make


@pytest.fixture(scope="session")
def tiny_config():
    """A maker of small compiled configurations for spaces that no environment has to back.

    ``tiny_config("dqn", observation=..., action=..., **{"policy.learn.gamma": 0.9})``; hidden layers of 8.
    """

    def make(algorithm, observation=VECTOR, action=None, seed=0, **overrides):
        entry = get_algorithm(algorithm)
        if action is None:
            action = discrete(3) if "discrete" in entry.actions else space_of(2)
        spec = {"observation": observation, "action": action, "max_episode_steps": 10, "num_agents": 1}
        user = {
            "seed": seed,
            "env": {"env_id": "none", "collector_env_num": 2, "evaluator_env_num": 2},
            "policy": {"type": algorithm, "model": {"hidden": [8], "cnn_dim": 8, "encoder_dim": 4}},
        }
        texts = [f"{key}={'null' if value is None else value}" for key, value in overrides.items()]
        return compile_config(user, entry, lambda env: spec, overrides=texts)

    return make
