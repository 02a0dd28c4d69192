"""Fingerprints: are two runs bit-for-bit identical, and if not, where do they differ?"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.checkpoint import BlockArray
from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array, StateDict

_WALL_TIME = re.compile(r"(^|/)(\w+_)?seconds(/|$)")
"""Leaves that measure wall time."""


def fingerprint(state: StateDict) -> dict[str, str]:
    """SHA-256 of every leaf of a state: ``{'policy/params/net.weight': digest, ...}``.

    Two runs with equal fingerprints continue identically. Leaves that measure wall time are left out.

    Args:
      state: the state in a checkpoint, or any part of it.
    """
    found = dict(_leaves(state, ""))
    return {path: _digest(leaf) for path, leaf in found.items() if not _WALL_TIME.search(path)}


def tables_fingerprint(run_dir: RunDir) -> dict[str, str]:
    """SHA-256 of every column of metrics.csv and episodes.csv except wall times, as ``metrics/env_step``.

    A run on recorded data has no episodes.
    """
    tables = [run_dir.metrics, run_dir.episodes] if run_dir.episodes.exists() else [run_dir.metrics]
    return {
        f"{path.stem}/{name}": _digest(values)
        for path in tables
        for name, values in read_metrics(path).items()
        if not name.startswith("time/")
    }


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, child in node.items():
            yield from _leaves(child, f"{path}/{key}" if path else key)
    else:
        yield path, node


def _digest(leaf: Any) -> str:
    if isinstance(leaf, BlockArray):
        leaf = leaf.array
    if isinstance(leaf, np.ndarray):
        return _array_digest(leaf)
    return hashlib.sha256(json.dumps(leaf, sort_keys=True, default=repr).encode()).hexdigest()


def _array_digest(array: Array) -> str:
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
