"""Independent random streams, by name, from the one seed of a run."""

import hashlib
import warnings
from typing import Any

import numpy as np

from minding.engine.errors import CheckpointError, DamagedCheckpointError, whole_number
from minding.engine.types import StateDict


class SeedStreams:
    """Independent NumPy generators, one per name.

    The same seed and name give the same stream in every process and on every machine; adding a stream does not
    change the others.
    """

    def __init__(self, seed: int) -> None:
        self.seed = whole_number(seed, "seed must be an integer of 0 or more")

    def generator(self, name: str) -> np.random.Generator:
        """Returns the stream `name`, from its start."""
        # Python's own hash differs between processes.
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype="<u4")
        sequence = np.random.SeedSequence(entropy=self.seed, spawn_key=tuple(int(word) for word in words))
        return np.random.Generator(np.random.PCG64(sequence))

    def integers(self, name: str, n: int) -> list[int]:
        """Returns `n` integer seeds in ``[0, 2**31)``, for example for environments. A larger `n` only appends
        seeds."""
        return [int(seed) for seed in self.generator(name).integers(0, 2**31, size=n)]


def generator_state(generator: np.random.Generator) -> StateDict:
    """Returns the state of a generator as JSON values."""
    state: StateDict = _plain(generator.bit_generator.state)
    return state


def restore_generator(generator: np.random.Generator, state: StateDict) -> None:
    """Restores a generator in place to a state that `generator_state` returned."""
    expected = type(generator.bit_generator).__name__
    found = state.get("bit_generator")
    if found != expected:
        error = CheckpointError if hasattr(np.random, str(found)) else DamagedCheckpointError
        raise error(f"the saved generator state is of the kind {found!r}, but this run uses {expected}")
    with warnings.catch_warnings():
        # NumPy takes some numbers that are no state, and warns of others.
        warnings.simplefilter("error")
        try:
            generator.bit_generator.state = state
            if generator_state(generator) != state:
                raise ValueError("it is not the state of a generator")
        except (KeyError, TypeError, ValueError, OverflowError, Warning) as error:
            raise DamagedCheckpointError(f"the saved state of a {expected} generator is damaged: {error!r}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
