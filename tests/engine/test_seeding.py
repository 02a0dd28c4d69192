"""Seed streams and generator states."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from minding.engine import CheckpointError, ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
ENV_SEEDS = [1223826980, 2093511061, 1766229787]
ACT_NUMBERS = [98, 678, 985, 426]


def test_the_same_seed_and_name_give_the_same_numbers_for_ever():
    assert SeedStreams(0).integers("env", 3) == ENV_SEEDS
    assert SeedStreams(0).generator("act").integers(0, 1000, 4).tolist() == ACT_NUMBERS


def test_another_process_draws_the_same_numbers():
    code = "from minding.engine.seeding import SeedStreams; print(SeedStreams(0).integers('env', 3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENV)
    assert json.loads(done.stdout) == ENV_SEEDS


def test_names_and_seeds_make_different_streams():
    streams = [SeedStreams(seed).integers(name, 4) for seed in (0, 1) for name in ("env", "eval", "env2")]
    assert len({tuple(stream) for stream in streams}) == 6


def test_the_first_environment_seeds_do_not_depend_on_how_many_there_are():
    seeds = SeedStreams(7).integers("env", 100)
    assert seeds[:5] == SeedStreams(7).integers("env", 5)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert all(type(seed) is int for seed in seeds)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True])
def test_a_seed_must_be_an_integer_of_0_or_more(seed):
    with pytest.raises(ConfigError, match="seed must be an integer of 0 or more, got"):
        SeedStreams(seed)


def test_a_numpy_integer_is_a_seed():
    assert SeedStreams(np.int64(3)).integers("env", 2) == SeedStreams(3).integers("env", 2)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_a_generator_goes_on_where_its_saved_state_stood(kind):
    generator, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    generator.integers(0, 10, 3, dtype=np.int32)
    state = json.loads(json.dumps(generator_state(generator)))
    restore_generator(other, state)
    assert other.random(5).tolist() == generator.random(5).tolist()


def test_the_state_of_another_kind_of_generator_is_refused():
    state = generator_state(np.random.Generator(np.random.MT19937(1)))
    with pytest.raises(CheckpointError, match="is of the kind 'MT19937', but this run uses PCG64"):
        restore_generator(np.random.default_rng(1), state)


def test_a_damaged_state_is_refused():
    state = generator_state(np.random.default_rng(1))
    del state["state"]["inc"]
    with pytest.raises(CheckpointError, match="damaged"):
        restore_generator(np.random.default_rng(1), state)
