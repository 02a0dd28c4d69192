"""Runs in one table, one picture or one page: `minding compare`, `minding plot` and `minding report`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import (
    GivenPath,
    RunFolder,
    bad_input,
    command,
    echo,
    line,
    mean_and_spread,
    number,
    out_option,
    print_lines,
    writing,
    written,
)

if TYPE_CHECKING:
    from minding.engine.run.comparison import ComparedRun
    from minding.engine.run.curves import Curve
    from minding.engine.run.page import Setting


@command(examples=("compare runs/*", "compare runs/cartpole_ppo runs/cartpole_dqn"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
@click.option(
    "--scores",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="Also write all evaluations as JSON for the packages marl-eval and rliable.",
)
def compare(runs: tuple[str, ...], scores: str | None) -> None:
    """Compare runs in one table.

    It has final evaluations, steps, time, and the settings in which the runs differ. A chain in a script makes no final
    evaluation: its last one counts, marked "on the way". Runs are grouped by environment, the highest evaluation first.
    A folder of seeds stands for the runs in it. Folders that cannot be read are left out with a warning.

    Further tables compare the configurations of one environment over their seeds: mean and interquartile mean (IQM)
    with 95 % bootstrap intervals, or the range of three seeds; the probability that a run of one scores higher than a
    run of another; and the performance profile, the share of runs above a return.
    """
    with bad_input():
        from minding.engine.files import json_text, replace
        from minding.engine.run.comparison import compare_runs, score_table

        compared = compare_runs(runs)
    print_runs(compared)
    if scores is not None:
        replaced = Path(scores).exists()
        with writing("scores", scores):
            replace(scores, json_text(score_table(compared)))
        written("scores", scores, replaced)


def print_runs(compared: Sequence[ComparedRun]) -> None:
    """Prints the tables of `minding compare`."""
    from minding.engine.run.run_summary import judged_figures

    several = len({run.env_id for run in compared}) > 1
    header = ("run", *(("environment",) if several else ()), "return", "episodes", "steps", "seconds", "ended by")
    # The common folder is printed only once.
    paths = [run.path.absolute() for run in compared]
    above = Path(os.path.commonpath([path.parent for path in paths]))
    rows = [
        (str(path.relative_to(above)), *((run.env_id,) if several else ()), *_row(run))
        for path, run in zip(paths, compared, strict=True)
    ]
    notes = []
    for run in compared:
        named = ("seed",) if run.path.name == f"seed_{run.seed}" else ()
        settings = [f"{path}={_value(value)}" for path, value in run.settings.items() if path not in named]
        judged = [f"{name} {text}" for name, text in judged_figures(run.judged).items()]
        notes.append(", ".join([*settings, *judged, *(f"against {name} {each}" for name, each in run.scores.items())]))
    title = f"Runs in {line(above)}{', with the settings that differ' if any(notes) else ''}:"
    print_lines(title, header, rows, long=0, notes=notes if any(notes) else ())
    _print_seeds(compared, [row[0] for row in rows])


def _print_seeds(compared: Sequence[ComparedRun], names: Sequence[str]) -> None:
    """Prints what is known of configurations over their seeds, in one environment after the other."""
    from minding.engine.run.comparison import seeds_of, tables_over_seeds, value_of

    name_of = {id(run): name for run, name in zip(compared, names, strict=True)}
    groups: dict[str, dict[str, list[float]]] = {}
    for runs in seeds_of(compared):
        folder, _, last = name_of[id(runs[0])].rpartition("/")
        name = folder if folder and last.startswith("seed_") else f"{name_of[id(runs[0])]} and {len(runs) - 1} more"
        groups.setdefault(runs[0].env_id, {})[name] = [*map(value_of, runs)]
    for env_id, among in groups.items():
        for title, header, rows in tables_over_seeds(among, number):
            echo()
            print_lines(f"{title}{f' on {line(env_id)}' if len(groups) > 1 else ''}:", header, rows, long=0)


def _row(run: ComparedRun) -> tuple[str, ...]:
    from minding.engine.chain.context import UNITS

    value, episodes = "", ""
    if run.evaluation is not None:
        mean, std, n_episode = run.evaluation
        value, episodes = mean_and_spread(mean, std), f"{n_episode}{', on the way' if run.on_the_way else ''}"
    if run.scores:
        value = f"score {mean:.3f}"
    unit = " plies" if run.scores else "" if run.unit == "env_step" else f" {UNITS[run.unit]}"
    seconds = "" if run.seconds is None else f"{run.seconds:,.0f}"
    return value, episodes, f"{run.steps:,}{unit}", seconds, run.ended_by


def _value(value: Any) -> str:
    """The value of a setting in the form of the command line."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


@command(
    examples=("plot runs/*", "plot runs/cartpole_ppo -o curve.svg", "plot runs/a runs/b --label small --label large")
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
@click.option(
    "--label", "labels", multiple=True, metavar="TEXT", help="Name of a curve, once per configuration, in their order."
)
@out_option("FILE", "The picture; its extension selects the format.", default="curves.png", show_default=True)
def plot(runs: tuple[str, ...], labels: tuple[str, ...], out: str) -> None:
    """Draw the learning curves of runs.

    Runs that differ only in their seed share one curve: the mean over their seeds with a 95 % interval, or with the
    range of two or three seeds; each seed is a faint line. A dashed line is the target (run.target), a
    star the mean of the final evaluations. Runs of self-play also show the score against each opponent, with a 95 %
    interval. A folder of seeds stands for the runs in it. Each environment has its own panel. Folders that cannot be
    read are skipped with a warning.
    """
    with bad_input():
        from minding.engine.run.curves import learning_curves
        from minding.engine.run.plotting import picture_of, plot_curves

        picture = picture_of(out)
        curves = learning_curves(runs, labels)
        replaced = picture.exists()
        with writing("picture", picture):
            plot_curves(curves, picture)
    for curve in curves:
        spread = f" [{number(curve.low[-1])}, {number(curve.high[-1])}]" if curve.n_runs > 1 or curve.opponent else ""
        echo(f"{line(curve.env_id)}, {line(curve.label)}: {_what(curve)} {number(curve.mean[-1])}{spread}")
        echo(f"    at {curve.steps[-1]:,.0f} {curve.counted} ({curve.seeds})")
        if curve.finals:
            each = f" ({', '.join(map(number, curve.finals))})" if len(curve.finals) > 1 else ""
            echo(f"    final evaluation {number(sum(curve.finals) / len(curve.finals))}{each}")
    written("curves", picture, replaced)


def _what(curve: Curve) -> str:
    if curve.games:
        return f"{curve.measure} {curve.kind}"
    return f"{curve.kind} return" if curve.measure == "episode return" else f"{curve.kind}, {curve.measure}"


@command(examples=("report runs/cartpole_ppo", "report runs/* -o runs.html"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=RunFolder())
@out_option("FILE", "The page; RUN/report.html by default, and report.html for several runs.", dir_okay=False)
def report(runs: tuple[str, ...], out: str | None) -> None:
    """Write one HTML page about runs.

    It has results, curves, settings, timeline and film, and needs no other file and no network. A folder of seeds
    stands for the runs in it. Folders that cannot be read are left out with a warning. The page includes films and
    timelines only if the runs have them: `minding record RUN` makes a film, `minding train --trace` records a
    timeline.
    """
    with bad_input():
        from minding.engine.run.comparison import best_of
        from minding.engine.run.page import write_page

        folder = Path(runs[0]) if len(runs) == 1 else Path()
        file = folder / "report.html" if out is None else Path(out)
        replaced = os.path.exists(file)
        with writing("page", file):
            about = write_page(runs, file, changed_settings)
    echo(f"{len(about)} {'run' if len(about) == 1 else 'runs'}")
    _print_seeds(about, [str(run.path) for run in about])
    for env_id, best in best_of(about).items():
        echo(f"the best on {line(env_id)}: {line(best.path)}")
    written("page", file, replaced)


_NO_SETTINGS = ("env.spec", "env.env_id", "policy.type", "seed", "chain")
"""Settings that the title of a run names, and settings that follow from them."""


def changed_settings(cfg: Mapping[str, Any]) -> list[Setting] | None:
    """The settings of a compiled configuration that differ from the defaults, by path. No code that the configuration
    names is imported: neither its environment nor a user's algorithm."""
    from minding.engine.config.compiler import compile_config
    from minding.engine.config.identity import changes
    from minding.engine.errors import ConfigError
    from minding.engine.run.page import Setting
    from minding.envs import config_schema
    from minding.policies import ALGORITHMS

    policy, env = cfg.get("policy"), cfg.get("env")
    if not isinstance(policy, Mapping) or not isinstance(env, Mapping) or policy.get("type") not in ALGORITHMS:
        return None
    bare = {"policy": {"type": policy["type"]}, "env": {"env_id": str(env.get("env_id"))}}
    try:
        defaults = compile_config(bare, ALGORITHMS[policy["type"]], None, config_schema())
    except ConfigError:
        return None
    found = changes(defaults, cfg)
    return [
        Setting(each.path, each.now, each.saved)
        for each in found
        if not any(each.path == path or each.path.startswith(f"{path}.") for path in _NO_SETTINGS)
    ]
