"""What several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import click


class BadInput(click.ClickException):
    """What the user gave cannot be used: exit code 2."""

    exit_code = 2


trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Run code that the run folder or .yaml file names even if it is not an environment of your project; only for "
    "what you trust.",
)


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Turns an error of minding into one line and exit code 2; for code that only examines the input.

    An environment that raises while it is created is still a fault of a running program, with exit code 1.
    """
    from minding.engine.errors import EnvError, MindingError

    try:
        yield
    except EnvError:
        raise
    except MindingError as error:
        raise BadInput(" ".join(str(error).split())) from error


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table as wide as the terminal allows; long cells are wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=bool(header))
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
