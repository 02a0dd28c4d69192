"""Versions of the packages that minding cannot run without; `pyproject.toml` also has those that cause no trouble."""

from __future__ import annotations

import importlib
import operator
import re

from minding.engine.errors import SetupError

NEEDED = {"mindspore": "==2.10.0", "numpy": ">=1.26,<2", "gymnasium": ">=1.1,<2"}
_COMPARED = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}


def check_package(name: str) -> None:
    """Imports a package of `NEEDED`.

    Raises:
      SetupError: it is not installed, or its version does not fit; one line with the command that installs it.
    """
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
