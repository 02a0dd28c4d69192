"""Commands for a trained agent: `minding eval`, `minding record`, `minding play` and `minding export`."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minding.cli.common import (
    BEST,
    COUNT,
    SEED,
    GivenPath,
    RunFolder,
    WholeNumber,
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

    The agent of the run folder RUN acts as in its evaluations. The command also prints the mean of the values that
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
    from minding.engine.run.run_summary import opponent_of
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
    spread, played_against = statistics.pstdev(returns), opponent_of(cfg)
    echo(
        f"{cfg.policy.type} on {cfg.env.env_id}: return {mean_and_spread(statistics.fmean(returns), spread)} "
        f"over {len(returns)} episodes, from {number(min(returns))} to {number(max(returns))}"
        f"{f', against {played_against}' if played_against else ''}"
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

    The agent of the run folder RUN acts as in its evaluations; all episodes are in one file. If RUN is a folder of
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


@command(examples=("export runs/cartpole_ppo --format onnx", "export zoo/pendulum_sac --format mindir -o agent.mindir"))
@click.argument("run", type=RunFolder())
@click.option(
    "--format", "file_format", type=click.Choice(["mindir", "onnx"]), required=True, help="Format of the file."
)
@ckpt_option
@model_option
@out_option("FILE", "The file; RUN/policy.FORMAT by default.")
@trust_option
def export(run: str, file_format: str, ckpt: str | None, model: str | None, out: str | None, trust: bool) -> None:
    """Write an agent to one file that acts without minding.

    The file takes raw observations, Discrete values counted from 0, and returns the actions of the agent of the run
    folder RUN, without exploration. FILE.json describes its inputs and outputs; `minding docs export` says how to load
    it.
    """
    with bad_input():
        from minding.configs import compile_saved
        from minding.engine.run.run_dir import RunDir

        run_dir = RunDir.open(run, trust=trust)
        if out is not None and not out.endswith(f".{file_format}"):
            raise click.BadParameter(f"--out={out}: expected a file name that ends with .{file_format}")
        compile_saved(run_dir)
        chosen = chosen_of(run_dir, ckpt, model)
        check_place("file", out or run_dir.products / f"policy.{file_format}")

    from minding import training

    made = training.export_run(run_dir, file_format, chosen, Path(out) if out else None)
    about = made.description
    echo(f"{made.path}: {about['algorithm']} on {about['env_id']}, {about['checkpoint']}")
    for kind in ("inputs", "outputs"):
        for each in about[kind]:
            shape = ", ".join(map(str, each["shape"]))
            echo(f"  {kind[:-1]:<7}{each['name']}: {each['dtype']} ({shape})")


@command(examples=("play zoo/tictactoe_alphazero", "play runs/connect_four_alphazero --second --show-search"))
@click.argument("run", type=RunFolder())
@click.option("--second", is_flag=True, help="Let the agent move first.")
@click.option(
    "--simulations",
    type=WholeNumber(0, 10**6),
    help="The agent's simulations per move; policy.eval.simulations by default, 0 plays the network without search.",
)
@click.option(
    "--opponent",
    metavar="NAME",
    help="Let an opponent play in your place: random, minimax, uct:SIMULATIONS or checkpoint:FOLDER.",
)
@click.option("--show-search", is_flag=True, help="Print visits, prior and value of each move.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the opponent's random choices.")
@ckpt_option
@model_option
@trust_option
def play(
    run: str,
    second: bool,
    simulations: int | None,
    opponent: str | None,
    show_search: bool,
    seed: int,
    ckpt: str | None,
    model: str | None,
    trust: bool,
) -> None:
    """Play a board game against an agent, in the terminal.

    Moves may also come through a pipe. A move is the number of an action. `undo` takes back your last move and the
    reply, `hint` shows the move that the agent would play, `quit` or the end of the input ends the game.
    """
    with bad_input():
        from minding.engine.run.run_dir import RunDir
        from minding.training.board_table import BoardAgent, Table, board_game_of, opponent_named

        run_dir = RunDir.open(run, trust=trust)
        cfg, game = board_game_of(run_dir)
        other = None if opponent is None else opponent_named(opponent, game)
        chosen = chosen_of(run_dir, ckpt, model)

    from minding.middleware.board_search import judge_of
    from minding.training.loading import load_policy

    policy = load_policy(run_dir, chosen).policy
    judge = judge_of(cfg, policy.eval_mode, game, "play")
    count = cfg.policy.eval.simulations if simulations is None else simulations
    table = Table(
        game,
        BoardAgent(cfg, game, judge, count),
        second=second,
        opponent=None if other is None else other(),
        show_search=show_search,
        read=_next_line,
        write=echo,
        seed=seed,
    )
    table.play()


def _next_line(prompt: str) -> str:
    """The next line of the input with its line end; empty after the last line."""
    from minding.engine.console import stdout

    echo(prompt, nl=False)
    stdout().flush()
    line = sys.stdin.readline()
    if not line or not sys.stdin.isatty():
        # A terminal echoes the input by itself, but not its end.
        echo(line.rstrip("\n"))
    return line
