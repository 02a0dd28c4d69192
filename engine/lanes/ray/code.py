"""Modules of the user's for workers on other machines, as bytes (``lanes.code``).

Ray could ship them too (``py_modules``), but an actor with such an environment starts five to ten times slower.
"""

import io
import tempfile
import zipfile
from pathlib import Path

from minding.engine.errors import ConfigError

_LARGEST = 64 << 20
"""Bytes of all files together: what is larger is hardly code."""
_kept: list[tempfile.TemporaryDirectory[str]] = []
"""The unpacked folders of this process, which are removed at its end."""


def pack(folder: Path) -> bytes:
    """The files of a folder as a zip archive, without hidden files and compiled code."""
    if not folder.is_dir():
        raise ConfigError(f"lanes.code={str(folder)!r}: expected a folder with modules, as an entry of sys.path")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_wanted(path.relative_to(folder))]
    if not any(path.suffix == ".py" for path in files):
        raise ConfigError(f"lanes.code={str(folder)!r}: there is no module (*.py) in this folder")
    size = sum(path.stat().st_size for path in files)
    if size > _LARGEST:
        raise ConfigError(
            f"lanes.code={str(folder)!r} holds {size >> 20} MB, and at most {_LARGEST >> 20} MB are sent: give a "
            "folder with the modules only"
        )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            packed.write(path, path.relative_to(folder))
    return archive.getvalue()


def _is_wanted(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def unpack(code: bytes) -> str:
    """Writes what `pack` returned to a temporary folder, which is removed with this process; returns its path."""
    _kept.append(tempfile.TemporaryDirectory(prefix="minding-code-"))
    with zipfile.ZipFile(io.BytesIO(code)) as packed:
        packed.extractall(_kept[-1].name)
    return _kept[-1].name
