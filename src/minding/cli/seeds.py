"""`minding train --seeds`: one run per seed, each in a process of its own, then one table and one plot."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import bad_input, drawn, echo, mean_and_spread, print_fields, write_figures
from minding.cli.jobs import Display, check_jobs
from minding.cli.process import EXIT_CODES

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.process.commands import Command
    from minding.engine.run.lock import RunLock
    from minding.engine.run.run_dir import RunDir
    from minding.training.run_group import SeedRuns

_INTERRUPTED = (*EXIT_CODES.values(), -signal.SIGINT, -signal.SIGTERM)
"""Exit codes of a process that a signal ended, either cleanly or before the process could handle signals."""
_MOST_SEEDS = 1000
_MOST_DIGITS = 12
_MOST_SETTINGS = 5
"""Most settings that are printed, of those that differ from another folder of seeds."""


class SeedList(click.ParamType[tuple[int, ...]]):
    """Numbers and ranges of numbers: ``0-4`` or ``0,3,7``."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The seeds in the order in which they are given."""
        if isinstance(value, tuple):
            return value
        seeds: list[int] = []
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if match and max(map(len, match.groups(""))) > _MOST_DIGITS:
                self.fail(f"{part!r}: expected seeds of at most {_MOST_DIGITS} digits")
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if last < first:
                self.fail(f"{value!r}: expected seeds such as 0-4 or 0,3,7, {part!r} is neither a seed nor a range")
            count = last - first + 1 + len(seeds)
            if count > _MOST_SEEDS:
                self.fail(f"{value!r} asks for {count:,} runs, one per seed: give at most {_MOST_SEEDS:,} at once")
            seeds += range(first, last + 1)
        twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
        if twice is not None:
            self.fail(f"{value!r} names the seed {twice} twice: give each seed once")
        return tuple(seeds)


def train_seeds(cfg: Config, seeds: Sequence[int], jobs: int, *, progress: bool) -> int:
    """Trains the seeds that are unfinished, `jobs` at a time, and reports all seeds; returns the exit code."""
    from minding.training.run_group import SeedRuns

    with contextlib.ExitStack() as held:
        with bad_input():
            from minding.engine.paths import shown
            from minding.engine.run.lock import RunLock

            check_jobs(cfg, jobs)
            runs = SeedRuns.of(cfg)
            lock = held.enter_context(RunLock(runs.folder))
            changed = runs.renew()
        numbers = ", ".join(map(str, seeds))
        echo(f"{cfg.policy.type} on {cfg.env.env_id}, seeds {numbers}, in {shown(runs.folder)}")
        for name, differing in runs.differences().items():
            echo(f"settings that differ from {name}: {_differences_text(differing)}")
        for key, (before, now) in changed.items():
            echo(f"{key} is now {now} instead of {before}: finished seeds keep the old value")
        return _train_locked(runs, lock, seeds, jobs, progress)


def _differences_text(differing: Mapping[str, tuple[Any, Any]]) -> str:
    shown = [f"{path}={json.dumps(here)} (there {json.dumps(there)})" for path, (there, here) in differing.items()]
    more = f" and {len(shown) - _MOST_SETTINGS} more" if len(shown) > _MOST_SETTINGS else ""
    return ", ".join(shown[:_MOST_SETTINGS]) + more


def _train_locked(runs: SeedRuns, lock: RunLock, seeds: Sequence[int], jobs: int, progress: bool) -> int:
    from minding.engine.process.commands import run_commands

    commands = {seed: runs.command(seed) for seed in seeds if runs.finished(seed) is None}
    done = [str(seed) for seed in seeds if seed not in commands]
    if done:
        echo(f"finished before: {', '.join(done)}")
    display = display_of(runs, commands, progress)

    def watch() -> None:
        if runs.keep(lock):
            text = f"the folder {runs.folder} was removed or renamed: the seeds continue in a new one of that name"
            echo(f"minding: {text}; the same command trains the lost seeds again", err=True)
        display.show()

    with display:
        ended_by = run_commands(list(commands.values()), jobs, watch)
    finished = {seed: run_dir for seed in seeds if (run_dir := runs.finished(seed)) is not None}
    failed = [seed for seed in commands if seed not in finished and ended_by is None]
    if ended_by is None and finished:
        report_seeds(runs, finished)
    left = len(seeds) - len(finished)
    if left:
        which = f"seed{'s' * (len(failed) > 1)} {', '.join(map(str, failed))}"
        what = f"{which} failed" if failed else f"ended by {ended_by}"
        echo(f"minding: {what}: {len(finished)} of {len(seeds)} seeds are finished; the same command trains the "
                   "others, from their checkpoints", err=True)  # fmt: skip
    return EXIT_CODES[ended_by] if ended_by else int(bool(failed))


def display_of(runs: SeedRuns, commands: Mapping[int, Command], progress: bool) -> Display:
    """The display of the progress of seeds."""
    from minding.training.run_group import name_of

    return Display("seed", commands, name_of, lambda seed, command: _outcome(runs, seed, command), progress)


def _outcome(runs: SeedRuns, seed: int, command: Command) -> str:
    """A text about how the process of a seed ended."""
    run_dir = runs.finished(seed)
    if run_dir is not None:
        return f"done: {_evaluation(run_dir.figures())}"
    if command.code in _INTERRUPTED:
        return "interrupted"
    return f"failed ({command.failure})"


def report_seeds(runs: SeedRuns, finished: Mapping[int, RunDir]) -> None:
    """Compares the finished seeds, draws their curve, and writes the figures to a file."""
    from minding.cli.compare import print_runs
    from minding.engine.paths import shown
    from minding.engine.run.aggregates import aggregate
    from minding.engine.run.comparison import compare_runs
    from minding.engine.run.curves import learning_curves
    from minding.engine.run.plotting import plot_curves

    folders = [run_dir.path for run_dir in finished.values()]
    figures = {seed: run_dir.figures() for seed, run_dir in finished.items()}
    echo()
    print_runs(compare_runs(folders))
    scores = [each["eval_return"] for each in figures.values() if each.get("n_eval_episodes")]
    differing = {name: {path: here for path, (_, here) in each.items()} for name, each in runs.differences().items()}
    summary: dict[str, Any] = {"settings that differ from": differing, "seeds": figures}
    if scores:
        found = aggregate(scores)
        summary |= {"n": found.n, "mean": found.mean._asdict(), "iqm": found.iqm._asdict()}
    curve = drawn(runs.curve, lambda file: plot_curves(learning_curves(folders), file))
    echo()
    print_fields({"curve": curve, "folder": shown(runs.folder)})
    write_figures(runs.summary, summary)


def _evaluation(figures: Mapping[str, Any]) -> str:
    from minding.engine.run.run_summary import judged_figures

    if not figures.get("n_eval_episodes"):
        judged = [f"{name} {text}" for name, text in judged_figures(figures.get("data_eval", {})).items()]
        return ", ".join(judged) or "no evaluation"
    found = mean_and_spread(figures["eval_return"], figures["eval_std"])
    return f"{found} over {figures['n_eval_episodes']} episodes"
