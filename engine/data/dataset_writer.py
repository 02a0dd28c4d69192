"""Writes recorded data block by block, so that converted data never have to fit into memory as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from minding.engine.checkpoint.manifest import MANIFEST, SCHEMA, Entry, encode_manifest
from minding.engine.checkpoint.state_tree import split
from minding.engine.data.dataset import KIND, Dataset, check_dataset, joined
from minding.engine.data.episode import Episode
from minding.engine.data.scratch import Scratch
from minding.engine.errors import DataError
from minding.engine.paths import absolute
from minding.engine.types import Array

_BLOCK = 1 << 16
"""Approximate number of steps that are written at a time."""
_COPIED = 1 << 24
_KINDS = {"f": "F", "i": "I", "u": "U"}
"""Letters of NumPy's kinds of numbers in the names of safetensors, such as F32."""


class DatasetWriter(contextlib.AbstractContextManager["DatasetWriter"]):
    """Writes a folder of recorded data; use it in a ``with`` statement, at whose end the folder is complete or absent.

    Every block passes the same checks as data that are loaded.
    """

    def __init__(self, path: str | Path, about: Mapping[str, Any]) -> None:
        self.steps = self.episodes = 0
        self._path, self._about = absolute(path), dict(about)
        self._scratch = Scratch(self._path)
        self._columns: dict[str, _Column] = {}
        self._held: list[Episode] = []
        self._tree: Any = None

    def __enter__(self) -> DatasetWriter:
        with self._naming_the_folder():
            self._scratch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
                if not self.steps:
                    raise DataError(f"{str(self._path)!r}: expected at least one step to write, got none")
                with self._naming_the_folder():
                    self._finish()
        finally:
            for column in self._columns.values():
                column.file.close()
            self._scratch.__exit__()

    def add(self, episode: Episode) -> None:
        """Appends an episode; it may stay in memory until others follow."""
        self._held.append(episode)
        if sum(map(len, self._held)) >= _BLOCK:
            self._flush()

    def append(self, data: Dataset) -> None:
        """Appends the episodes of data."""
        check_dataset(data)
        parts = split({"data": {**data.arrays, "end": data.end + self.steps}})
        with self._naming_the_folder():
            if not self._columns:
                self._tree = parts.tree
                for number, (name, values) in enumerate(parts.arrays.items()):
                    self._columns[name] = _Column(self._scratch.folder / f"column-{number}", values)
            for name, values in parts.arrays.items():
                self._columns[name].append(values)
        self.steps += len(data)
        self.episodes += len(data.end)

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self.append(joined(held, self._about))

    def _finish(self) -> None:
        """Joins the columns into the files of a checkpoint, and gives the folder its name."""
        tag = secrets.token_hex(4)
        for name, column in self._columns.items():
            _leaf_of(self._tree, name)["shape"] = [column.rows, *column.shape]
        state = json.dumps(self._tree).encode()
        files: dict[str, Entry] = {f"arrays-{tag}.safetensors": self._write_arrays(f"arrays-{tag}.safetensors")}
        folder = self._scratch.claimed
        folder.write(f"state-{tag}.json", state)
        files[f"state-{tag}.json"] = {"size": len(state), "sha256": hashlib.sha256(state).hexdigest()}
        info = {"kind": KIND, "about": self._about, "steps": self.steps}
        content = {**split(info).tree, "schema": SCHEMA, "tag": tag, "files": files}
        folder.write(MANIFEST, encode_manifest(content))
        folder.sync_all(*files, MANIFEST)
        self._scratch.finish()

    def _write_arrays(self, name: str) -> Entry:
        # The widest numbers first, so that all of them are aligned to their size.
        columns = sorted(self._columns.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
        head, offset = {}, 0
        for key, column in columns:
            head[key] = {
                "dtype": _name_of(column.dtype),
                "shape": [column.rows, *column.shape],
                "data_offsets": [offset, offset + column.size],
            }
            offset += column.size
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        digest = hashlib.sha256()
        with open(self._scratch.folder / name, "xb") as file:
            for part in (len(text).to_bytes(8, "little"), text):
                file.write(part)
                digest.update(part)
            for _, column in columns:
                column.move_into(file, digest)
            size = file.tell()
        return {"size": size, "sha256": digest.hexdigest()}

    @contextlib.contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(f"{str(self._path)!r}: cannot write: {error.strerror}") from None


def save_dataset(path: str | Path, data: Dataset) -> None:
    """Writes data to a new folder, atomically and durably."""
    with DatasetWriter(path, data.about) as writer:
        writer.append(data)


class _Column:
    """The numbers of a growing array, in a file."""

    def __init__(self, path: Path, values: Array) -> None:
        self.path, self.file = path, open(path, "xb")  # noqa: SIM115
        self.dtype, self.shape = values.dtype, values.shape[1:]
        self.rows = self.size = 0

    def append(self, values: Array) -> None:
        if (values.dtype, values.shape[1:]) != (self.dtype, self.shape):
            raise ValueError(f"{values.dtype} {values.shape[1:]} follows {self.dtype} {self.shape}")
        self.file.write(np.ascontiguousarray(values).data)
        self.rows += len(values)
        self.size += values.nbytes

    def move_into(self, target: IO[bytes], digest: Any) -> None:
        """Appends its rows to a file, and removes its own file."""
        self.file.close()
        with open(self.path, "rb") as source:
            while part := source.read(_COPIED):
                target.write(part)
                digest.update(part)
        os.unlink(self.path)


def _name_of(dtype: np.dtype[Any]) -> str:
    return "BOOL" if dtype == np.bool_ else f"{_KINDS[dtype.kind]}{8 * dtype.itemsize}"


def _leaf_of(tree: Any, name: str) -> dict[str, Any]:
    """The place in a tree by `split` that names an array."""
    if isinstance(tree, dict):
        if tree.get("$array") == name:
            return tree
        for child in tree.values():
            if found := _leaf_of(child, name):
                return found
    return {}
