"""The folder for compiler dumps."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from minding.engine.console import console_logger


@functools.cache
def cache_dir() -> Path:
    """Creates and returns the folder for compiler dumps: ``$XDG_CACHE_HOME/minding`` or ``~/.cache/minding``.

    If that cannot be created or written (a user without a home), it is a temporary folder that is removed with this
    process, and a warning says so.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification wants it, an empty or relative path is ignored. Without a home, "~" stays as it is.
    base = Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache"))
    reason = "this user has no home folder"
    if base.is_absolute():
        try:
            (base / "minding").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=base / "minding"):
                return base / "minding"
        except OSError as error:
            reason = f"{base / 'minding'} cannot be written: {error.strerror}"
    folder = tempfile.mkdtemp(prefix="minding-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    console_logger().warning(
        "no cache folder (%s): compiler dumps of this process go to %s; set XDG_CACHE_HOME to a writable folder",
        reason,
        folder,
    )
    return Path(folder)
