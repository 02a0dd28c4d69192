"""`minding train` and `minding resume`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import RunFolder, WholeNumber, bad_input, command, echo, steps_option, trust_option
from minding.cli.process import EXIT_CODES, report_lost_output
from minding.cli.seeds import SeedList, train_seeds
from minding.cli.settings import check_lane_settings, check_seed_options, check_source, split_arguments, with_shortcuts

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.run.run_dir import RunDir

_UNSAVED = 3
"""Exit code of a run whose last state could not be saved, however it ended."""


@command(
    examples=(
        "train cartpole_ppo",
        "train ppo --env Acrobot-v1 --steps 100000 policy.learn.learning_rate=1e-3",
        "train cartpole_ppo --seeds 0-4 --jobs 2",
    )
)
@click.argument("config", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--env", metavar="ENV_ID", help="Environment; the same as env.env_id=ENV_ID.")
@click.option("--algo", metavar="NAME", help="Algorithm; the same as policy.type=NAME.")
@click.option("--seed", type=int, help="Seed of the run; the same as seed=N.")
@click.option(
    "--seeds",
    type=SeedList(),
    metavar="SEEDS",
    help="Train once with each of these seeds, such as 0-4 or 0,3,7, each in its own process; finished seeds "
    "are not trained again, and interrupted ones are resumed.",
)
@click.option(
    "--jobs", type=WholeNumber(min=1), help="With --seeds: number of seeds that run at the same time; 1 by default."
)
@click.option(
    "-o", "--out", metavar="FOLDER", help="Folder that holds the run folders; the same as run.out_dir=FOLDER."
)
@steps_option
@click.option("--device", metavar="DEVICE", help="auto, CPU, Ascend or GPU; the same as device=DEVICE.")
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the newest run of this experiment with the same seed, environment and policy; start if there is none.",
)
@click.option(
    "--from",
    "begin_from",
    metavar="RUN",
    help="Start from the weights, targets and optimizer state of the run in this folder; the same as "
    "run.begin_from=RUN.",
)
@click.option("--async", "async_mode", is_flag=True, help="Collect and evaluate in separate processes.")
@click.option("--collectors", type=int, help="Number of collector processes; the same as lanes.collectors=N.")
@click.option("--cluster", metavar="ADDRESS", help="With --async: collect on a Ray cluster, local or HOST:PORT.")
@click.option(
    "--insecure-cluster",
    is_flag=True,
    help="Use a cluster without a token: anyone who can reach it can run code on its machines; the same as "
    "lanes.insecure=true.",
)
@click.option("--trace", is_flag=True, help="Write a timeline of all lanes to trace.json.")
@click.option("--profile", is_flag=True, help="Print the time of each middleware at the end.")
@trust_option
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def train(
    config: str | None,
    overrides: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    resume: bool,
    trust: bool,
    no_progress: bool,
    **options: Any,
) -> int:
    """Train an agent.

    CONFIG is a preset or an algorithm (see `minding list`), a saved .yaml configuration or run folder, or a .py file
    that defines main_config. An algorithm needs an environment, such as --env CartPole-v1, and uses its default
    settings. The name of a preset or an algorithm always means the preset or the algorithm: give a folder of that name
    as a path, such as ./ppo. KEY=VALUE changes a setting, such as policy.learn.learning_rate=3e-4.

    With --seeds, the command ends with one table and one plot of all seeds: mean, interquartile mean and 95 %
    intervals.

    On SIGINT or SIGTERM the run finishes its iteration, saves a checkpoint and exits with 130 or 143 within 10 s. A
    second signal ends the process at once.
    """
    with bad_input():
        from minding import training
        from minding.configs import compile_run, load_user_config
        from minding.engine.process import collectives
        from minding.engine.run.run_dir import RunDir

        config, overrides = split_arguments(config, overrides)
        given = with_shortcuts(overrides, options)
        check_seed_options(given, seeds, jobs, resume)
        check_source(config, given)
        cfg = compile_run({} if config is None else load_user_config(config, trust=trust, own=given.paths), given)
        check_lane_settings(given, cfg, "--async")
        training.check_runnable(cfg)
        if collectives.started_by_msrun() and not training.join_msrun(cfg):
            return 0
        if seeds is None:
            earlier = _resumable(cfg) if resume else None
            if earlier is None:
                training.check_begin(cfg)
            run_dir = earlier or (RunDir.restart(cfg) if resume else RunDir.create(cfg))
    if seeds is not None:
        return train_seeds(cfg, seeds, jobs or 1, progress=not no_progress)
    return run_training(cfg, run_dir, resume=earlier is not None, progress=not no_progress)


def run_training(cfg: Config, run_dir: RunDir, *, resume: bool, progress: bool) -> int:
    """Trains in `run_dir`, from the beginning or from the newest checkpoint there; returns the exit code."""
    with contextlib.ExitStack() as held:
        with bad_input():
            from minding.engine.run.lock import RunLock

            held.enter_context(RunLock(run_dir.path))
        return _train_locked(cfg, run_dir, resume=resume, progress=progress)


def _train_locked(cfg: Config, run_dir: RunDir, *, resume: bool, progress: bool) -> int:
    from minding.engine.paths import shown

    report_lost_output("minding: {reason}: the run continues without its output; Ctrl-C ends it with a checkpoint")
    echo(f"{cfg.policy.type} on {cfg.env.env_id}, seed {cfg.seed}, in {shown(run_dir.path)}")

    from minding import training
    from minding.cli.summary import print_summary, report_unsaved
    from minding.policies import kernels

    if not kernels.compiled():
        echo("minding: learning on CPU is slower than necessary: see `minding doctor`", err=True)
    newest = "latest" if resume else None
    summary = training.train(cfg, run_dir, progress=progress, resume=newest, raise_signals=False)
    if summary.profile:
        echo(f"\n{summary.profile}")
    run_dir.write_summary(vars(summary))
    # Drawing takes seconds; after a signal there is no time for it.
    print_summary(cfg, run_dir, summary, draw=summary.stop_reason not in EXIT_CODES)
    if summary.unsaved:
        report_unsaved(run_dir)
        return _UNSAVED
    return EXIT_CODES.get(summary.stop_reason, 0)


def _resumable(cfg: Config) -> RunDir | None:
    """The newest run folder of this run, if it has a checkpoint to resume from; otherwise prints why not."""
    from minding.engine.errors import NoCheckpointError
    from minding.engine.run.run_dir import RunDir

    try:
        return RunDir.newest(cfg)
    except NoCheckpointError as error:
        echo(f"minding: nothing to resume: {error}; a new run starts from the beginning", err=True)
        return None


@command(examples=("resume runs/cartpole_ppo", "resume runs/cartpole_ppo run.max_env_step=200000"))
@click.argument("run", type=RunFolder())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@trust_option
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def resume(run: str, overrides: tuple[str, ...], trust: bool, no_progress: bool) -> int:
    """Continue a run from its newest undamaged checkpoint.

    KEY=VALUE changes a setting for the rest of the run in the folder RUN. Settings that define a run, such as seed,
    environment and network, cannot change: see `minding docs reliability`.
    """
    with bad_input():
        from minding import training
        from minding.configs import compile_run
        from minding.engine.checkpoint import resumable_checkpoints
        from minding.engine.config.compiler import Overrides
        from minding.engine.config.identity import (
            check_complete,
            check_identity,
            check_newest,
            check_not_shortened,
            identity,
        )
        from minding.engine.errors import NoCheckpointError
        from minding.engine.process import collectives
        from minding.engine.run.run_dir import RunDir
        from minding.training.saved_agent import is_saved

        # The run goes on where it lies, from its own checkpoint.
        given = Overrides(overrides)
        run_dir = RunDir.open(run, trust=trust, own=(*given.paths, "run.out_dir", "run.begin_from"))
        if is_saved(run_dir.path):
            raise NoCheckpointError(
                f"{run!r} is a saved policy, not a run: minding.load({run!r}).learn() starts a run with its weights"
            )
        if not resumable_checkpoints(run_dir.checkpoints):
            raise NoCheckpointError(f"no checkpoint in {run!r}: the run cannot be resumed; start it again")
        saved = run_dir.load_config(learns=True)
        check_complete(run_dir.checkpoints, saved, given.paths, run_dir.config)
        cfg = compile_run(saved, given)
        check_lane_settings(given, cfg, "lanes.async_mode=true")
        check_identity(identity(compile_run(saved)), cfg, f"run folder {run!r}")
        check_newest(run_dir.checkpoints, cfg)
        run_dir.check_writable()
        check_not_shortened(run_dir.path, run_dir.checkpoints, saved, cfg)
        training.check_runnable(cfg)
        if collectives.started_by_msrun() and not training.join_msrun(cfg):
            return 0
    return run_training(cfg, run_dir, resume=True, progress=not no_progress)
