"""`minding compare`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import RunFolder, bad_input, print_lines

if TYPE_CHECKING:
    from minding.engine.run.comparison import ComparedRun


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
def compare(runs: tuple[str, ...]) -> None:
    """Compare run folders in one table: final evaluations, steps, time, and the settings that differ.

    The highest evaluation comes first. A folder of seeds stands for the runs in it. Folders that cannot be read
    are left out with a warning.
    """
    with bad_input():
        from minding.engine.run.comparison import compare_runs

        compared = compare_runs(runs)
    header = ("run", "return", "episodes", "steps", "seconds", "ended by")
    names = _short_names([run.path for run in compared])
    rows = [(name, *_row(run)) for name, run in zip(names, compared, strict=True)]
    notes = [", ".join(settings_text(run.settings)) for run in compared]
    print_lines("Final evaluations, and the settings that differ:", header, rows, long=0, keep_end=True, notes=notes)


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The folders below the one that all have in common; of one run its own name."""
    above = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    return [str(path.absolute().relative_to(above)) for path in paths]


def _row(run: ComparedRun) -> tuple[str, ...]:
    from minding.engine.chain.context import UNITS

    value, episodes = "", ""
    if run.evaluation is not None:
        mean, std, n_episode = run.evaluation
        value, episodes = f"{mean:.1f} ± {std:.1f}", str(n_episode)
    unit = "" if run.unit == "env_step" else f" {UNITS[run.unit]}"
    seconds = "" if run.seconds is None else f"{run.seconds:,.0f}"
    return value, episodes, f"{run.steps:,}{unit}", seconds, run.ended_by


def settings_text(settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are given on the command line."""
    return [f"{path}={_value(value)}" for path, value in settings.items()]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
