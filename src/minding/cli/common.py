"""Parameter types, options and output helpers that several commands share."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.run.pool import Version
    from minding.engine.run.run_dir import RunDir

BEST = "best"
"""The word for the checkpoint of the best evaluation."""


class Command(click.Command):
    """A command with examples, which its help ends with."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}minding {example}\n")


def command(name: str | None = None, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], Command]:
    return click.command(name, cls=Command, examples=examples)


_LARGEST = 10**12
"""The upper limit of integer settings."""


class WholeNumber(click.IntRange):
    """An integer in a range; also reads forms such as ``1e4``."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int | None = int(value)
        except ValueError:
            try:
                number = int(float(value)) if float(value).is_integer() else None
            except (ValueError, OverflowError):
                number = None
        if number is None:
            self.fail(f"{value!r} is not a whole number, such as 10000 or 1e4")
        if self.max is not None and number > self.max:
            self.fail(f"{value} is not in the range {self.min}<=x<={self.max}", param, ctx)
        return int(super().convert(number, param, ctx))

    def _describe_range(self) -> str:
        # A limit that nobody meets says nothing in a help text.
        return f"x>={self.min}" if self.max == _LARGEST else super()._describe_range()


COUNT = WholeNumber(1, _LARGEST)
"""A number of steps or episodes."""
SEED = WholeNumber(0, _LARGEST)
_LEAST_SENTENCE, _LEAST_CELL = 24, 10
"""Least width of a column of sentences, and of any column that is wrapped."""


class BadInput(click.ClickException):
    """The user's input cannot be used: exit code 2."""

    exit_code = 2


trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Let a run folder or .yaml file of somebody else run code and reach out of its run; only if you trust its "
    "author.",
)


_STEPS = "Environment steps; the rollout that reaches them is the last; the same as run.max_env_step=N."
steps_option = click.option("--steps", type=COUNT, help=_STEPS)


class RunFolder(click.ParamType[str]):
    """A run folder, or a folder of seeds; the code that opens the folder checks that."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The string; an empty string, which as a path would mean the current folder, is refused."""
        if not str(value).strip():
            self.fail(f"{value!r} is empty: expected a run folder, such as runs/cartpole_ppo")
        return os.path.expanduser(str(value))


class GivenPath(click.Path):
    """A file or folder; ``~/`` at the beginning stands for the home folder, also after ``--option=``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(os.path.expanduser(value), param, ctx))


def out_option(
    metavar: str, what: str, *, dir_okay: bool = True, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``-o``, ``--out`` for a file or folder that a command writes."""
    return click.option("-o", "--out", type=GivenPath(dir_okay=dir_okay), metavar=metavar, help=what, **options)


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints a text as `engine.errors.printable` shows it; commands print by nothing else. A part that comes from a
    file or a folder's name and has to stay on its line is given as ``line(part)``."""
    from minding.engine.console import stderr, stdout
    from minding.engine.errors import printable

    click.echo(printable(text, lines=True), stderr() if err else stdout(), nl=nl)


def line(text: object) -> str:
    """A text of which nobody can make two lines, see `engine.errors.printable`."""
    from minding.engine.errors import printable

    return printable(text)


def written(what: str, path: str | Path, replaced: bool) -> None:
    """Prints where a command wrote a file, and whether it replaced an earlier file."""
    from minding.engine.paths import shown

    echo(f"{what}: {shown(path)}" + (", in place of an earlier file" if replaced else ""))


def write_figures(file: Path, figures: Mapping[str, Any]) -> None:
    """Writes figures to a JSON file; if that is not possible, only prints why."""
    from minding.engine.files import json_text, replace

    try:
        replace(file, json_text(figures))
    except OSError as error:
        echo(f"minding: {file} was not written: {error.strerror}", err=True)


def drawn(picture: Path, draw: Callable[[Path], object]) -> str:
    """Draws a picture at the end of a command; returns its path, or why there is none."""
    from minding.engine.errors import ConfigError, MissingExtraError
    from minding.engine.paths import shown

    try:
        draw(picture)
    except (MissingExtraError, ConfigError) as error:
        return f"not drawn: {error}"
    except OSError as error:
        return f"not drawn: {error.strerror}"
    return shown(picture)


def number(value: float) -> str:
    """A return or a score as text: with one decimal place, or small numbers, such as scores of games, four digits."""
    return f"{value:.1f}" if abs(value) >= 10 or value == round(value, 1) else f"{value:.4g}"


def mean_and_spread(mean: float, std: float) -> str:
    """A mean and a standard deviation as text; a deviation that is only due to rounding becomes 0."""
    return f"{number(mean)} ± {number(0.0 if std <= 1e-6 * abs(mean) else std)}"


class CheckpointName(click.ParamType[str]):
    """The word ``best``, or a checkpoint folder that exists; a folder named best is given as ``./best``."""

    name = "checkpoint"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, or the path of the folder."""
        if value == BEST:
            return BEST
        return str(GivenPath(exists=True, file_okay=False).convert(value, param, ctx))


ckpt_option = click.option(
    "--ckpt",
    type=CheckpointName(),
    metavar="best|FOLDER",
    help="Use another checkpoint than the newest: best (the one with the highest evaluation), or a folder such "
    "as RUN/ckpt/iter_2000.",
)


class VersionName(click.ParamType[str]):
    """A version of a model pool: ``latest``, ``best`` or a number."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ("latest", "best") and not str(value).isdecimal():
            self.fail(f"{value!r}: expected latest, best or a number, as `minding pool RUN` lists them")
        return str(value)


model_option = click.option(
    "--model",
    type=VersionName(),
    metavar="VERSION",
    help="Use a version of the run's model pool instead of a checkpoint: latest, best or a number (minding pool RUN).",
)


env_option = click.option(
    "--env",
    metavar="ENV_ID",
    help="Use this environment instead of the run's own; its spaces must be the same. A run without one needs it.",
)


def open_run(folder: str | Path, trust: bool, env_id: str | None) -> RunDir:
    """Opens a run, for which `env_option` may name the user's own environment."""
    from minding.engine.run.run_dir import RunDir

    return RunDir.open(folder, trust=trust, own=() if env_id is None else ("env.env_id",))


def played_in(cfg: Config, env_id: str | None) -> Config:
    """The configuration of a run in the environment that `env_option` names, or in its own."""
    from minding.envs.config import check_playable
    from minding.training.evaluation_env import in_environment

    check_playable(cfg.env if env_id is None else {"env_id": env_id})
    return cfg if env_id is None else in_environment(cfg, env_id)


def chosen_of(run: RunDir, ckpt: str | None, model: str | None) -> Path | Version | None:
    """The checkpoint or version that `ckpt_option` and `model_option` name; None stands for the newest
    checkpoint."""
    from minding.engine.run.pool import ModelPool

    if model is None:
        return checkpoint_of(run, ckpt)
    if ckpt is not None:
        raise click.UsageError("--ckpt and --model name two agents: give one of them")
    return ModelPool(run.models).find(model)


def checkpoint_of(run: RunDir, ckpt: str | None) -> Path | None:
    """The checkpoint folder of a run that `ckpt_option` names; None stands for the newest."""
    from minding.engine.checkpoint import BEST as FOLDER
    from minding.engine.errors import NoCheckpointError
    from minding.engine.paths import absolute, shown

    if ckpt != BEST:
        return None if ckpt is None else absolute(ckpt)
    best = run.checkpoints / FOLDER
    if not best.is_dir():
        raise NoCheckpointError(
            f"{shown(run.path)!r} has no best checkpoint, because no evaluation was saved: leave --ckpt out, which "
            "takes the newest"
        )
    return best


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Turns an error of minding into one line and exit code 2; for code that only examines the input. An environment
    that raises while it is created is still a fault of a running program, with exit code 1."""
    from minding.engine.errors import EnvError, MindingError

    try:
        yield
    except EnvError:
        raise
    except MindingError as error:
        raise BadInput(" ".join(str(error).split())) from error


@contextlib.contextmanager
def writing(what: str, path: str | Path) -> Iterator[None]:
    """Turns an error of writing a file that the user named into one line and exit code 2."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{what} {str(path)!r} cannot be written: {error.strerror}") from None


def check_place(what: str, path: str | Path) -> None:
    """Refuses a file in a folder that cannot be written, before the work that its contents take."""
    from minding.engine.paths import absolute, shown

    folder = absolute(path).parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        raise BadInput(f"{what} {shown(absolute(path))!r} cannot be written: choose another place with --out")


def terminal_width() -> int:
    """Columns of the terminal; 80 if the output is not a terminal."""
    from minding.engine.console import stdout

    return shutil.get_terminal_size().columns if stdout().isatty() else 80


def wrapped(text: str, head: str) -> str:
    """A text after a head, broken between words to fit the terminal; later lines are indented to the text."""
    lines = textwrap.wrap(
        text, max(terminal_width() - len(head), 20), break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    return head + f"\n{'':>{len(head)}}".join(lines or [""])


def print_lines(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    long: int,
    notes: Sequence[str] = (),
    above: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Prints a table with one line per row; on a terminal that is too narrow, a row takes several lines."""
    from minding.engine.console import stdout

    table = [[line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = terminal_width() - sum(widths) + widths[long] - 2 * len(widths)
    narrow = stdout().isatty() and left < widths[long]
    below = [[note] if note else [] for note in ("", *notes, *[""] * (len(rows) - len(notes)))]
    if narrow and left < _LEAST_SENTENCE and any(" " in row[long] for row in table[1:]):
        # The name of the column goes, too: what stands below a row needs none.
        texts = [row.pop(long) for row in table]
        below = [[text, *more] for text, more in zip(["", *texts[1:]], below, strict=True)]
        del widths[long]
    elif narrow:
        widths[long] = max(left, _LEAST_CELL)
    echo(title)
    for index, (row, more) in enumerate(zip(table, below, strict=True), -1):
        if index in above:
            echo(f" {above[index]}")
        cells = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            echo("".join(f"  {part:<{width}}" for part, width in zip(parts, widths, strict=True)).rstrip())
        for text in filter(None, more):
            echo(wrapped(line(text), "      "))


def print_fields(fields: Mapping[str, str]) -> None:
    """Prints names and texts in two columns; unlike a table's cells they are not wrapped, so paths can be copied."""
    width = max(map(len, fields))
    echo("\n".join(f"  {name:<{width}}  {text}" for name, text in fields.items()))
