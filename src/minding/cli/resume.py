"""`minding resume`."""

from __future__ import annotations

import click

from minding.cli.common import RunFolder, bad_input, trust_option
from minding.cli.settings import check_lane_settings
from minding.cli.train import run_training


@click.command()
@click.argument("run", type=RunFolder())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@trust_option
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def resume(run: str, overrides: tuple[str, ...], trust: bool, no_progress: bool) -> int:
    """Resume the run in the folder RUN from its newest undamaged checkpoint.

    KEY=VALUE changes a setting for the rest of the run, such as run.max_env_step=200000. Settings that define a
    run, such as seed, environment and network, cannot change: see docs/reliability.md.
    """
    with bad_input():
        from minding import training
        from minding.configs import compile_run
        from minding.engine.checkpoint import resumable_checkpoints
        from minding.engine.config.identity import check_identity, check_newest, check_not_shortened, identity
        from minding.engine.errors import NoCheckpointError
        from minding.engine.run.run_dir import RunDir
        from minding.training.sharing import is_saved

        run_dir = RunDir.open(run, trust=trust)
        if is_saved(run_dir.path):
            raise NoCheckpointError(
                f"{run!r} is a saved policy, not a run: minding.load({run!r}).learn() starts a run with its weights"
            )
        if not resumable_checkpoints(run_dir.checkpoints):
            raise NoCheckpointError(f"no checkpoint in {run!r}: the run cannot be resumed; start it again")
        saved = run_dir.load_config()
        cfg = compile_run(saved, overrides)
        check_lane_settings(overrides, cfg, "lanes.async_mode=true")
        check_identity(identity(compile_run(saved)), cfg, f"run folder {run!r}")
        check_newest(run_dir.checkpoints, cfg)
        check_not_shortened(run_dir.path, run_dir.checkpoints, saved, cfg)
        training.check_runnable(cfg)
    return run_training(cfg, run_dir, resume=True, progress=not no_progress)
