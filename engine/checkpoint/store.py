"""Writing, verifying and reading one checkpoint folder."""

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint.manifest import (
    MANIFEST,
    OWN_FILE,
    SCHEMA,
    Entry,
    encode_manifest,
    read_manifest,
    read_verified,
    sha256,
    verify_file,
)
from minding.engine.checkpoint.state_tree import Parts, join, split
from minding.engine.errors import CheckpointError, DamagedCheckpointError
from minding.engine.files import Folder, hidden
from minding.engine.types import Array, StateDict

_ROWS = "rows"
_THREADS = 4
_DTYPES: dict[str, type[Any]] = {
    **{"BOOL": np.bool_, "F16": np.float16, "F32": np.float32, "F64": np.float64},
    **{"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64},
    **{"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64},
}
"""NumPy's dtypes by their names in safetensors."""
_MAX_JSON = 1 << 22
"""Maximum size in bytes of the JSON part of a state, and of the header of a file of arrays."""


MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Exceptions of Python for values that are not what their reader expects."""


def first_line(error: BaseException) -> str:
    """The message of an error, as one line of limited length."""
    return " ".join(f"{type(error).__name__}: {error}"[:300].split())


def save_checkpoint(path: Path, state: StateDict, info: Mapping[str, Any], *, previous: Path | None = None) -> None:
    """Writes `state` to the checkpoint folder `path`; once it has returned, a power failure does not undo it. A
    checkpoint of that name is replaced: its files stay until one atomic step has replaced the old manifest by the new
    one, so that at every moment one of the two can be loaded."""
    (parts, text), notes = _taken_apart(state), split(info).tree
    scratch, tag = hidden(path).name, secrets.token_hex(4)
    with Folder(path.parent, make=True) as folder:
        folder.discard_leftovers()
        try:
            with folder.folder(scratch, new=True) as fresh:
                entries, written = _write_files(fresh, tag, parts, text, previous)
                content = {**notes, "schema": SCHEMA, "tag": tag, "files": entries}
                fresh.write(MANIFEST, encode_manifest(content))
                fresh.sync_all(*written, MANIFEST)
                if folder.status(path.name) is not None:
                    with folder.folder(path.name) as old:
                        _move(fresh, old, list(entries))
                    folder.discard(scratch)
                    return
            folder.rename(scratch, path.name)
            folder.sync()
        except BaseException:
            folder.discard(scratch)
            raise


def check_savable(state: StateDict) -> None:
    """Refuses a state that `save_checkpoint` would refuse, and writes nothing; raises its CheckpointError."""
    _taken_apart(state)


def _taken_apart(state: StateDict) -> tuple[Parts, bytes]:
    """The parts of a state, and their JSON text."""
    parts = split(state)
    text = json.dumps(parts.tree, allow_nan=True).encode()
    if len(text) > _MAX_JSON:
        raise CheckpointError(f"the state has {len(text):,} bytes of JSON, at most {_MAX_JSON:,} are read: use arrays")
    return parts, text


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Reads all files of a checkpoint and compares their sizes and checksums; returns the manifest."""
    manifest = read_manifest(path)
    with _readers() as pool:
        jobs = [pool.submit(read_verified, path / name, entry) for name, entry in manifest["files"].items()]
        _wait(jobs)
    return manifest


def load_checkpoint(path: Path) -> tuple[StateDict, dict[str, Any]]:
    """Reads and verifies a checkpoint folder; returns (state, manifest). It never takes more memory than the size of
    the files, whatever their contents claim."""
    manifest = read_manifest(path)
    files, tag = manifest["files"], manifest["tag"]
    jobs: list[Future[Any]] = []

    def read(name: str) -> bytes:
        if name not in files:
            raise ValueError(f"its manifest names no {name}")
        return read_verified(path / name, files[name])

    def read_arrays(name: str) -> dict[str, Array]:
        return arrays_of(read(name))[0]

    def read_block(number: int, rows: Array) -> None:
        block = read_arrays(_block_name(number, tag))[_ROWS]
        if (block.shape, block.dtype) != (rows.shape, rows.dtype):
            raise ValueError(f"block {number} is {block.dtype} {block.shape}, expected {rows.dtype} {rows.shape}")
        np.copyto(rows, block)

    def fill(number: int, rows: Array) -> None:
        jobs.append(pool.submit(read_block, number, rows))

    try:
        with _readers() as pool:
            text = read(_state_name(tag))
            if len(text) > _MAX_JSON:
                raise ValueError(f"{_state_name(tag)} is too long")
            stored = sum(entry["size"] for name, entry in files.items() if name.startswith("block-"))
            state = join(json.loads(text), read_arrays(_arrays_name(tag)), fill, stored)
            _wait(jobs)
    except MISFITS as error:
        raise DamagedCheckpointError(f"{path}: its files do not fit together ({first_line(error)})") from error
    return state, manifest


def saved_settings(path: Path) -> dict[str, Any]:
    """The settings of the run in a checkpoint's state, without its arrays."""
    manifest = read_manifest(path)
    name = _state_name(manifest["tag"])
    try:
        found: dict[str, Any] = json.loads(read_verified(path / name, manifest["files"][name]))["config"]
        if not isinstance(found, dict):
            raise ValueError("its state holds no settings")
        return found
    except MISFITS as error:
        raise DamagedCheckpointError(f"{path}: its files do not fit together ({first_line(error)})") from error


def map_checkpoint(path: Path) -> tuple[StateDict, dict[str, Any]]:
    """Loads a checkpoint with its arrays mapped from their file, read-only, so that only used parts are read."""
    manifest = read_manifest(path)
    files, tag = manifest["files"], manifest["tag"]
    try:
        names = _state_name(tag), _arrays_name(tag)
        if sorted(files) != sorted(names):
            raise ValueError(f"it has the files {sorted(files)}, expected {sorted(names)}")
        text = read_verified(path / names[0], files[names[0]])
        if len(text) > _MAX_JSON:
            raise ValueError(f"{names[0]} is too long")
        verify_file(path / names[1], files[names[1]])
        mapped = np.asarray(np.memmap(path / names[1], np.uint8, "r"))
        state = join(json.loads(text), arrays_of(mapped)[0], _no_blocks, 0, copy=False)
    except (*MISFITS, OSError) as error:
        raise DamagedCheckpointError(f"{path}: its files do not fit together ({first_line(error)})") from error
    return state, manifest


def _no_blocks(number: int, rows: Array) -> None:
    raise ValueError("it has blocks")


def arrays_of(data: bytes | Array) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a safetensors file, by name, and its metadata. Arrays of mapped contents are views of these."""
    whole = np.frombuffer(bytearray(data), np.uint8) if isinstance(data, bytes) else data
    length = int.from_bytes(whole[:8].tobytes(), "little")
    if length > _MAX_JSON:
        raise ValueError(f"its head has {length:,} bytes, at most {_MAX_JSON:,} are read")
    content, arrays = whole[8 + length :], {}
    try:
        head = json.loads(whole[8 : 8 + length].tobytes())
        metadata = head.pop("__metadata__", {})
        for name, entry in head.items():
            start, stop = entry["data_offsets"]
            if not 0 <= start <= stop <= len(content):
                raise ValueError(f"{name} lies outside of the file")
            arrays[name] = content[start:stop].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        return arrays, {str(key): str(value) for key, value in metadata.items()}
    except MISFITS as error:
        raise ValueError(first_line(error)) from None


def _state_name(tag: str) -> str:
    return f"state-{tag}.json"


def _arrays_name(tag: str) -> str:
    return f"arrays-{tag}.safetensors"


def _block_name(number: int, tag: str) -> str:
    return f"block-{number}-{tag}.safetensors"


def _write_files(
    folder: Folder, tag: str, parts: Parts, text: bytes, previous: Path | None
) -> tuple[dict[str, Entry], list[str]]:
    """Writes or links all files but the manifest; returns (entries of the manifest, files that are to be synced)."""
    from safetensors.numpy import save

    entries: dict[str, Entry] = {}
    written: list[str] = []

    def write(name: str, data: bytes) -> Entry:
        folder.write(name, data)
        written.append(name)
        entries[name] = {"size": len(data), "sha256": sha256(data)}
        return entries[name]

    with contextlib.ExitStack() as opened:
        source, earlier = _blocks_of(previous, opened)
        for number, (identity, block) in enumerate(parts.blocks()):
            name = _block_name(number, tag)
            file, entry = earlier.get(identity, ("", {}))
            if source is not None and file and source.link(file, folder, name, entry["size"]):
                entries[name] = entry
            else:
                write(name, save({_ROWS: np.ascontiguousarray(block)}))["block"] = identity
    write(_arrays_name(tag), save(parts.arrays))
    write(_state_name(tag), text)
    return entries, written


def _blocks_of(
    previous: Path | None, opened: contextlib.ExitStack
) -> tuple[Folder | None, dict[str, tuple[str, Entry]]]:
    """The folder of an earlier checkpoint, and file and entry of each of its blocks, by its contents. None and empty if
    it cannot be read."""
    if previous is None:
        return None, {}
    try:
        files, folder = read_manifest(previous)["files"], opened.enter_context(Folder(previous))
    except (CheckpointError, OSError):
        return None, {}
    return folder, {entry["block"]: (name, entry) for name, entry in files.items() if "block" in entry}


def _move(fresh: Folder, old: Folder, names: list[str]) -> None:
    """Moves a written checkpoint into the folder of an older one; the rename of the manifest is the switch."""
    for name in names:
        # The names of files in both folders are unique to each save.
        fresh.rename(name, name, old)
    old.sync()
    fresh.rename(MANIFEST, MANIFEST, old)
    old.sync()
    old.discard(*(name for name in old.names() if name not in names and OWN_FILE.fullmatch(name)))


def _readers() -> ThreadPoolExecutor:
    # SHA-256 lets other threads run and takes most of the time.
    return ThreadPoolExecutor(max_workers=min(_THREADS, os.cpu_count() or 1))


def _wait(jobs: list[Future[Any]]) -> None:
    """Waits for all jobs; the first error ends those that have not begun."""
    try:
        for job in jobs:
            job.result()
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
