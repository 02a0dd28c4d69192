"""Makes ``worlds`` importable here and, through `sys.path`, in worker processes."""

import sys
from pathlib import Path

import pytest

from minding.envs import make_env_manager

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def make():
    """`make_env_manager` for a class of worlds.py; closes what it made."""
    made = []

    def make_manager(world, num_envs=2, seed=0, training=True, **env):
        env_id = world if "-v" in world else f"worlds:{world}"
        made.append(make_env_manager({"env_id": env_id, **env}, num_envs, seed, training=training))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()
