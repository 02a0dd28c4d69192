"""Fixtures for the whole suite; ``fakes`` next to this file becomes importable by its presence."""

import gc

import fakes
import pytest

from minding.engine.process import runtime


def pytest_collection_finish():
    """Each compilation collects garbage: without this it would look through thousands of collected tests each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def prepared():
    """Graphs that tests compile themselves run as those of policies do."""
    if runtime.is_loaded():
        runtime.load()


@pytest.fixture
def counting_config(tiny_config):
    """A maker of configurations for chains over `fakes.CountingEnv` with two environments."""

    def make(algorithm="dqn", **overrides):
        return tiny_config(algorithm, fakes.space_of(3), **{"policy.collect.n_sample": 8, **overrides})

    return make


@pytest.fixture(scope="session")
def tiny_config():
    """A maker of small compiled configurations for spaces that no environment has to back.

    ``tiny_config("dqn", observation=..., action=..., **{"policy.learn.gamma": 0.9})``; hidden layers of 8.
    """
    return fakes.tiny_config
