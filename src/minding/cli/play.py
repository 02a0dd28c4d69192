"""`minding play`."""

import sys

import click

from minding.cli.common import (
    SEED,
    RunFolder,
    WholeNumber,
    bad_input,
    chosen_of,
    ckpt_option,
    command,
    echo,
    model_option,
    trust_option,
)


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
