"""Checks of the installation and of environments: `minding doctor` and `minding check-env`."""

import importlib.metadata
import itertools
import os
import platform
from collections.abc import Iterator

import click

from minding.cli.common import COUNT, bad_input, command, echo, print_lines

Row = tuple[str, str, str]
"""Subject of a check, its result, and 'ok' or the fix."""


@command(examples=("doctor",))
def doctor() -> int:
    """Check the installation, and say how to fix each fault.

    The checks are versions, device, settings of the environment, and a short self-test.
    """
    rows = [*_packages(), *_settings(), *_self_test()]
    title = f"Python {platform.python_version()} on {platform.platform()}"
    print_lines(title, ("what", "found", "fix"), rows, long=1)
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


@command("check-env", examples=("check-env CartPole-v1", "check-env my_module:MyEnv env.env_kwargs.size=5"))
@click.argument("env_id")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=COUNT, default=1000, show_default=True, help="Number of random steps.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Time limit in seconds.",
)
def check_env(env_id: str, overrides: tuple[str, ...], steps: int, seconds: float) -> int:
    """Check whether an environment is fit for training.

    The checks are about spaces, masks, ends of episodes, exact resume, scales and speed, and include Gymnasium's
    check_env or PettingZoo's parallel_api_test. Each problem is printed as soon as it is found. Checks that the time
    limit leaves out are listed at the end.

    ENV_ID is a Gymnasium id or module:Class. KEY=VALUE sets a key of the env section, as in training, such as
    env.env_kwargs.size=5.
    """
    with bad_input():
        from minding.engine.config.compiler import fill_schema
        from minding.engine.config.options import setting_at
        from minding.envs import config_schema
        from minding.envs.check import iter_findings

        settings = fill_schema({"env": config_schema()}, {"env": {"env_id": env_id}}, overrides)
        env_cfg = setting_at(settings, "env")
        echo(f"checking {env_id} for at most {seconds:g} s (--seconds)")
        findings = iter_findings(env_cfg, steps, seconds=seconds)
        first = next(findings)
        if first.refused is not None:
            raise first.refused
    errors, warnings, left_out, only, tried = 0, 0, 0, "", ""
    for finding in itertools.chain([first], findings):
        echo(f"{finding.level:<6}{finding.text}" + (f"\n      fix: {finding.fix}" if finding.fix else ""))
        errors += finding.level == "error"
        warnings += finding.level == "warn" and not (finding.left_out or finding.tried)
        only = only or (" with env.single_instance=true" if "env.single_instance=true" in finding.fix else "")
        left_out, tried = left_out + finding.left_out, tried or finding.tried
    parts = [f"after {tried}"] * bool(tried) + [f"without {left_out} of the checks"] * bool(left_out)
    parts += [f"with {warnings} warning{'s' * (warnings > 1)}"] * bool(warnings)
    verdict = f"fit{only} {', '.join(parts)}" if parts else f"fit for training{only}"
    echo(f"{env_id}: " + (f"{errors} error{'s' * (errors > 1)}" if errors else verdict))
    return 1 if errors else 0
