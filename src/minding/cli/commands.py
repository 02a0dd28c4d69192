"""All commands, and how their errors end: one line, and an exit code (see `minding.cli`)."""

import itertools
import sys
from collections.abc import Sequence

import click

from minding import __version__
from minding.cli.common import echo
from minding.cli.compare import compare, plot, report
from minding.cli.data import data
from minding.cli.doctor import check_env, doctor
from minding.cli.evaluate import evaluate, export, play, record
from minding.cli.listing import docs, list_known
from minding.cli.status import pool, status
from minding.cli.train import resume, train
from minding.cli.tune import tune


class Sections(click.Group):
    """A group whose help lists its commands by what they are for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(70)) for each in commands])


@click.group(cls=Sections, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="minding")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Train and inspect reinforcement-learning agents on MindSpore.

    First steps: `minding train cartpole_ppo`, `minding list`, `minding doctor`.
    """
    ctx.obj = debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Train": (train, tune, resume),
    "Look": (list_known, docs, status, evaluate, record, play, compare, plot, report),
    "Share": (export, pool),
    "Data": (data,),
    "Check": (check_env, doctor),
}
"""All commands, by the titles of the help."""

for command in itertools.chain(*SECTIONS.values()):
    cli.add_command(command)


def run(args: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code; errors become one line on stderr."""
    from minding.engine.console import own_streams

    with own_streams():
        return _run(sys.argv[1:] if args is None else args)


def _run(args: Sequence[str]) -> int:
    debug = "--debug" in args
    try:
        code = cli.main(args=args, prog_name="minding", standalone_mode=False)
    except click.ClickException as error:
        # Click lists the choices of a missing option in lines of their own.
        return _fail(" ".join(map(str.strip, error.format_message().splitlines())), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except Exception as error:
        from minding.engine.errors import MindingError

        if debug or not isinstance(error, (MindingError, MemoryError)):
            raise
        # After the first line a note may have the traceback of another process, which only --debug shows.
        notes = [f"\n  {note.partition(chr(10))[0].rstrip(':')}" for note in getattr(error, "__notes__", ())]
        reason = " ".join(str(error).split())
        if isinstance(error, MemoryError):
            reason = f"not enough memory: {reason}"
        return _fail(reason + "".join(notes), 2 if _is_bad_input(error) else 1)
    return code if isinstance(code, int) else 0


def _is_bad_input(error: Exception) -> bool:
    """Whether an error is about the user's input: most such errors are found before MindSpore is loaded."""
    from minding.engine import errors
    from minding.engine.process import runtime

    given = (errors.ConfigError, errors.DataError)
    folders = (errors.CheckpointError, errors.TrustError, errors.ExportError, errors.MissingExtraError)
    unread = isinstance(error, (*given, *folders)) and not runtime.is_loaded()
    # Others are found when the policy is built.
    return unread or isinstance(
        error, (errors.NoCheckpointError, errors.CodeError, errors.SpaceError, errors.UnfilmableError)
    )


def _fail(message: str, code: int) -> int:
    echo(f"minding: {message}", err=True)
    return code
