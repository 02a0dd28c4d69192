"""Code that settings name as ``module:Name``: imported from the user's project, or passed by the program itself.

`engine.config.trust` decides which code may be named in settings that others wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.blame import places_of, user_location
from minding.engine.config.code_text import CodeText, find_module
from minding.engine.config.trust import CODE_KEYS, add_project_to_path, setting_at, texts_in
from minding.engine.errors import CodeError, ConfigError, nearest

_given: dict[str, Any] = {}
"""What this program gave as objects: a script that runs is not imported a second time for them."""


def is_named(text: object) -> bool:
    """Whether a setting names code."""
    return isinstance(text, str) and ":" in text


def name_of_code(value: Any, key: str) -> str:
    """The ``module:Name`` of a class or function, for a setting.

    For a class or function of the running script it is ``file:Name``: importing the script must not run its program,
    which therefore belongs under ``if __name__ == "__main__":``.

    Raises:
      ConfigError: the class or function cannot be imported by name.
    """
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else ""
    if not module or not name.isidentifier():
        raise ConfigError(
            f"{key}={value!r}: expected a class or function that a saved run can import again: define it "
            "at the top level of a file"
        )
    _given[f"{module}:{name}"] = value
    return f"{module}:{name}"


def load_code(text: str, key: str) -> Any:
    """Imports the class or function ``module:Name``.

    Args:
      text: the value of the setting.
      key: its key, for messages.
    Raises:
      CodeError: the value does not have this form, there is no such module or name, or importing it failed.
    """
    if text in _given:
        return _given[text]
    module_name, _, name = text.partition(":")
    if not (module_name and name):
        raise CodeError(
            f"{key}={text!r}: expected 'module:Name', a module of the current folder and a name in it, such as "
            f"'{module_name or 'my_module'}:{name or 'Name'}'"
        )
    add_project_to_path()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise CodeError(
                f"{key}={text!r}: there is no module {module_name!r} on the Python path: run this in your "
                "project's folder, which holds it"
            ) from None
        what = " ".join(str(error).split())
        place = "" if isinstance(error, SyntaxError) else user_location(places_of(error)[1:])
        raise CodeError(
            f"{key}={text!r}: importing {module_name!r} failed: {type(error).__name__}: {what}{place}"
        ) from error
    if not hasattr(module, name):
        raise CodeError(f"{key}={text!r}: {module_name} has no {name!r}{nearest(name, vars(module))}")
    return getattr(module, name)


def check_named(text: str, key: str) -> None:
    """Refuses a setting that does not name code. The module is imported only if its source does not show the name.

    Modules with cells import MindSpore, which must be prepared first.

    Raises:
      CodeError: as in `load_code`.
    """
    module_name, _, name = text.partition(":")
    add_project_to_path()
    read = CodeText()
    shown = text in _given or (
        all(part.isidentifier() for part in [*module_name.split("."), name])
        and find_module(module_name) is not None
        and read.fault(module_name) is None
        and bool(read.definitions(module_name, name))
    )
    if not shown:
        load_code(text, key)


def code_digests(cfg: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files of the modules that settings name, by module; their imports are not followed."""
    digests: dict[str, str] = {}
    add_project_to_path()
    for key in CODE_KEYS:
        for _, text in texts_in(setting_at(cfg, key), key):
            module = text.partition(":")[0]
            if not is_named(text) or not all(part.isidentifier() for part in module.split(".")):
                continue
            spec = find_module(module)
            with contextlib.suppress(OSError):  # such as a module without a file
                digests[module] = hashlib.sha256(Path(str(spec and spec.origin)).read_bytes()).hexdigest()
    return digests
