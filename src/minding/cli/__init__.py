"""The `minding` command. One file per command; nothing heavier than click is imported before a command runs.

Exit codes: 0 done, 1 a fault while running, 2 bad input, 3 the last state of a run could not be saved, 130 ended by
SIGINT, 143 ended by SIGTERM.
"""

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from minding.cli.process import end_at_signals, end_by_default, prepare_output

if TYPE_CHECKING:
    from minding.cli.commands import cli, run

__all__ = ["cli", "main", "run"]


def main() -> NoReturn:
    """Entry point of the `minding` script."""
    prepare_output()
    end_at_signals()
    # Loading the commands takes longer than everything before, so signals must be able to end it.
    from minding.cli.commands import run

    code = run()
    group: Any = sys.modules.get("minding.engine.process.collectives")
    if group is not None:
        group.exit_code = code
    end_by_default()
    sys.exit(code)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from minding.cli import commands

    return getattr(commands, name)
