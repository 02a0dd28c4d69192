"""Code that is named in settings from others: run folders, saved agents and .yaml files are data, and run none.

The rule: a configuration that was read from such a file may name what has a plain name: algorithms and chains of
minding, and environments by their ids in minding, in Gymnasium and in the packages that minding knows. A name of the
form ``module:Name`` is imported only after ``--trust`` (in Python ``trust=True``), and so are environments that load
another one by its name, and arguments that name an existing file. What the user types on the command line, writes in a
``.py`` file that he names, or passes in Python is his own: it needs no trust, and only such a name, or one that was
trusted, makes the current folder importable. Optional packages come from installed places (`engine.process.packages`),
never from the current folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.config.named import CODE_KEYS, is_given, is_named, texts_in
from minding.engine.config.options import setting_at, short
from minding.engine.errors import TrustError

_ARGUMENTS = ("env.env_kwargs", "env.evaluator_kwargs")
_LOADERS = re.compile(r"Gym(V\d+)?Environment(-v\d+)?")
"""Registered environments whose arguments name another one, by ``module:id``."""


def check_code(cfg: Mapping[str, Any], source: Path, own: Collection[str] = ()) -> None:
    """Refuses settings from others that name code. Nothing is imported, or searched for, to find this out.

    Classes and functions that this program passed itself, such as ``encoder=MyEncoder``, are its own.

    Args:
      cfg: the settings, as read.
      source: the folder or file that they were read from, for messages.
      own: settings that the caller replaces with his own.
    Raises:
      TrustError: a setting names code; says which, and what to do.
    """
    for where, text, what in _code_in(cfg, own):
        raise TrustError(
            f"{where}={short(text)} in {str(source)!r} {what}. A run folder or .yaml file may come from anyone, and "
            "nothing in it runs unasked: if it is yours, or you trust its author, give --trust (in Python trust=True)"
        )


def names_code(cfg: Mapping[str, Any]) -> bool:
    """Whether settings name code, so that a later command needs ``--trust``."""
    return any(is_named(text) for key in CODE_KEYS for _, text in texts_in(setting_at(cfg, key), key))


def _code_in(cfg: Mapping[str, Any], own: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Each text of the settings that names code: where it is, the text, and what it does."""
    for key in (*CODE_KEYS, *_ARGUMENTS):
        for where, text in texts_in(None if key in own else setting_at(cfg, key), key):
            if _LOADERS.fullmatch(text.rpartition(":")[2]):
                yield where, text, "loads another environment by its name"
            elif key in _ARGUMENTS and _is_file(text):
                yield where, text, "is an argument that names a file"
            elif key not in _ARGUMENTS and is_named(text) and not is_given(text):
                yield where, text, "names code"


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(os.path.expanduser(text.removeprefix("file://")))
    except ValueError:  # a null character
        return False
