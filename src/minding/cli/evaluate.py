"""Episodes of a trained agent: `minding eval` and `minding record`."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minding.cli.common import (
    BEST,
    COUNT,
    SEED,
    GivenPath,
    RunFolder,
    bad_input,
    check_place,
    chosen_of,
    ckpt_option,
    command,
    echo,
    env_option,
    mean_and_spread,
    model_option,
    number,
    open_run,
    out_option,
    played_in,
    trust_option,
    written,
)

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.run.pool import Version
    from minding.engine.run.run_dir import RunDir
    from minding.policies.export.reader import ExportedPolicy


@command("eval", examples=("eval runs/cartpole_ppo", "eval runs/cartpole_ppo --episodes 20 --ckpt best"))
@click.argument("run", type=RunFolder())
@click.option("--episodes", type=COUNT, default=100, show_default=True, help="Number of episodes.")
@click.option("--seed", type=SEED, help="Seed of the environments; the run's own by default.")
@env_option
@ckpt_option
@model_option
@click.option(
    "--exported",
    type=GivenPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Run the episodes with this file from `minding export`, after checking that it acts like the agent.",
)
@trust_option
def evaluate(
    run: str,
    episodes: int,
    seed: int | None,
    env: str | None,
    ckpt: str | None,
    model: str | None,
    exported: str | None,
    trust: bool,
) -> None:
    """Play episodes with a trained agent, and print their returns.

    The agent of the run folder RUN acts without exploration. The command also prints the mean of the values that
    the environment reports at the end of episodes, such as the winner (env.info_keys). If RUN is a folder of seeds,
    the agent of each seed plays.
    """
    with bad_input():
        from minding.configs import compile_saved
        from minding.engine.run.run_dir import run_folders

        if exported and (ckpt or model):
            raise click.UsageError(
                f"{'--ckpt' if ckpt else '--model'} and --exported name two agents: give one of them"
            )
        folders = run_folders(run)
        if len(folders) > 1 and (exported or ckpt not in (None, BEST)):
            raise click.UsageError(
                f"--ckpt FOLDER and --exported name one agent, but {run} holds {len(folders)} seeds: give one seed"
            )
        runs = [open_run(folder, trust, env) for folder in folders]
        found = [(run_dir, played_in(compile_saved(run_dir), env)) for run_dir in runs]
        agents = [chosen_of(run_dir, ckpt, model) for run_dir in runs]

    means = []
    for (run_dir, cfg), chosen in zip(found, agents, strict=True):
        if len(found) > 1:
            echo(f"seed {cfg.seed}: ", nl=False)
        means.append(_play(run_dir, cfg, episodes, seed, chosen, exported))
    if len(means) > 1:
        each = f"from {number(min(means))} to {number(max(means))}"
        echo(f"mean of {len(means)} seeds {number(statistics.fmean(means))}, {each}")


def _play(
    run_dir: RunDir, cfg: Config, episodes: int, seed: int | None, ckpt: Path | Version | None, exported: str | None
) -> float:
    """Plays with the agent of one run, prints the results and returns the mean."""
    from minding import training
    from minding.engine.paths import absolute
    from minding.training.evaluation import Evaluation

    played = training.evaluate(
        run_dir,
        episodes,
        cfg.seed if seed is None else seed,
        acting=_verified(run_dir, absolute(exported)) if exported else None,
        ckpt=ckpt,
        played=cfg,
    )
    returns = [end.episode_return for end in played]
    found = Evaluation.of(played, None if exported else cfg)
    if found.scores:
        echo(f"{cfg.policy.type} on {cfg.env.env_id}: mean score {found.mean:.3f} over {len(returns):,} games")
        for opponent, score in found.scores.items():
            echo(f"against {opponent} {score}")
        return statistics.fmean(returns)
    spread = statistics.pstdev(returns)
    echo(
        f"{cfg.policy.type} on {cfg.env.env_id}: return {mean_and_spread(statistics.fmean(returns), spread)} "
        f"over {len(returns)} episodes, from {number(min(returns))} to {number(max(returns))}"
    )
    for name, mean in found.info.items():
        echo(f"mean {name} {mean:.4g}")
    return statistics.fmean(returns)


def _verified(run: RunDir, file: Path) -> ExportedPolicy:
    """The exported policy; ExportError if its actions differ from those of the run's newest policy."""
    from minding import training
    from minding.engine.errors import ExportError

    policy, parity = training.open_exported(run, file)
    echo(f"parity: {parity}")
    if not parity.holds:
        raise ExportError(
            f"{file} (of {policy.description.get('checkpoint')}) does not act as the newest policy of {run.path}: "
            "export again"
        )
    return policy


@command("record", examples=("record runs/cartpole_ppo", "record zoo/pendulum_sac --episodes 3 -o pendulum.gif"))
@click.argument("run", type=RunFolder())
@out_option("FILE", "File to write: .gif, or .mp4 (extra video); RUN/episode.gif by default.")
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
    """Film episodes of a trained agent.

    The agent of the run folder RUN acts without exploration; all episodes are in one file. If RUN is a folder of
    seeds, the seed with the highest final evaluation plays.
    """
    with bad_input():
        from minding.configs import compile_saved
        from minding.engine.paths import absolute
        from minding.engine.run.run_dir import run_folders
        from minding.envs.video import video_writer

        runs = [open_run(folder, trust, env) for folder in run_folders(run)]
        run_dir = max(runs, key=_final_return)
        if len(runs) > 1:
            echo(f"the best of {len(runs)} seeds: {run_dir.path.name}")
        file = run_dir.products / run_dir.video.name if out is None else absolute(out)
        video_writer(file)
        check_place("video", file)
        cfg = played_in(compile_saved(run_dir), env)
        chosen = chosen_of(run_dir, ckpt, model)

    from minding import training

    replaced = file.exists()
    ends = training.record(run_dir, file, seed=seed, ckpt=chosen, n_episode=episodes, played=cfg)
    for end in ends:
        info = "".join(f", {name} {value:.4g}" for name, value in end.info.items())
        what = f"return {end.episode_return:.1f} in {end.episode_length} steps{info}"
        echo(f"{cfg.policy.type} on {cfg.env.env_id}: {what}")
    if len(ends) > 1:
        echo(f"mean of {len(ends)} episodes {statistics.fmean(end.episode_return for end in ends):.1f}")
    written("video", file, replaced)


def _final_return(run: RunDir) -> float:
    """The return of the final evaluation; minus infinity if there is none."""
    value = run.figures().get("eval_return")
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else -math.inf
