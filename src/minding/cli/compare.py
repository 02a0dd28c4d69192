"""`minding compare`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import RunFolder, bad_input, line, mean_and_spread, print_lines

if TYPE_CHECKING:
    from minding.engine.run.comparison import ComparedRun


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
def compare(runs: tuple[str, ...]) -> None:
    """Compare run folders in one table: final evaluations, steps, time, and the settings that differ.

    Runs are grouped by environment, the highest evaluation first. A folder of seeds stands for the runs in it.
    Folders that cannot be read are left out with a warning.
    """
    with bad_input():
        from minding.engine.run.comparison import compare_runs
        from minding.engine.run.figures import judged_figures

        compared = compare_runs(runs)
    several = len({run.env_id for run in compared}) > 1
    header = ("run", *(("environment",) if several else ()), "return", "episodes", "steps", "seconds", "ended by")
    # The common folder is printed only once.
    paths = [run.path.absolute() for run in compared]
    above = Path(os.path.commonpath([path.parent for path in paths]))
    rows = [
        (str(path.relative_to(above)), *((run.env_id,) if several else ()), *_row(run))
        for path, run in zip(paths, compared, strict=True)
    ]
    judged = [[f"{name} {text}" for name, text in judged_figures(run.judged).items()] for run in compared]
    against = [[f"against {name} {score}" for name, score in run.scores.items()] for run in compared]
    notes = [
        ", ".join([*settings_text(run.settings), *texts, *scores])
        for run, texts, scores in zip(compared, judged, against, strict=True)
    ]
    title = f"Runs in {line(above)}, with the settings that differ:"
    print_lines(title, header, rows, long=0, keep_end=True, notes=notes)


def _row(run: ComparedRun) -> tuple[str, ...]:
    from minding.engine.chain.context import UNITS

    value, episodes = "", ""
    if run.evaluation is not None:
        mean, std, n_episode = run.evaluation
        value, episodes = mean_and_spread(mean, std), str(n_episode)
    if run.scores:
        value = f"score {mean:.3f}"
    unit = " plies" if run.scores else "" if run.unit == "env_step" else f" {UNITS[run.unit]}"
    seconds = "" if run.seconds is None else f"{run.seconds:,.0f}"
    return value, episodes, f"{run.steps:,}{unit}", seconds, run.ended_by


def settings_text(settings: Mapping[str, Any]) -> list[str]:
    """Settings in the form of the command line."""
    return [f"{path}={_value(value)}" for path, value in settings.items()]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
