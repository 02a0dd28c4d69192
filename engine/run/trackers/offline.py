"""Files in which W&B and SwanLab store a run to be sent later: logs of records in the format of LevelDB."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from minding.engine.files import read_bounded

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
"""Checksum, length, kind of a piece of a record: 1 whole, 2 first, 3 middle, 4 last."""
_MOST = 1 << 31
_HEAD = 7
"""Bytes at the beginning of a file that name its format."""


def records(path: Path) -> Iterator[bytes]:
    """The whole records of a file; its end may be torn by a kill."""
    data, at, record = read_bounded(path, _MOST), _HEAD, b""
    while at + _HEADER.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if kind not in (1, 2, 3, 4) or at + length > len(data):
            return
        record += data[at : at + length]
        at += length
        if kind in (1, 4):
            yield record
            record = b""
