"""`minding compare`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import RunFolder, bad_input, print_table

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
    header = ("run", "evaluation return", "episodes", "steps", "seconds", "ended by", "settings that differ")
    print_table("", header, [_row(run) for run in compared])


def _row(run: ComparedRun) -> tuple[str, ...]:
    from minding.engine.chain.context import UNITS

    value, episodes = "", ""
    if run.evaluation is not None:
        mean, std, n_episode = run.evaluation
        value, episodes = f"{mean:.1f} ± {std:.1f}", str(n_episode)
    unit = "" if run.unit == "env_step" else f" {UNITS[run.unit]}"
    seconds = "" if run.seconds is None else f"{run.seconds:,.0f}"
    return (str(run.path), value, episodes, f"{run.steps:,}{unit}", seconds, run.ended_by, settings_text(run.settings))


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as they are given on the command line, one per line."""
    return "\n".join(f"{path}={_value(value)}" for path, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
