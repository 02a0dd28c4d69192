"""`minding record`."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import click

from minding.cli.common import (
    COUNT,
    SEED,
    GivenPath,
    RunFolder,
    bad_input,
    chosen_of,
    ckpt_option,
    echo,
    env_option,
    model_option,
    played_in,
    trust_option,
    written,
)

if TYPE_CHECKING:
    from minding.engine.run.run_dir import RunDir


@click.command("record")
@click.argument("run", type=RunFolder())
@click.option(
    "--out",
    type=GivenPath(),
    metavar="FILE",
    help="File to write: .gif, or .mp4 (extra video); RUN/episode.gif by default.",
)
@click.option("--episodes", type=COUNT, default=1, show_default=True, help="Number of episodes.")
@click.option("--seed", type=SEED, help="Seed of the environment; the run's own by default.")
@env_option
@ckpt_option
@model_option
@trust_option
def record(
    run: str,
    out: str | None,
    episodes: int,
    seed: int | None,
    env: str | None,
    ckpt: str | None,
    model: str | None,
    trust: bool,
) -> None:
    """Record a video of episodes of the agent of the run folder RUN, played without exploration, in one file.

    If RUN is a folder of seeds, the seed with the highest final evaluation plays.
    """
    with bad_input():
        from minding.configs import compile_run
        from minding.engine.paths import absolute
        from minding.engine.run.run_dir import RunDir, run_folders
        from minding.envs.video import video_writer

        runs = [RunDir.open(folder, trust=trust) for folder in run_folders(run)]
        run_dir = max(runs, key=_final_return)
        if len(runs) > 1:
            echo(f"the best of {len(runs)} seeds: {run_dir.path.name}")
        file = run_dir.products / run_dir.video.name if out is None else absolute(out)
        video_writer(file)
        cfg = played_in(compile_run(run_dir.load_config()), env)
        chosen = chosen_of(run_dir, ckpt, model)

    from minding import training

    replaced = file.exists()
    ends = training.record(run_dir, file, seed=seed, ckpt=chosen, n_episode=episodes, played=cfg)
    for end in ends:
        told = "".join(f", {name} {value:.4g}" for name, value in end.info.items())
        what = f"return {end.episode_return:.1f} in {end.episode_length} steps{told}"
        echo(f"{cfg.policy.type} on {cfg.env.env_id}: {what}")
    if len(ends) > 1:
        echo(f"mean of {len(ends)} episodes {statistics.fmean(end.episode_return for end in ends):.1f}")
    written("video", file, replaced)


def _final_return(run: RunDir) -> float:
    """The return of the final evaluation; minus infinity if there is none."""
    value = run.figures().get("eval_return")
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else -math.inf
