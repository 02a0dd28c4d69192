"""`minding plot`."""

from __future__ import annotations

from pathlib import Path

import click

from minding.cli.common import GivenPath, RunFolder, bad_input, writing, written


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
@click.option(
    "-o",
    "--out",
    type=GivenPath(),
    metavar="FILE",
    default="curves.png",
    show_default=True,
    help="The picture; its extension selects the format.",
)
def plot(runs: tuple[str, ...], out: str) -> None:
    """Draw the learning curves of run folders.

    Runs that differ only in their seed are one curve: the mean over their seeds with a 95 % interval, or with
    both if there are two; each seed is a faint line. A dashed line is the target (run.target), a star the mean of
    the final evaluations. A folder of seeds stands for the runs in it. Each environment has its own panel. Folders
    that cannot be read are skipped with a warning.
    """
    with bad_input():
        from minding.engine.chain.context import UNITS
        from minding.engine.run.curves import learning_curves
        from minding.engine.run.plotting import check_format, plot_curves

        check_format(out)
        curves = learning_curves(runs)
        replaced = Path(out).exists()
        with writing("picture", out):
            plot_curves(curves, out)
    for curve in curves:
        spread = f" [{curve.low[-1]:.1f}, {curve.high[-1]:.1f}]" if curve.n_runs > 1 else ""
        click.echo(f"{curve.env_id}, {curve.label}: {curve.kind} return {curve.mean[-1]:.1f}{spread}")
        click.echo(f"    at {curve.steps[-1]:,.0f} {UNITS[curve.unit]} ({curve.seeds})")
        if curve.finals:
            each = ", ".join(f"{value:.1f}" for value in curve.finals)
            click.echo(f"    final evaluation {sum(curve.finals) / len(curve.finals):.1f} ({each})")
    written("curves", out, replaced)
