"""The random state of the process while the user's code builds cells; it follows from the seed of the run."""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from minding.engine.process import runtime
from minding.engine.seeding import SeedStreams


@contextlib.contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """Seeds the global random streams from which cells draw initial parameters by default; restores them afterwards.

    These are MindSpore's seed (for initializers and operators such as dropout), NumPy's global stream, and Python's.
    The same seed and name give the same cells in every process.

    Args:
      seed: seed of the run.
      name: name of the object that is built.
    """
    runtime.load()
    # `from mindspore.common import seed` would import a function of that name.
    of_mindspore: Any = importlib.import_module("mindspore.common.seed")
    of_datasets: Any = importlib.import_module("mindspore.dataset").config

    numpys, pythons = np.random.get_state(), random.getstate()
    mindspores, datasets = of_mindspore.get_seed(), of_datasets.get_seed()
    given = SeedStreams(seed).integers(f"initial.{name}", 1)[0]
    try:
        of_mindspore.set_seed(given)
        random.seed(given)
        yield
    finally:
        of_datasets.set_seed(datasets)
        # MindSpore's own function does not accept None, the value at the start of a process.
        of_mindspore._GLOBAL_SEED = mindspores
        random.setstate(pythons)
        np.random.set_state(numpys)
