"""`minding plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from minding.cli.common import GivenPath, RunFolder, bad_input, echo, line, number, writing, written

if TYPE_CHECKING:
    from minding.engine.run.curves import Curve


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

    Runs that differ only in their seed share one curve: the mean over their seeds with a 95 % interval, or with the
    range of the seeds if there are only two; each seed is a faint line. A dashed line is the target (run.target), a
    star the mean of the final evaluations. Runs of self-play also show the score against each opponent, with a 95 %
    interval. A folder of seeds stands for the runs in it. Each environment has its own panel. Folders that cannot be
    read are skipped with a warning.
    """
    with bad_input():
        from minding.engine.run.curves import learning_curves
        from minding.engine.run.plotting import check_format, plot_curves

        check_format(out)
        curves = learning_curves(runs)
        replaced = Path(out).exists()
        with writing("picture", out):
            plot_curves(curves, out)
    for curve in curves:
        spread = f" [{number(curve.low[-1])}, {number(curve.high[-1])}]" if curve.n_runs > 1 or curve.opponent else ""
        echo(f"{line(curve.env_id)}, {line(curve.label)}: {_what(curve)} {number(curve.mean[-1])}{spread}")
        echo(f"    at {curve.steps[-1]:,.0f} {curve.counted} ({curve.seeds})")
        if curve.finals:
            each = f" ({', '.join(map(number, curve.finals))})" if len(curve.finals) > 1 else ""
            echo(f"    final evaluation {number(sum(curve.finals) / len(curve.finals))}{each}")
    written("curves", out, replaced)


def _what(curve: Curve) -> str:
    if curve.games:
        return f"{curve.measure} {curve.kind}"
    return f"{curve.kind} return" if curve.measure == "episode return" else f"{curve.kind}, {curve.measure}"
