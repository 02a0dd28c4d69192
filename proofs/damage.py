"""Damages the files of checkpoints at random; whether that is found, and how fast the one before takes its place."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from minding.engine.checkpoint import load_checkpoint, newest_checkpoint, verify_checkpoint
from minding.engine.errors import CheckpointError


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def change_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def lengthen(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randrange(1, 64))


def overwrite(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    part = data[start : start + 64]
    data[start : start + 64] = bytes(255 - byte for byte in part)


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (flip_bit, change_byte, truncate, lengthen, overwrite)


def find_damages(folder: Path, count: int, seed: int) -> tuple[list[str], list[float]]:
    """Damages the newest checkpoint in `folder`, one file and one place at a time, and repairs it.

    Args:
      folder: holds two or more checkpoints.
      count: how many damages.
      seed: of places and kinds.

    Returns:
      The damages that were not found, in words, and the seconds it took to skip the damaged checkpoint and to find
      the one before it whole.
    """
    rng = random.Random(seed)
    newest = newest_checkpoint(folder)
    files = sorted(newest.iterdir())
    missed, seconds = [], []
    for number in range(count):
        path, damage = files[number % len(files)], rng.choice(DAMAGES)
        original = path.read_bytes()
        damaged = bytearray(original)
        damage(damaged, rng)
        path.write_bytes(damaged)
        if not (_refused(verify_checkpoint, newest) and _refused(load_checkpoint, newest)):
            missed.append(f"{damage.__name__} of {path.name} was not found")
        start = time.perf_counter()
        found = newest_checkpoint(folder)
        seconds.append(time.perf_counter() - start)
        if found == newest:
            missed.append(f"{damage.__name__} of {path.name}: the damaged checkpoint was taken")
        path.write_bytes(original)
    return missed, seconds


def _refused(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return True
    return False
