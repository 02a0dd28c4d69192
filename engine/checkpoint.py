"""Checkpoints: a folder with arrays (safetensors), everything else (JSON) and a manifest with checksums.

A checkpoint is written to a temporary folder, synced and renamed, so that a folder with the final name is whole.
Nothing on the load path runs code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.errors import CheckpointError
from minding.engine.types import StateDict

SCHEMA = 1
_MANIFEST, _ARRAYS, _STATE = "manifest.json", "arrays.safetensors", "state.json"
_ARRAY_KEY = "$array"
_CHECKSUM = "sha256"
_KINDS = "biuf"
"""Kinds of dtype (booleans, integers, floats) that can be stored."""


def save_checkpoint(path: Path, state: StateDict, info: Mapping[str, Any]) -> None:
    """Writes `state` to the new folder `path`.

    Args:
      path: must not exist.
      state: nested dicts with string keys; leaves are arrays or JSON values.
      info: JSON values for the manifest (counters, algorithm, versions).

    Raises:
      OSError: if the disk is full or the folder read-only; `path` does not exist then.
      CheckpointError: if a leaf is neither an array nor a JSON value.
    """
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _split(state, "", arrays)
    scratch = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        files = {_ARRAYS: save(arrays), _STATE: json.dumps(tree, allow_nan=True).encode()}
        entries = {name: {"size": len(data), "sha256": _sha256(data)} for name, data in files.items()}
        content = {"schema": SCHEMA, **info, "files": entries}
        manifest = json.dumps({**content, _CHECKSUM: _manifest_checksum(content)}, indent=2).encode()
        for name, data in {**files, _MANIFEST: manifest}.items():
            _write_synced(scratch / name, data)
        _sync_folder(scratch)
        os.rename(scratch, path)
        _sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def load_checkpoint(path: Path) -> tuple[StateDict, dict[str, Any]]:
    """Reads a checkpoint folder; returns (state, manifest).

    Raises:
      CheckpointError: if it is missing, damaged, or of another schema; names the file.
    """
    from safetensors.numpy import load

    manifest = read_manifest(path)
    data = {name: _verified(path / name, entry) for name, entry in manifest["files"].items()}
    arrays = load(data[_ARRAYS])
    return _join(json.loads(data[_STATE]), arrays), manifest


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder, without verifying the other files.

    Raises:
      CheckpointError: if there is none, it is damaged, or of another schema.
    """
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_bytes())
        checksum, schema = manifest.pop(_CHECKSUM, None), manifest["schema"]
        complete = {_ARRAYS, _STATE} <= set(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = type(error).__name__
        raise CheckpointError(f"{path}: no readable manifest ({what}); not a whole checkpoint") from error
    if checksum != _manifest_checksum(manifest):
        raise CheckpointError(f"{path}: damaged manifest (its checksum does not fit); not a whole checkpoint")
    if schema != SCHEMA or not complete:
        raise CheckpointError(f"{path}: checkpoint schema {schema!r}; this version reads schema {SCHEMA}")
    return manifest


def list_checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoint folders, oldest first (by the gradient step in their names)."""
    if not folder.is_dir():
        return []
    found = [p for p in folder.iterdir() if p.is_dir() and step_of(p) is not None]
    return sorted(found, key=lambda p: step_of(p) or 0)


def step_of(path: Path) -> int | None:
    """The gradient step in the name of a checkpoint folder, ``iter_<step>``; None for other names."""
    number = path.name.removeprefix("iter_")
    return int(number) if number != path.name and number.isdecimal() else None


def _manifest_checksum(content: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(content, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _verified(path: Path, entry: Mapping[str, Any]) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if len(data) != entry["size"] or _sha256(data) != entry["sha256"]:
        raise CheckpointError(f"{path}: damaged ({len(data)} bytes, {entry['size']} expected, or another checksum)")
    return data


def _split(node: Any, where: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The JSON part of a tree; arrays go into `arrays` under their path."""
    if isinstance(node, Mapping):
        for key in node:
            # JSON turns other keys into texts.
            if not isinstance(key, str) or key == _ARRAY_KEY:
                raise CheckpointError(f"state{where}: the key {key!r} cannot be saved; use another text")
        return {key: _split(child, f"{where}/{key}", arrays) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_split(child, f"{where}/{i}", arrays) for i, child in enumerate(node)]
    if isinstance(node, np.ndarray) and node.dtype.kind in _KINDS:
        if where in arrays:
            raise CheckpointError(f"state: two arrays are named {where!r}; use keys without '/'")
        arrays[where] = np.ascontiguousarray(node)
        # Making it contiguous turns a 0-d array into a row: the shape is kept beside it.
        return {_ARRAY_KEY: where, "shape": list(node.shape)}
    if isinstance(node, np.generic):
        return node.item()
    if node is None or isinstance(node, bool | int | float | str):
        return node
    what = f"{node.dtype} array" if isinstance(node, np.ndarray) else type(node).__name__
    raise CheckpointError(
        f"state{where}: a {what} cannot be saved; use arrays of numbers, numbers, strings, lists, dicts"
    )


def _join(node: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(node, dict):
        if _ARRAY_KEY in node:
            return np.array(arrays[node[_ARRAY_KEY]]).reshape(node["shape"])
        return {key: _join(child, arrays) for key, child in node.items()}
    if isinstance(node, list):
        return [_join(child, arrays) for child in node]
    return node
