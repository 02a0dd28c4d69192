"""`minding tune`: a search over settings, each trial in a process of its own; then one table and the best settings."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import (
    GivenPath,
    WholeNumber,
    bad_input,
    command,
    drawn,
    echo,
    print_fields,
    print_lines,
    steps_option,
    trust_option,
    write_figures,
)
from minding.cli.jobs import Display, check_jobs
from minding.cli.process import EXIT_CODES
from minding.cli.settings import check_source, split_arguments, with_shortcuts

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.run.lock import RunLock
    from minding.training.run_group import StudyRuns
    from minding.training.tuning import Search, Trial


@command(examples=("tune cartpole_ppo --trials 20 --jobs 2", "tune sac --env Pendulum-v1 --steps 10000"))
@click.argument("config", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--trials", type=WholeNumber(1, 10_000), default=50, show_default=True, help="Total number of trials.")
@click.option(
    "--jobs", type=WholeNumber(min=1), default=1, show_default=True, help="Number of trials at the same time."
)
@click.option(
    "--space",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="Search these settings (YAML) instead of those of the algorithm.",
)
@click.option(
    "--study", type=GivenPath(), metavar="FOLDER", help="Folder of the search; RUNS/<exp_name>-tune by default."
)
@click.option("--env", metavar="ENV_ID", help="Environment; the same as env.env_id=ENV_ID.")
@click.option("--seed", type=int, help="Seed of the search and of each trial; the same as seed=N.")
@steps_option
@click.option("-o", "--out", metavar="FOLDER", help="Folder that holds the study; the same as run.out_dir=FOLDER.")
@trust_option
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def tune(
    config: str | None,
    overrides: tuple[str, ...],
    trials: int,
    jobs: int,
    space: str | None,
    study: str | None,
    trust: bool,
    no_progress: bool,
    **options: Any,
) -> int:
    """Search for better settings.

    CONFIG and KEY=VALUE are the same as for `minding train`; the first trial uses exactly these settings. Weak trials
    are stopped early. The same command continues an interrupted search, or extends a finished one with more --trials.
    The result is a table, the configuration of the best trial, and a plot of the importance of each setting: see
    `minding docs hyperparameter_search`.
    """
    with bad_input():
        from minding import training
        from minding.configs import compile_run, load_user_config
        from minding.engine.errors import ConfigError
        from minding.engine.paths import absolute, shown
        from minding.engine.run.lock import RunLock
        from minding.training.run_group import StudyRuns, search_space, trial_config
        from minding.training.tuning import Search, load_optuna

        config, overrides = split_arguments(config, overrides)
        given = with_shortcuts(overrides, options)
        check_source(config, given)
        cfg = compile_run({} if config is None else load_user_config(config, trust=trust, own=given.paths), given)
        shared = trial_config(cfg, given)
        found = search_space(cfg, space)
        training.check_runnable(cfg)
        load_optuna()
        check_jobs(cfg, jobs)
        folder = absolute(Path(cfg.run.out_dir, f"{cfg.exp_name}-tune") if study is None else study)
        runs = StudyRuns.at(folder, shared, found)
    with contextlib.ExitStack() as held:
        with bad_input():
            lock = held.enter_context(RunLock(runs.folder))
            try:
                runs.prepare()
            except OSError as error:
                raise ConfigError(f"study {str(folder)!r}: cannot write: {error.strerror}") from None
            search = Search(runs, trials)
        what = f"{trials} trials over {len(found)} settings"
        echo(f"{cfg.policy.type} on {cfg.env.env_id}, {what}, in {shown(folder)}")
        return _search_locked(cfg, runs, search, lock, jobs, not no_progress)


def _search_locked(cfg: Config, runs: StudyRuns, search: Search, lock: RunLock, jobs: int, progress: bool) -> int:
    from minding.engine.process.commands import run_commands
    from minding.training.tuning import name_of

    before = search.trials
    if before:
        ended = [trial for trial in before if trial.state != "unfinished"]
        echo(f"{len(ended)} trials have ended; {len(before) - len(ended)} are continued")
    display = Display("trial", search.commands, name_of, lambda number, _: _outcome(search, number), progress)

    def watch() -> None:
        if runs.keep(lock):
            echo(f"minding: the folder {runs.folder} was removed or renamed: its contents are lost", err=True)
        search.watch()
        display.show()

    with display:
        ended_by = run_commands(search.processes(), jobs, watch)
    trials = search.trials
    done = sum(trial.state == "done" for trial in trials)
    if ended_by is not None:
        ended_count = sum(trial.state != "unfinished" for trial in trials)
        echo(f"minding: ended by {ended_by}: {ended_count} trials have ended; the same command continues the "
                   "search, and the others from their checkpoints", err=True)  # fmt: skip
        return EXIT_CODES[ended_by]
    _report(cfg, runs, search, trials)
    if not done:
        reason = next((trial.reason for trial in reversed(trials) if trial.reason), "all were pruned")
        echo(f"minding: none of {len(trials)} trials finished: {reason}", err=True)
    return 0 if done else 1


def _outcome(search: Search, number: int) -> str:
    trial = next(each for each in search.trials if each.number == number)
    if trial.value is not None:
        return f"done: {trial.value:.1f}"
    if trial.state == "failed":
        return f"failed ({trial.reason})"
    return f"pruned after {trial.evaluations} evaluations" if trial.state == "pruned" else "interrupted"


def _report(cfg: Config, runs: StudyRuns, search: Search, trials: list[Trial]) -> None:
    """Prints and stores the table, the best trial first, writes the best configuration and draws the importances."""
    from minding.engine.paths import shown
    from minding.engine.run.plotting import plot_importance
    from minding.training.tuning import name_of

    echo()
    ranked = sorted(trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0), trial.state, trial.number))
    rows = [
        (
            str(trial.number),
            "" if trial.value is None else f"{trial.value:.1f}",
            trial.state,
            str(trial.evaluations),
            ", ".join(map(_short, trial.settings)) or "as given",
        )
        for trial in ranked
    ]
    print_lines("Trials:", ("trial", "objective", "state", "evaluations", "settings"), rows, long=-1)
    described = {
        name_of(trial.number): {
            "settings": dict(setting.split("=", 1) for setting in trial.settings),
            "objective": trial.value,
            "state": trial.state,
            "evaluations": trial.evaluations,
        }
        for trial in ranked
    }
    write_figures(runs.summary, {"trials": described})
    lines = {}
    best = search.write_best(cfg)
    if best is not None:
        lines["best"] = f"trial {best.number}: {best.value:.1f}, the mean of the last third of its evaluations"
        lines["best run"] = shown(run.path) if (run := runs.run_of(name_of(best.number))) else "was removed"
        # Seeds that the search has not seen.
        lines["again"] = f"minding train {shlex.quote(shown(runs.best))} --seeds {cfg.seed + 1}-{cfg.seed + 5}"
    lines["importance"] = drawn(runs.importance, lambda file: plot_importance(search.importances(), file))
    lines["folder"] = shown(runs.folder)
    print_fields(lines)


def _short(setting: str) -> str:
    """KEY=VALUE without the section that most keys have, and with numbers rounded to four digits."""
    key, _, text = setting.removeprefix("policy.").partition("=")
    try:
        return f"{key}={text}" if text.lstrip("-").isdecimal() else f"{key}={float(text):.4g}"
    except ValueError:
        return f"{key}={text}"
