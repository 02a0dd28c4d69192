"""Code that a run folder names. A run folder is data and may come from anyone: reading it must not run a program.

A name such as ``my_module:MyEnv`` in its configuration is followed only where the code is the user's own. That is:

- the module and the packages it is in are files below the current folder, the user's project. A folder without
  ``__init__.py`` is not a package here. Symbolic links count as where they lead;
- they belong neither to Python nor to installed packages (``site-packages``), wherever these are;
- they did not come with the run: they lie neither in its folder nor in another folder below the current one that also
  holds the run;
- the current folder is not world-writable, as ``/tmp`` is;
- the class or function is defined in such a module, not only imported there.

All this is known before anything is imported, except the last point, for which the user's own modules are imported.
Opening the run folder with ``trust=True`` accepts everything else.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.errors import TrustError

CODE_KEYS = ("env.env_id",)
"""The settings that can name code. A new one that is imported by name belongs here."""
_LOADERS = re.compile(r"Gym(V\d+)?Environment(-v\d+)?")
"""Registered environments whose arguments name another one, by ``module:id``."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def add_project_to_path() -> None:
    """Makes modules of the current folder importable: a console script does not have the working folder on its path."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def check_code(cfg: Mapping[str, Any], run: Path) -> None:
    """Refuses a run's settings that name code which is not the user's own.

    Args:
      cfg: the settings, as read from the run folder.
      run: the run folder.
    Raises:
      TrustError: names the setting, where the code is, and what to do.
    """
    for key in CODE_KEYS:
        name = _setting(cfg, key)
        if isinstance(name, str):
            reason = _objection(name, run.resolve())
            if reason:
                raise TrustError(
                    f"{key}={name!r} in the run folder {str(run)!r} names code that is not in your project: {reason}. "
                    "A run folder may come from anyone. If you trust this one, give --trust (in Python "
                    "RunDir.open(path, trust=True))"
                )


def _setting(cfg: Mapping[str, Any], key: str) -> Any:
    node: Any = cfg
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _objection(name: str, run: Path) -> str | None:
    """Why the code that `name` leads to may not run; None if it may, or if `name` names none."""
    if _LOADERS.fullmatch(name.rpartition(":")[2]):
        return "this environment loads another one by its name"
    if ":" not in name:
        return None
    module, _, attribute = name.partition(":")
    add_project_to_path()
    reason = _module_objection(module, run)
    if reason is None:
        target = getattr(importlib.import_module(module), attribute, None)
        home = getattr(target, "__module__", None)
        # What is not a class or function is a registered id, or an error that the user of the name reports.
        if callable(target) and home != module:
            reason = _module_objection(str(home), run)
    return reason


def _module_objection(name: str, run: Path) -> str | None:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return f"{name!r} is not the name of a module"
    path = None
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        spec = _find(name, path)
        if spec is None:
            return f"there is no module {name!r} in {os.getcwd()!r}"
        reason = _file_objection(name, spec, run)
        if reason:
            return reason
        path = spec.submodule_search_locations
    return None


def _find(name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    """Where an import would find a module; unlike `importlib.util.find_spec`, this imports no package above it."""
    loaded = sys.modules.get(name)
    file = getattr(loaded, "__file__", None)
    if loaded is not None:
        spec = importlib.machinery.ModuleSpec(name, None, origin=file)
        spec.submodule_search_locations = getattr(loaded, "__path__", None)
        return spec
    for finder in sys.meta_path:
        found: importlib.machinery.ModuleSpec | None = getattr(finder, "find_spec", lambda *_: None)(name, path)
        if found is not None:
            return found
    return None


def _file_objection(name: str, spec: importlib.machinery.ModuleSpec, run: Path) -> str | None:
    if spec.origin is None or not os.path.isfile(spec.origin):
        kind = "a folder without __init__.py" if spec.submodule_search_locations else "part of Python"
        return f"{name!r} is {kind}"
    file, project = Path(spec.origin).resolve(), Path.cwd().resolve()
    if not file.is_relative_to(project):
        return f"{name!r} is {str(file)!r}, not below the current folder {str(project)!r}"
    if _INSTALLED.intersection(file.parts) or any(file.is_relative_to(each) for each in _python_folders()):
        return f"{name!r} is an installed package, {str(file)!r}"
    if any(file.is_relative_to(each) for each in _came_with(run, project)):
        return f"{name!r} is {str(file)!r} and may have come with the run"
    if os.stat(project).st_mode & stat.S_ISVTX:
        return f"everybody may write to the current folder {str(project)!r}"
    return None


def _python_folders() -> list[Path]:
    return [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")]


def _came_with(run: Path, project: Path) -> list[Path]:
    """Folders whose code may be from where the run is from: its own, and those below the project that hold it."""
    if run == project or not run.is_relative_to(project):
        return [run]
    return [project / run.relative_to(project).parts[0]]
