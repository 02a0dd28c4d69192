"""Imports of packages: versions of those that minding cannot run without, and optional ones.

Optional packages come from installed places only, never from the current folder, where Python looks first (in an
interactive session, in a script that lies there and with ``python -m``): a folder that somebody gave the user may hold
one called like a package that is not installed here.
"""

import importlib
import importlib.machinery
import importlib.util
import operator
import os
import re
import sys
import threading
from types import ModuleType

from minding.engine.errors import MissingExtraError, SetupError

NEEDED = {"mindspore": "==2.10.0", "numpy": ">=1.26,<2", "gymnasium": ">=1.1,<2"}
_COMPARED = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}


def check_package(name: str) -> None:
    """Imports a package of `NEEDED`."""
    fix = f"pip install '{name}{NEEDED[name]}'"
    try:
        found = str(importlib.import_module(name).__version__)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise SetupError(f"{name} is not installed: {fix}") from None
    bounds = re.findall(r"(==|>=|<)([\d.]+)", NEEDED[name])
    if not all(_COMPARED[sign](_numbers(found), _numbers(bound)) for sign, bound in bounds):
        raise SetupError(f"minding needs {name}{NEEDED[name]}, but version {found} is installed: {fix}")


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them, such as ``rc1``."""
    found = re.match(r"[\d.]+", version)
    numbers = [int(each) for each in (found[0] if found else "").split(".") if each]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


_LOCK = threading.RLock()


def import_installed(name: str) -> ModuleType:
    """Imports a module of an installed package, or of one that the program has imported before."""
    package = name.partition(".")[0]
    with _LOCK:
        if package not in sys.modules:
            spec = _spec_of(package)
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError(f"No module named {package!r} is installed", name=package)
            module = importlib.util.module_from_spec(spec)
            sys.modules[package] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                sys.modules.pop(package, None)
                raise
        return importlib.import_module(name)


def import_extra(name: str, extra: str, purpose: str) -> ModuleType:
    """Imports a module of an optional package, see `import_installed`."""
    try:
        return import_installed(name)
    except ImportError:
        raise MissingExtraError(name.partition(".")[0], extra, purpose) from None


def is_installed(package: str) -> bool:
    """Whether `import_installed` would find a package; nothing is imported."""
    with _LOCK:
        return sys.modules[package] is not None if package in sys.modules else _spec_of(package) is not None


def _spec_of(package: str) -> importlib.machinery.ModuleSpec | None:
    """The package in the places where Python looks, without the current folder."""
    places = [place for place in sys.path if not _is_current(place)]
    for finder in sys.meta_path:
        path = places if finder is importlib.machinery.PathFinder else None
        spec = finder.find_spec(package, path)
        # A folder without __init__.py is no installed package, such as the one that W&B makes.
        if spec is not None and spec.origin is not None:
            return spec
    return None


def _is_current(place: str) -> bool:
    try:
        return os.path.samefile(place or os.curdir, os.curdir)
    except OSError:  # Python skips a place that does not exist.
        return False
