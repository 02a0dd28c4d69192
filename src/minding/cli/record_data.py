"""`minding record-data`."""

from __future__ import annotations

from pathlib import Path

import click

from minding.cli.common import RunFolder, bad_input, checkpoint_of, ckpt_option, trust_option


@click.command("record-data")
@click.argument("run", type=RunFolder())
@click.option("--steps", type=click.IntRange(min=1), required=True, help="Environment steps to record.")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="Folder of the data; RUN/data by default.")
@click.option("--explore", is_flag=True, help="Play as while collecting instead of without exploration.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the environments; the run's own by default.")
@ckpt_option
@trust_option
def record_data(
    run: str, steps: int, out: str | None, explore: bool, seed: int | None, ckpt: str | None, trust: bool
) -> None:
    """Record what the agent of the run folder RUN does, for learning from it without an environment.

    `minding train cartpole_bc policy.other.data=FOLDER` learns from the recorded data.
    """
    with bad_input():
        from minding.configs import compile_run
        from minding.engine.errors import DataError
        from minding.engine.run.run_dir import RunDir

        run_dir = RunDir.open(run, trust=trust)
        folder = run_dir.path / "data" if out is None else Path(out)
        if folder.exists():
            raise DataError(f"{str(folder)!r} exists: remove it, or give another folder with --out")
        cfg = compile_run(run_dir.load_config())
        from minding import training

        training.check_recordable(cfg)
        chosen = checkpoint_of(run_dir, ckpt)

    with click.progressbar(length=steps, label=f"{cfg.policy.type} on {cfg.env.env_id}") as bar:
        done = 0

        def report(recorded: int) -> None:
            nonlocal done
            bar.update(min(recorded, steps) - done)
            done = min(recorded, steps)

        data = training.record_data(run_dir, steps, folder, ckpt=chosen, explore=explore, seed=seed, report=report)
    returns = data.returns()
    if len(returns):
        spread = f"return {returns.mean():.1f} ± {returns.std():.1f}, from {returns.min():.1f} to {returns.max():.1f}"
        click.echo(f"{len(data):,} steps, {len(returns)} whole episodes: {spread}")
    else:
        click.echo(f"{len(data):,} steps, no whole episode: record more to know their returns")
    click.echo(f"data: {folder}")
