"""`minding doctor`."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator

from minding.cli.common import command, echo, print_table

Row = tuple[str, str, str]
"""Subject of a check, its result, and 'ok' or the fix."""


@command(examples=("doctor",))
def doctor() -> int:
    """Check the installation, and say how to fix each fault.

    The checks are versions, device, settings of the environment, and a short self-test.
    """
    rows = [*_packages(), *_settings(), *_self_test()]
    print_table(f"Python {platform.python_version()} on {platform.platform()}", ("what", "found", "fix"), rows)
    faults = sum(fix not in ("ok", "") for _, _, fix in rows)
    echo(f"{faults} fault{'s' * (faults > 1)}: see the column `fix`" if faults else "no faults found")
    return 1 if faults else 0


def _packages() -> Iterator[Row]:
    """Compares the hard dependencies with the version ranges in the package's own metadata."""
    from packaging.requirements import Requirement

    from minding.engine.process.packages import NEEDED

    try:
        wanted = importlib.metadata.requires("minding") or []
    except importlib.metadata.PackageNotFoundError:
        yield "minding", "runs from its source tree", ""
        wanted = [f"{name}{versions}" for name, versions in NEEDED.items()]
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None:
            continue
        fix = f"pip install '{requirement.name}{requirement.specifier}'"
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield requirement.name, "not installed", fix
            continue
        yield requirement.name, found, "ok" if requirement.specifier.contains(found) else fix


def _settings() -> Iterator[Row]:
    """Environment variables that are set before MindSpore is loaded."""
    from minding.engine.process import runtime

    for name, value in (runtime.environment() | runtime.CONVOLUTION_ENVIRONMENT).items():
        given = os.environ.get(name)
        yield name, f"{value} (set at start)" if given is None else f"{given} (yours)", ""
    cache = os.environ.get("MS_COMPILER_CACHE_ENABLE", "0")
    yield "MS_COMPILER_CACHE_ENABLE", cache, "ok" if cache == "0" else "unset MS_COMPILER_CACHE_ENABLE"


def _self_test() -> Iterator[Row]:
    from minding.engine.errors import SetupError
    from minding.engine.process.self_test import self_test

    try:
        for name, found in self_test().items():
            yield f"self-test: {name}", found, "ok"
        yield _kernels()
    except SetupError as error:
        # The fix follows the last colon of a SetupError.
        text, _, fix = " ".join(str(error).split()).rpartition(": ")
        yield "self-test", text, fix or "see the message"


def _kernels() -> Row:
    from minding.policies import kernels

    name, fault = "kernels for learning on CPU", kernels.fault()
    return (name, "compiled", "ok") if fault is None else (name, f"{fault[0]}; learning is slower", fault[1])
