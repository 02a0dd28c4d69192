"""`minding record`."""

from __future__ import annotations

from pathlib import Path

import click

from minding.cli.common import bad_input, trust_option


@click.command("record")
@click.argument("run", type=click.Path())
@click.option(
    "--out",
    type=click.Path(),
    metavar="FILE",
    help="File to write: .gif, or .mp4 (extra video); RUN/episode.gif by default.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the episode; the run's own by default.")
@click.option(
    "--ckpt",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Film a checkpoint, such as RUN/ckpt/best; the newest by default.",
)
@trust_option
def record(run: str, out: str | None, seed: int | None, ckpt: str | None, trust: bool) -> None:
    """Film an episode that the agent of the run folder RUN plays without exploration."""
    with bad_input():
        from minding.configs import compile_run
        from minding.engine.run.run_dir import RunDir
        from minding.envs.video import video_writer

        run_dir = RunDir.open(run, trust=trust)
        file = run_dir.path / "episode.gif" if out is None else Path(out)
        video_writer(file)
        cfg = compile_run(run_dir.load_config())

    from minding import training

    end = training.record(run_dir, file, seed=seed, ckpt=Path(ckpt) if ckpt else None)
    told = "".join(f", {name} {value:.4g}" for name, value in end.info.items())
    click.echo(
        f"{cfg.policy.type} on {cfg.env.env_id}: return {end.episode_return:.1f} in {end.episode_length} steps{told}"
    )
    click.echo(f"video: {file}")
