"""Resolves names in Python code from the source text of modules: nothing is imported and nothing runs."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from typing import Any

_MAX_STEPS = 40
"""Imports and base classes that are followed, one after the other."""
_MAX_BYTES = 1 << 22
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Definition:
    """Where a class or function is defined; `node` is None for a name of anything else."""

    module: str
    name: str
    node: ast.ClassDef | Function | None

    @property
    def place(self) -> str:
        return f"{self.module}:{self.name}"


def find_module(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where an import would find a module; unlike `importlib.util.find_spec`, this imports no package above it."""
    spec, path = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:end]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and end < len(parts):
            return None
    return spec


def _find(name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    loaded = sys.modules.get(name)
    file = getattr(loaded, "__file__", None)
    if loaded is not None:
        spec = importlib.machinery.ModuleSpec(name, None, origin=file)
        spec.submodule_search_locations = getattr(loaded, "__path__", None)
        return spec
    for finder in sys.meta_path:
        found: importlib.machinery.ModuleSpec | None = getattr(finder, "find_spec", lambda *_: None)(name, path)
        if found is not None:
            return found
    return None


class CodeText:
    """The sources of modules that can be imported; each is read once."""

    def __init__(self) -> None:
        self.tree: Callable[[str], ast.Module | None] = functools.lru_cache(None)(self._tree)
        self._faults: dict[str, str] = {}

    def definitions(self, module: str, name: str, steps: int = _MAX_STEPS) -> list[Definition]:
        """All definitions that a name of a module can refer to, with imports followed; empty if it has no such name.

        Anything that is not a class or function, or cannot be followed, is a definition without a node.
        """
        tree = self.tree(module)
        if steps <= 0 or tree is None:
            return [Definition(module, name, None)]
        found: list[Definition] = []
        stars: list[str] = []
        for statement in _statements(tree.body):
            if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                if statement.name == name:
                    found.append(Definition(module, name, statement))
            elif isinstance(statement, ast.ImportFrom):
                source = self._absolute(module, statement)
                for alias in statement.names:
                    if alias.name == "*":
                        stars.append(source)
                    elif (alias.asname or alias.name) == name:
                        found += self._imported(source, alias.name, steps)
            elif name in _bound(statement):
                found.append(Definition(module, name, None))
        for source in stars if not found else ():
            found += self.definitions(source, name, steps - 1) if find_module(source) else []
        return found

    def classes(self, module: str, expression: ast.expr | None, steps: int = _MAX_STEPS) -> list[Definition]:
        """The classes that an expression, such as a base class or an annotation, refers to; empty if this is
        unknown."""
        if isinstance(expression, ast.Subscript):
            return self.classes(module, expression.value, steps)
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            try:
                return self.classes(module, ast.parse(expression.value, mode="eval").body, steps - 1)
            except (SyntaxError, ValueError):
                return []
        if isinstance(expression, ast.Name):
            return self.definitions(module, expression.id, steps - 1)
        parts = _dotted(expression)
        tree = self.tree(module)
        if not parts or tree is None or steps <= 0:
            return []
        for source in self._modules(module, tree, parts[0]):
            place = ".".join([source, *parts[1:-1]])
            if find_module(place) is not None:
                return self.definitions(place, parts[-1], steps - 1)
        return []

    def bases(self, definition: Definition) -> Iterator[Definition]:
        """A class and all its base classes."""
        waiting = [definition]
        seen: set[str] = set()
        while waiting and len(seen) < _MAX_STEPS:
            each = waiting.pop()
            if each.place not in seen and isinstance(each.node, ast.ClassDef):
                seen.add(each.place)
                yield each
                for base in each.node.bases:
                    waiting += self.classes(each.module, base)

    def registers(self, module: str, env_id: str) -> bool:
        """Whether a module calls a function `register` or `register_env` with this string."""
        tree = self.tree(module)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and (_dotted(node.func) or [""])[-1] in ("register", "register_env"):
                given = [
                    *node.args[:1],
                    *(keyword.value for keyword in node.keywords if keyword.arg in ("id", "env_id")),
                ]
                if any(isinstance(value, ast.Constant) and value.value == env_id for value in given):
                    return True
        return False

    def fault(self, module: str) -> str | None:
        """Python's error in the source of a module, with the line; None if it can be parsed."""
        self.tree(module)
        return self._faults.get(module)

    def names(self, module: str) -> list[str]:
        """The classes and functions that a module defines at its top level."""
        tree = self.tree(module)
        kinds = (ast.ClassDef, ast.FunctionDef)
        return [each.name for each in _statements(tree.body) if isinstance(each, kinds)] if tree is not None else []

    def _tree(self, module: str) -> ast.Module | None:
        spec = find_module(module)
        if spec is None or not str(spec.origin).endswith(".py"):
            return None
        try:
            with open(str(spec.origin), "rb") as file:
                return ast.parse(file.read(_MAX_BYTES))
        except SyntaxError as error:
            self._faults[module] = f"{spec.origin}, line {error.lineno}: {type(error).__name__}: {error.msg}"
            return None
        except (OSError, ValueError, RecursionError, MemoryError):
            return None

    def _imported(self, source: str, name: str, steps: int) -> list[Definition]:
        """The object that ``from source import name`` binds; nothing if there is no such module, as in a `try`."""
        return self.definitions(source, name, steps - 1) if find_module(source) is not None else []

    def _modules(self, module: str, tree: ast.Module, name: str) -> Iterator[str]:
        """The modules that a name can stand for."""
        for statement in _statements(tree.body):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if alias.asname == name:
                        yield alias.name
                    elif alias.asname is None and alias.name.split(".")[0] == name:
                        yield name
            elif isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        yield f"{self._absolute(module, statement)}.{alias.name}"

    def _absolute(self, module: str, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        spec = find_module(module)
        package = spec is not None and spec.submodule_search_locations is not None
        parts = module.split(".")
        kept = parts[: len(parts) - statement.level + package]
        return ".".join([*kept, *([statement.module] if statement.module else [])])


def members(node: ast.ClassDef) -> set[str]:
    """Names of a class's methods and attributes, and of the attributes that its methods set on `self`."""
    found = {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for each in node.body:
        found |= _bound(each)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _dotted(part.value) == ["self"]:
            found.add(part.attr)
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those inside `if`, `try`, `with` and loops."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _statements(getattr(statement, inner, []))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statements(part.body)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, other than by `class`, `def` or ``from ... import``."""
    if isinstance(statement, ast.Import):
        return {alias.asname or alias.name.split(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.ImportFrom)):
        return set()
    # The whole body is walked: a name that a function inside it binds is refused at worst.
    return {
        part.id
        for part in ast.walk(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del))
    }


def _dotted(expression: ast.expr | None) -> list[str]:
    """The names of ``a.b.c``; empty for any other expression."""
    if isinstance(expression, ast.Name):
        return [expression.id]
    if isinstance(expression, ast.Attribute):
        before = _dotted(expression.value)
        return [*before, expression.attr] if before else []
    return []
