"""Seed streams and generator states."""

import functools
import json

import numpy as np
import pytest
from fakes import refuses

from minding.engine import CheckpointError
from minding.engine.errors import DamagedCheckpointError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator

ENV_SEEDS = [1223826980, 2093511061, 1766229787]
ACT_NUMBERS = [98, 678, 985, 426]


def test_the_same_seed_and_name_give_the_same_numbers():
    assert SeedStreams(0).integers("env", 3) == ENV_SEEDS
    assert SeedStreams(0).generator("act").integers(0, 1000, 4).tolist() == ACT_NUMBERS
    streams = [SeedStreams(seed).integers(name, 4) for seed in (0, 1) for name in ("env", "eval", "env2")]
    assert len({tuple(stream) for stream in streams}) == 6
    seeds = SeedStreams(7).integers("env", 100)
    assert seeds[:5] == SeedStreams(7).integers("env", 5)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert all(type(seed) is int for seed in seeds)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_a_generator_goes_on_where_its_saved_state_stood(kind):
    generator, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    generator.integers(0, 10, 3, dtype=np.int32)
    state = json.loads(json.dumps(generator_state(generator)))
    restore_generator(other, state)
    assert other.random(5).tolist() == generator.random(5).tolist()


def test_a_damaged_or_foreign_generator_state_is_refused():
    other, damaged = (generator_state(np.random.Generator(kind(1))) for kind in (np.random.MT19937, np.random.PCG64))
    del damaged["state"]["inc"]
    fresh = np.random.default_rng(1)
    refuses(CheckpointError, ("'MT19937'", lambda: restore_generator(fresh, other)))
    refuses(DamagedCheckpointError, ("damaged", lambda: restore_generator(fresh, damaged)))
    # NumPy takes some of these, and sets another state.
    for key, value in (("uinteger", "x"), ("uinteger", 3.5), ("inc", -1), ("state", [])):
        forged = generator_state(fresh)
        (forged["state"] if key in ("inc", "state") else forged)[key] = value
        refuses(DamagedCheckpointError, ("damaged", functools.partial(restore_generator, fresh, forged)))
