"""Evidence of an update that ended in NaN or infinity, kept for later inspection."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.chain.context import Context
from minding.engine.chain.task import Task
from minding.engine.errors import NonFiniteError, add_note
from minding.engine.files import Folder


@contextlib.contextmanager
def nan_batch_kept(folder: Path, task: Task[Any]) -> Iterator[None]:
    """Writes the batch of a NonFiniteError in this block to `folder`, and adds a note with its path to the error.

    Args:
      folder: folder ``nan`` of a run, created when needed.
      task: the task that runs in the block.
    """
    try:
        yield
    except NonFiniteError as error:
        if error.batch:
            try:
                add_note(error, f"the batch was kept in {_write(error, folder, task.ctx)}")
            except OSError as failure:
                add_note(error, f"the batch could not be kept in {folder}: {failure}")
        raise


def _write(error: NonFiniteError, folder: Path, ctx: Context) -> Path:
    """Writes ``iter_<gradient step>.safetensors`` (arrays) and ``.json`` (message, metrics, kept context fields)."""
    from safetensors.numpy import save

    counters = ctx.state_dict()
    name = f"iter_{counters.get('train_iter', ctx.total_step)}"
    about = {"error": str(error), "metrics": _as_json(error.metrics), "counters": _as_json(counters)}
    with Folder(folder, make=True) as opened:
        arrays = {key: np.ascontiguousarray(array) for key, array in error.batch.items()}
        opened.replace(f"{name}.safetensors", save(arrays))
        opened.replace(f"{name}.json", (json.dumps(about, indent=2) + "\n").encode())
    return folder / f"{name}.safetensors"


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces NaN and infinity, which JSON does not have, by strings."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
