"""Remedies where recorded data are missing or damaged: commands to copy."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HDF5 = (".hdf5", ".h5")
"""Extensions of files in D4RL's format."""
MINARI = "metadata.json"
"""File that identifies a folder in Minari's format."""
OF_ARRAYS = (
    "read its arrays in a program and write them with save_dataset(FOLDER, Dataset.of_episodes(episodes)), see "
    "`minding docs offline`"
)
RECORD = (
    "`minding data record RUN --steps N` records the policy of a run folder, such as the run of "
    "`minding train cartpole_ppo`"
)


def local_set(name: str) -> Path:
    """The folder of a Minari set by its id; it need not exist, and is never downloaded."""
    root = os.environ.get("MINARI_DATASETS_PATH") or os.path.join(os.path.expanduser("~"), ".minari", "datasets")
    return Path(root) / name


def conversion(path: Path) -> str:
    """The command that converts a file or folder in another format, or a local Minari set, to recorded data, or how a
    program does it, as ``': it is ...'``; an empty string for anything else."""
    if path.is_file() and path.suffix not in HDF5:
        return f": it is a file in another format: {OF_ARRAYS}"
    if path.is_file():
        form, out = "a file in HDF5", path.with_suffix("")
    elif any((path / inside / MINARI).is_file() for inside in (".", "data")):
        form, out = "a set in Minari's form", path.with_name(f"{path.resolve().name}-converted")
    elif not path.exists() and (local_set(str(path)) / "data" / MINARI).is_file():
        form, out = "a Minari set on this machine", Path("data") / path.name
    else:
        return ""
    return f": it is {form}; `minding data convert {_quoted(path)} --out {_quoted(out)}` makes a folder of it"


def again(about: object, path: Path) -> str:
    """Returns, as a part of a sentence, the way to replace damaged data."""
    known: Mapping[str, Any] = about if isinstance(about, Mapping) else {}
    sources = known.get("converted")
    if isinstance(sources, list):
        named = " ".join(shlex.quote(str(each)) for each in sources)
        return f"remove them and convert {named} again with `minding data convert`, --out {_quoted(path)}"
    if str(known.get("player", "")).endswith("while it learned"):
        return "train the run that saved them again"
    if "policy" in known or "player" in known:
        return "record them again with `minding data record`"
    return "make them again, with `minding data record` or `minding data convert`"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
