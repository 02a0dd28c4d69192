"""`minding inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from minding.cli.common import (
    COUNT,
    SEED,
    RunFolder,
    WholeNumber,
    bad_input,
    checkpoint_of,
    ckpt_option,
    command,
    echo,
    trust_option,
)

if TYPE_CHECKING:
    from minding.training.world_model_check import Horizon, Window

_PRINTED = (1, 5, 15)


@command(examples=("inspect runs/cartpole_dreamer --imagine", "inspect runs/cartpole_dreamer --imagine --horizon 5"))
@click.argument("run", type=RunFolder())
@click.option("--imagine", is_flag=True, help="Compare imagined with real steps.")
@click.option("--steps", type=COUNT, default=2_000, show_default=True, help="Environment steps to play.")
@click.option(
    "--context",
    type=WholeNumber(2, 10**6),
    default=5,
    show_default=True,
    help="Observations of an episode that the model sees before it imagines.",
)
@click.option("--horizon", type=WholeNumber(1, 10**4), default=15, show_default=True, help="Steps to imagine.")
@click.option("--seed", type=SEED, help="Seed of the environments; the run's own by default.")
@ckpt_option
@trust_option
def inspect(
    run: str,
    imagine: bool,
    steps: int,
    context: int,
    horizon: int,
    seed: int | None,
    ckpt: str | None,
    trust: bool,
) -> None:
    """Compare the predictions of a world model with reality.

    The agent of the run folder RUN plays without exploration. After `--context` observations of an episode, the
    world model imagines the next steps from each state, with the actions that the agent took. The command prints
    one such window, real and imagined, and the errors by horizon, compared with a model that always repeats the
    last observation and reward.
    """
    if not imagine:
        raise click.UsageError("nothing to inspect: give --imagine, which inspects the agent's world model")
    with bad_input():
        from minding.engine.run.run_dir import RunDir
        from minding.training.world_model_check import check_window, imaginable

        run_dir = RunDir.open(run, trust=trust)
        chosen = checkpoint_of(run_dir, ckpt)
        cfg = imaginable(run_dir, chosen)
        check_window(cfg, context, horizon)

    from minding.training.world_model_check import inspect_imagination

    errors, window, found = inspect_imagination(run_dir, steps, context, horizon, seed=seed, ckpt=chosen)
    echo(f"{cfg.policy.type} on {cfg.env.env_id}, {found.name}")
    echo("\none window: real, imagined; the context up to step 0")
    _print(_window_lines(window))
    echo("\nerror by horizon: imagined, and in brackets the error of repeating the last observation and reward")
    _print(_error_lines([each for each in errors if each.step in (*_PRINTED, len(errors))]))


def _window_lines(window: Window) -> list[list[str]]:
    lines = [["step", *(cell for name in window.columns for cell in (name, ""))]]
    for step, real, imagined in zip(window.steps, window.real, window.imagined, strict=True):
        cells = [_cell(number) for pair in zip(real, imagined, strict=True) for number in pair]
        lines.append([str(step), *cells])
    return lines


def _error_lines(errors: Sequence[Horizon]) -> list[list[str]]:
    names = list(errors[0].imagined)
    lines = [["step", "windows", *(cell for name in names for cell in (name, ""))]]
    for each in errors:
        cells = [cell for name in names for cell in (f"{each.imagined[name]:.4g}", f"({each.repeated[name]:.4g})")]
        lines.append([str(each.step), str(each.count), *cells])
    return lines


def _cell(number: float) -> str:
    return "-" if number != number else f"{number:.3f}"


def _print(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        echo("".join(f"  {cell:>{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
