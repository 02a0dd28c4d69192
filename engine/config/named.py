"""Code that settings name as ``module:Name``: imported from the user's project, or passed by the program itself.

`engine.config.trust` decides when settings that others wrote may name code.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from minding.engine.config.options import setting_at
from minding.engine.error_origin import places_of, user_location
from minding.engine.errors import CodeError, ConfigError, nearest
from minding.engine.paths import anchored, current_folder

PART_KEYS = (
    "env.backend",
    "policy.model.encoder",
    "policy.learn.optimizer",
    "policy.learn.anneal_kind",
    "policy.other.eps.kind",
    "policy.other.replay",
    "run.loggers",
)
"""The settings whose values are names of parts of minding, or name the user's own part; see docs/extending.md."""
CODE_KEYS = ("env.env_id", "policy.type", "chain", "use", *PART_KEYS)
"""The settings that can name code; `load_code` imports for no other."""
OPENSPIEL = "openspiel:"
"""Beginning of the ids of environments that are games of OpenSpiel, which name no code."""
_given: dict[str, Any] = {}
"""What this program gave as objects: a script that runs is not imported a second time for them."""


def is_named(text: object) -> bool:
    """Whether a setting names code."""
    return isinstance(text, str) and ":" in text and not text.startswith(OPENSPIEL)


def is_given(text: str) -> bool:
    """Whether this program passed the object of this name itself."""
    return text in _given


def texts_in(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """All strings in a value, including the keys of sections, each with its path."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield where, key
            yield from texts_in(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item, where)


def named_parts(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parts of the user's own in a configuration, each with the key that names it, one of `PART_KEYS`."""
    for key in PART_KEYS:
        yield from ((key, text) for _, text in texts_in(setting_at(cfg, key), key) if is_named(text))


def name_of_code(value: Any, key: str) -> str:
    """The ``module:Name`` of a class or function, for a setting. For a class or function of the running script it is
    ``file:Name``: importing the script must not run its program, which therefore belongs under ``if __name__ ==
    "__main__":``."""
    module, name = module_of(value), getattr(value, "__qualname__", "")
    if not module or not name.isidentifier():
        raise ConfigError(
            f"{key}={value!r}: expected a class or function that a saved run can import again: define it "
            "at the top level of a file"
        )
    _given[f"{module}:{name}"] = value
    return f"{module}:{name}"


def module_of(value: Any) -> str:
    """The module by which a class or function can be imported again: for the running script, the name of its file;
    empty if there is none."""
    module: str = getattr(value, "__module__", "")
    if module != "__main__":
        return module
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else ""


def load_code(text: str, key: str) -> Any:
    """Imports the class or function ``module:Name``."""
    assert key in CODE_KEYS, key
    if text in _given:
        return _given[text]
    module_name, _, name = text.partition(":")
    if not (module_name and name):
        raise CodeError(
            f"{key}={text!r}: expected 'module:Name', a module of the current folder and a name in it, such as "
            f"'{module_name or 'my_module'}:{name or 'Name'}'"
        )
    module = import_own(module_name, f"{key}={text!r}")
    if not hasattr(module, name):
        raise CodeError(f"{key}={text!r}: {module_name} has no {name!r}{nearest(name, vars(module))}")
    return getattr(module, name)


@anchored()
def import_own(name: str, where: str) -> ModuleType:
    """Imports a module that the user named, or trusted; the current folder is on the path from then on."""
    _add_project_to_path()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}.")
        if missing or name.startswith("."):
            file = Path(name)
            fix = "run this in your project's folder, which holds it"
            if file.suffix == ".py":
                fix = f"a module is named without its folder and .py, here {file.stem!r}; {fix}"
            raise CodeError(f"{where}: there is no module {name!r} on the Python path: {fix}") from None
        what = " ".join(str(error).split())
        place = "" if isinstance(error, SyntaxError) else user_location(places_of(error)[1:])
        raise CodeError(f"{where}: importing {name!r} failed: {type(error).__name__}: {what}{place}") from error


def check_named(text: str, key: str) -> None:
    """Refuses a setting that does not name code. The module is imported only if its source does not show the name:
    modules with cells import MindSpore, which must be prepared first."""
    if not (text in _given or _is_shown(text)):
        load_code(text, key)


def _is_shown(text: str) -> bool:
    """Whether the source of a module defines or imports a name at its top level."""
    module, _, name = text.partition(":")
    source = _source_of(module)
    try:
        body = [] if source is None else ast.parse(source.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return any(
        getattr(statement, "name", None) == name
        or any((alias.asname or alias.name) == name for alias in getattr(statement, "names", ()))
        for statement in body
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.ImportFrom))
    )


def code_digests(cfg: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files of the modules that settings name, by module; their imports are not followed."""
    named = [text for key in CODE_KEYS for _, text in texts_in(setting_at(cfg, key), key) if is_named(text)]
    digests: dict[str, str] = {}
    for module in dict.fromkeys(text.partition(":")[0] for text in named):
        source = _source_of(module)
        with contextlib.suppress(OSError):
            if source is not None:
                digests[module] = hashlib.sha256(source.read_bytes()).hexdigest()
    return digests


def sources_of(texts: Iterable[str]) -> list[Path | None]:
    """The files of the modules of ``module:Name``, each after those of its packages, in which code also runs; None for
    what cannot be found without importing code. The current folder does not become importable."""
    path = [*sys.path]
    try:
        modules = (text.partition(":")[0].split(".") for text in texts)
        names = [".".join(parts[:end]) for parts in modules for end in range(1, len(parts) + 1)]
        return [_source_of(name) for name in sorted(set(names))]
    finally:
        sys.path[:] = path


def _source_of(module: str) -> Path | None:
    """The file of a module that the user named; None if it cannot be found without importing code."""
    _add_project_to_path()
    name, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(name)
        for each in inner:
            name, places = f"{name}.{each}", None if spec is None else spec.submodule_search_locations
            # `importlib.util.find_spec` would import the packages above the module.
            spec = None if places is None else importlib.machinery.PathFinder.find_spec(name, places)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def _add_project_to_path() -> None:
    """Makes modules of the current folder importable, which is not on the path of a console script."""
    if current_folder() not in sys.path and "" not in sys.path:
        sys.path.append(current_folder())
