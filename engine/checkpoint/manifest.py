"""The manifest of a checkpoint: its files with their sizes and checksums, and the run that wrote it."""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.errors import CheckpointError, DamagedCheckpointError
from minding.engine.files import read_bounded

SCHEMA = 3
MANIFEST = "manifest.json"
OWN_FILE = re.compile(r"(state|arrays|block-\d{1,9})-[0-9a-f]{8}\.(json|safetensors)")
"""Names of the files of a checkpoint, apart from the manifest."""
_CHECKSUM = "sha256"
_PART = 1 << 24
_MAX_BYTES = 1 << 22
"""A larger manifest is neither written nor read; this is enough for a replay buffer of some 15 GB."""

Entry = dict[str, Any]
"""The entry of a file: 'size' in bytes, 'sha256', and for a block of a large array 'block', its contents."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode_manifest(content: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest, which contain a checksum of the rest."""
    checksum = sha256(json.dumps(content, sort_keys=True).encode())
    data = json.dumps({**content, _CHECKSUM: checksum}).encode()
    if len(data) > _MAX_BYTES:
        raise CheckpointError(f"the manifest has {len(data):,} bytes, at most {_MAX_BYTES:,} are read again: save less")
    return data


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder; the other files are not looked at."""
    try:
        data = read_bounded(path / MANIFEST, _MAX_BYTES)
        manifest: dict[str, Any] = json.loads(data)
        manifest.pop(_CHECKSUM, None)
        # Encoding it again also finds changes that JSON ignores, such as white space.
        whole = encode_manifest(manifest) == data
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, CheckpointError) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise DamagedCheckpointError(f"{path}: no readable manifest ({what})") from error
    if not whole:
        raise DamagedCheckpointError(f"{path}: damaged manifest (its checksum does not fit)")
    if manifest.get("schema") != SCHEMA:
        schema = repr(manifest.get("schema"))[:40]
        raise DamagedCheckpointError(f"{path}: its manifest is of schema {schema}; this version reads schema {SCHEMA}")
    if not (isinstance(manifest.get("tag"), str) and _are_files(manifest.get("files"))):
        raise DamagedCheckpointError(f"{path}: its manifest does not say which files belong to it")
    return manifest


def _are_files(files: Any) -> bool:
    """Whether this is a table of files, all of them directly in the folder of the checkpoint."""
    return isinstance(files, dict) and all(
        OWN_FILE.fullmatch(name)
        and isinstance(entry, dict)
        and type(entry.get("size")) is int
        and isinstance(entry.get("sha256"), str)
        and isinstance(entry.get("block", ""), str)
        for name, entry in files.items()
    )


def verify_file(path: Path, entry: Entry) -> None:
    """Compares a file of any size with its entry, without loading it into memory."""
    digest = hashlib.sha256()
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != entry["size"]:
            raise OSError(errno.EINVAL, f"damaged: {found.st_size} bytes, {entry['size']} expected")
        with open(path, "rb") as file:
            while part := file.read(_PART):
                digest.update(part)
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: {error.strerror}") from error
    if digest.hexdigest() != entry["sha256"]:
        raise DamagedCheckpointError(f"{path}: damaged: its SHA-256 differs from the manifest")


def read_verified(path: Path, entry: Entry) -> bytes:
    """The contents of one file of a checkpoint."""
    try:
        found = path.stat().st_size
        if found != entry["size"]:
            # The file is not read in this case, because it may have any size.
            raise OSError(errno.EINVAL, f"damaged: {found} bytes, {entry['size']} expected")
        data = read_bounded(path, found)
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: {error.strerror}") from error
    if sha256(data) != entry["sha256"]:
        raise DamagedCheckpointError(f"{path}: damaged: its SHA-256 differs from the manifest")
    return data
