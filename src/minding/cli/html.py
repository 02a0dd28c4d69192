"""`minding report`."""

from __future__ import annotations

from pathlib import Path

import click

from minding.cli.common import GivenPath, RunFolder, bad_input, echo, line, writing, written


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
@click.option(
    "-o",
    "--out",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="The page; RUN/report.html by default, and report.html for several runs.",
)
def report(runs: tuple[str, ...], out: str | None) -> None:
    """Write one HTML page about run folders: results, curves, settings, timeline, film.

    The page needs no other file and no network. A folder of seeds stands for the runs in it. Folders that cannot be
    read are left out with a warning. The page includes films and timelines only if the runs have them: `minding record
    RUN` makes a film, `minding train --trace` records a timeline.
    """
    with bad_input():
        from minding.configs.differences import changed_settings
        from minding.engine.run.comparison import best_of
        from minding.engine.run.page import write_page

        folder = Path(runs[0]) if len(runs) == 1 else Path()
        file = folder / "report.html" if out is None else Path(out)
        replaced = file.exists()
        with writing("page", file):
            about = write_page(runs, file, changed_settings)
    echo(f"{len(about)} {'run' if len(about) == 1 else 'runs'}")
    for env_id, best in best_of(about).items():
        echo(f"the best on {line(env_id)}: {line(best.path)}")
    written("page", file, replaced)
