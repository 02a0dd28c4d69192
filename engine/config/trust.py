"""Code that is named in settings from others. Run folders and .yaml files are data: reading them must not run code.

A name such as ``my_module:MyEnv`` is imported only if all of these conditions hold. They are checked from the source
text of the modules, before any of them is imported:

- The module and its packages are files below the current folder, the user's project. A folder without ``__init__.py``
  does not count as a package. Symbolic links are resolved first.
- They belong neither to Python, nor to installed packages (``site-packages``), nor to minding: its tests, proofs,
  benchmarks and examples are programs, and people work in its checkout.
- They did not come with the run: they are neither in its folder nor in another folder below the current one that also
  holds the run.
- Only their owner and group can change them: neither the files, nor the folders that hold them, nor the current folder
  are writable for everyone, and no folder above it is, unless it is sticky as ``/tmp`` is.
- The name has the kind that its key requires (`CODE_KEYS`): a class of that kind, or a function with a return
  annotation of that kind. Nothing else in the user's project is called or imported.
- The arguments are plain data: a string that names code must meet the same conditions, and no argument names a file
  that came with the run.

Opening the run folder with ``trust=True`` lifts all of these conditions.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.machinery
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.config.code_text import CodeText, Definition, find_module, members
from minding.engine.config.options import short
from minding.engine.errors import TrustError, nearest


@dataclasses.dataclass(frozen=True)
class Kind:
    """The kind of code that a setting may name.

    Attributes:
      noun: the noun for it in messages.
      bases: base classes as ``module:Class``; a class derived from one of them is of this kind.
      forms: sets of attribute names; a class without such a base is of this kind if it has all names of one set.
      annotation: the return annotation of a function that makes one, for messages.
      factories: names of functions that make one, whatever their annotation.
      aliases: types that are not classes, as ``module:name``, which return annotations may also name.
      takes: name of the argument of a function that is itself of this kind; empty if functions are not.
      arguments: the setting that holds the arguments.
      registered: whether ``module:id`` may also name an id that importing the module registers.
    """

    noun: str
    bases: frozenset[str]
    annotation: str
    forms: tuple[frozenset[str], ...] = ()
    factories: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    takes: str = ""
    arguments: str | None = None
    registered: bool = False


ENVIRONMENT = Kind(
    "an environment",
    frozenset({"gymnasium.core:Env", "pettingzoo.utils.env:ParallelEnv", "pettingzoo.utils.env:AECEnv"}),
    "gymnasium.Env",
    (
        frozenset({"reset", "step", "observation_space", "action_space"}),
        frozenset({"reset", "step", "get_env_info", "get_obs", "get_state", "get_avail_actions"}),
    ),
    # The names that PettingZoo gives to the functions of its modules.
    frozenset({"parallel_env", "env", "raw_env"}),
    arguments="env.env_kwargs",
    registered=True,
)
ENCODER = Kind(
    "an encoder",
    frozenset({"mindspore.nn.cell:Cell"}),
    "mindspore.nn.Cell",
    (frozenset({"construct", "__init__"}),),
)
ALGORITHM = Kind("an algorithm", frozenset({"minding.policies.core.base:BasePolicy"}), "BasePolicy")
CHAIN = Kind("a chain", frozenset({"minding.configs.chains:Chain"}), "minding.configs.chains.Chain")
MIDDLEWARE = Kind(
    "middleware",
    frozenset(),
    "minding.engine.Middleware",
    (frozenset({"__call__"}),),
    aliases=frozenset({"minding.engine.chain.middleware:Middleware"}),
    takes="ctx",
)
CODE_KEYS: Mapping[str, Kind] = {
    "env.env_id": ENVIRONMENT,
    "policy.type": ALGORITHM,
    "policy.model.encoder": ENCODER,
    "chain": CHAIN,
    "use": MIDDLEWARE,
}
"""The settings that can name code, and what each is for. A new one that is imported by name belongs here."""
_LOADERS = re.compile(r"Gym(V\d+)?Environment(-v\d+)?")
"""Registered environments whose arguments name another one, by ``module:id``."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OWN_FOLDERS = frozenset(
    {"benchmarks", "configs", "docs", "engine", "envs", "examples", "middleware", "policies", "proofs", "src", "tests"}
)
"""The folders of a checkout of minding; modules beside them are the user's."""
_CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[:.][A-Za-z_][\w./-]*")
"""A text that can name code, as ``module:name`` or ``module.name``."""


def add_project_to_path() -> None:
    """Makes modules of the current folder importable, which is not on the path of a console script."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def check_code(cfg: Mapping[str, Any], source: Path, came_with: Path | None) -> None:
    """Refuses settings that name code which is not the user's own, or which has the wrong kind for the setting.

    Args:
      cfg: the settings, as read.
      source: the run folder or file that they were read from, for messages.
      came_with: a folder whose code may come from the author of the settings; None if the settings came alone.
    Raises:
      TrustError: a setting names such code; says which, where the code is, and what to do.
    """
    judge = _Judge(None if came_with is None else came_with.resolve())
    for key, kind in CODE_KEYS.items():
        for where, name in texts_in(setting_at(cfg, key), key):
            try:
                reason = judge.objection(name, kind)
            except _Unusable as error:
                raise TrustError(f"{where}={short(name)} in {str(source)!r} cannot be used: {error}") from None
            if reason:
                raise _refusal(where, name, source, "names code that may not run", reason)
        for where, text in texts_in(setting_at(cfg, kind.arguments), kind.arguments) if kind.arguments else ():
            reason = judge.argument_objection(text, kind)
            if reason:
                raise _refusal(where, text, source, "is an argument that is not plain data", reason)


def _refusal(where: str, text: str, source: Path, what: str, reason: str) -> TrustError:
    return TrustError(
        f"{where}={short(text)} in {str(source)!r} {what}: {reason}. A run folder or .yaml file may come from anyone. "
        "If you trust this one, give --trust (in Python RunDir.open(path, trust=True))"
    )


def setting_at(cfg: Mapping[str, Any], key: str) -> Any:
    node: Any = cfg
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


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


class _Unusable(Exception):
    """A name leads to nothing that could run, whoever is trusted."""


class _Judge:
    """What may run of what settings name; knows the folder that came with them."""

    def __init__(self, came_with: Path | None) -> None:
        self._came_with = [] if came_with is None else _came_with(came_with, Path.cwd().resolve())
        self._text = CodeText()

    def objection(self, name: str, kind: Kind) -> str | None:
        """Why the code that `name` leads to may not run; None if it may, or if `name` names none.

        Raises:
          _Unusable: it leads to none.
        """
        if _LOADERS.fullmatch(name.rpartition(":")[2]):
            return "this environment loads another one by its name"
        if ":" not in name:
            return None
        module, _, attribute = name.partition(":")
        add_project_to_path()
        return self._module_objection(module) or self._object_objection(module, attribute, kind)

    def argument_objection(self, text: str, kind: Kind) -> str | None:
        """Why a text may not be an argument; None if it may."""
        if _LOADERS.fullmatch(text.rpartition(":")[2]):
            return "this environment loads another one by its name"
        if any(_leads_into(text, folder) for folder in self._came_with):
            return "it names a file that came with it"
        if not _CODE.fullmatch(text):
            return None
        add_project_to_path()
        module, _, attribute = text.rpartition(":" if ":" in text else ".")
        if find_module(module.split(".")[0]) is None:
            return None
        try:
            reason = self.objection(f"{module}:{attribute}", kind)
        except _Unusable as error:
            reason = str(error)
        return f"it names code: {reason}" if reason else None

    def _object_objection(self, module: str, attribute: str, kind: Kind) -> str | None:
        fault = self._text.fault(module)
        if fault is not None:
            raise _Unusable(fault)
        found = self._text.definitions(module, attribute)
        if not found:
            nothing = f"the source of {module!r} does not define a class or function {attribute!r}"
            if not kind.registered:
                hint = nearest(attribute, self._text.names(module))
                raise _Unusable(f"{nothing}{hint or '; if it was renamed, give it its old name'}")
            return None if self._text.registers(module, attribute) else f"{nothing} and does not register such an id"
        for each in found:
            reason = self._module_objection(each.module) or self._kind_objection(each, kind)
            if reason:
                return reason
        return self._imported_objection(module, attribute)

    def _kind_objection(self, found: Definition, kind: Kind) -> str | None:
        """Why what a name stands for is not of a kind, as far as its text says."""
        node = found.node
        if isinstance(node, ast.ClassDef):
            bases = list(self._text.bases(found))
            if any(each.place in kind.bases for each in bases):
                return None
            names = set().union(*(members(each.node) for each in bases if isinstance(each.node, ast.ClassDef)))
            if any(form <= names for form in kind.forms):
                return None
            return (
                f"the class {found.place} is not {kind.noun} according to its source: derive it from {kind.annotation}"
            )
        if isinstance(node, ast.FunctionDef):
            returned = self._text.classes(found.module, node.returns)
            first = node.args.args[0].arg if node.args.args else ""
            named = any(each.place in kind.aliases for each in returned)
            if node.name in kind.factories or named or (kind.takes and first == kind.takes):
                return None
            if (
                returned
                and not any(self._kind_objection(each, kind) or each.node is node for each in returned)
                and all(isinstance(each.node, ast.ClassDef) for each in returned)
            ):
                return None
            return (
                f"the function {found.place} does not declare that it makes {kind.noun}: annotate its return type, as "
                f"in def {found.name}(...) -> {kind.annotation}"
            )
        return f"{found.place} is not a class or function according to its source"

    def _imported_objection(self, module: str, attribute: str) -> str | None:
        """The same once the modules are imported, which may be written so that their text misleads."""
        try:
            target = getattr(importlib.import_module(module), attribute, None)
        except (Exception, SystemExit):  # The code that creates the object imports it again and reports this.
            return None
        home = str(getattr(target, "__module__", None))
        return self._module_objection(home) if callable(target) and home != module else None

    def _module_objection(self, name: str) -> str | None:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return f"{name!r} is not the name of a module"
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            spec = find_module(name)
            if spec is None:
                raise _Unusable(
                    f"there is no module {name!r} in {os.getcwd()!r}: run this in your project's folder, which holds it"
                )
            reason = self._file_objection(name, spec)
            if reason:
                return reason
        return None

    def _file_objection(self, name: str, spec: importlib.machinery.ModuleSpec) -> str | None:
        if spec.origin is None or not os.path.isfile(spec.origin):
            kind = "a folder without __init__.py" if spec.submodule_search_locations else "part of Python"
            return f"{name!r} is {kind}"
        file, project = Path(spec.origin).resolve(), Path.cwd().resolve()
        if not file.is_relative_to(project):
            return f"{name!r} is {str(file)!r}, not below the current folder {str(project)!r}"
        if _INSTALLED.intersection(file.parts) or any(file.is_relative_to(each) for each in _python_folders()):
            return f"{name!r} is an installed package, {str(file)!r}"
        if _is_mindings(file):
            return f"{name!r} is a part of minding, {str(file)!r}"
        if any(file.is_relative_to(each) for each in self._came_with):
            return f"{name!r} is {str(file)!r} and may have come with the run"
        open_place = _writable_for_all(file, project)
        return None if open_place is None else f"everyone can write to {str(open_place)!r}"


def _is_mindings(file: Path) -> bool:
    """Whether a file is minding's, of the checkout that runs or of another one."""
    if file.is_relative_to(Path(__file__).resolve().parent.parent):
        return True
    return any(
        (folder / "src" / "minding" / "__init__.py").is_file() and file.relative_to(folder).parts[0] in _OWN_FOLDERS
        for folder in file.parents
    )


def _writable_for_all(file: Path, project: Path) -> Path | None:
    """What anybody could change or replace to put code of theirs in the place of `file`; None if there is nothing.

    A group's members may: a group is chosen, and folders are writable for the user's own group on many systems.
    """
    for path in (file, *file.parents):
        mode = os.stat(path).st_mode
        # In a sticky folder only owners rename and remove, but anybody adds: above the project that does no harm.
        harmless = not path.is_relative_to(project) and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not harmless:
            return path
    return None


def _python_folders() -> list[Path]:
    return [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")]


def _came_with(run: Path, project: Path) -> list[Path]:
    """Folders whose code may be from where the run is from: its own, and those below the project that hold it."""
    if run == project or not run.is_relative_to(project):
        return [run]
    return [project / run.relative_to(project).parts[0]]


def _leads_into(text: str, folder: Path) -> bool:
    """Whether a text is the path of something that exists in a folder."""
    try:
        path = Path(os.path.expanduser(text.removeprefix("file://"))).resolve()
        return ("/" in text or "." in text) and path.is_relative_to(folder) and path.exists()
    except (OSError, ValueError, RuntimeError):
        return False
