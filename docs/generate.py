"""Writes the tables that come from the code into the pages: ``make docs``. A test keeps them current.

A table stands between ``<!-- generated:NAME -->`` and ``<!-- /generated -->``; the rest of a page is written by hand.
In a Chinese page the name ends in ``:zh``: header and links are Chinese then, and what the code says stays English.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import minding.middleware
from minding.cli.commands import SECTIONS
from minding.cli.common import Command
from minding.configs.names import PRESETS, expectation
from minding.engine.chain.middleware import Declaration, declaration_of
from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.config.identity import RUN
from minding.engine.config.options import Option
from minding.engine.config.space import Range
from minding.envs import config_schema
from minding.policies import ALGORITHMS, get_algorithm, summary_of

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- generated:([\w:]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "keys": ("key", "default", "expected", "meaning"),
        "presets": ("preset", "what", "expected"),
        "identity": ("setting", "what it decides"),
        "spaces": ("setting", "values", "only for"),
        "range": "{} to {}",
        "log": ", log",
        "also": "Also keys of [nearly all]({0}#keys-of-nearly-all-algorithms){1} and "
        "[several algorithms]({0}#keys-of-several-algorithms), with defaults that differ: {2}.",
        "but": " but {}",
        "signs": (", ", ": ", "; "),
        "reference": "../reference/settings.md",
    },
    "zh": {
        "keys": ("配置项", "默认值", "取值", "含义"),
        "presets": ("预设", "任务", "预期结果"),
        "identity": ("配置项", "决定什么"),
        "spaces": ("配置项", "取值", "仅用于"),
        "range": "{} 到 {}",
        "log": "，对数尺度",
        "also": "另有[几乎所有算法共有的配置项（英文）]({0}#keys-of-nearly-all-algorithms){1}和"
        "[若干算法共有的配置项（英文）]({0}#keys-of-several-algorithms)，默认值不同的写出默认值：{2}。",
        "but": "（除 {}）",
        "signs": ("、", "：", "；"),
        "reference": "../../reference/settings.md",
    },
}
"""By language: headers of tables, and sentences; `reference` has the settings that an algorithm's page leaves out."""


def keys(options: Iterable[tuple[str, Option]], language: str = "en") -> str:
    """Settings by key as a table."""
    rows = [(f"`{path}`", _value(option.default), option.expected, option.doc) for path, option in options]
    return _table(WORDS[language]["keys"], rows)


def of_algorithm(name: str, language: str) -> str:
    """The settings of an algorithm: a table of its own ones, and the names of shared ones with changed defaults."""
    shared, common, own = shared_keys(), common_keys(), _of(name)
    base = {path: shared[path][_says(option)] for path, option in own.items() if _says(option) in shared.get(path, {})}
    others = list(base)
    sections: dict[str, list[str]] = {}
    for path in others:
        section, key = path.removeprefix("policy.").split(".", 1)
        group = key.rpartition(".")[0]
        whole = {each for each in shared if each.startswith(f"policy.{section}.{group}.")}
        if own[path].default != base[path].default:
            key = f"`{key}={own[path].default}`"
        elif path in common:
            continue
        elif group and whole <= {*others} and all(own[each].default == base[each].default for each in whole):
            key = f"`{group}.*`"
        else:
            key = f"`{key}`"
        sections.setdefault(section, []).append(key)
    words = WORDS[language]
    comma, colon, semicolon = words["signs"]
    named = semicolon.join(f"`policy.{key}`{colon}{comma.join(dict.fromkeys(of))}" for key, of in sections.items())
    lacking = comma.join(f"`{path}`" for path in common if path not in own)
    text = words["also"].format(words["reference"], lacking and words["but"].format(lacking), named)
    table = keys([(path, option) for path, option in own.items() if path not in base], language)
    if language == "en":
        text = textwrap.fill(text, 120, break_on_hyphens=False)
    return (table if len(others) < len(own) else "") + f"\n{text}\n"


def common_keys() -> dict[str, dict[Meaning, Option]]:
    """Those of `shared_keys` that at least nine of ten algorithms have."""
    number = Counter(path for name in ALGORITHMS for path in _of(name))
    return {path: found for path, found in shared_keys().items() if 10 * number[path] >= 9 * len(ALGORITHMS)}


@functools.cache
def shared_keys() -> dict[str, dict[Meaning, Option]]:
    """The settings of three or more algorithms by path and meaning: the most frequent one, and those of three or more,
    each with its most frequent default."""
    found: dict[str, list[Option]] = {}
    for name in ALGORITHMS:
        for path, option in _of(name).items():
            found.setdefault(path, []).append(option)
    shared = {path: _usual(options) for path, options in found.items() if len(options) >= 3}
    sections = list(dict.fromkeys(path.split(".")[1] for path in shared))
    return dict(sorted(shared.items(), key=lambda item: sections.index(item[0].split(".")[1])))


def _usual(options: Sequence[Option]) -> dict[Meaning, Option]:
    first, *more = Counter(map(_says, options)).most_common()
    usual = {}
    for meaning, _ in [first, *(each for each in more if each[1] >= 3)]:
        same = [option for option in options if _says(option) == meaning]
        default = Counter(_value(option.default) for option in same).most_common(1)[0][0]
        usual[meaning] = next(option for option in same if _value(option.default) == default)
    return usual


def _rows(shared: Mapping[str, Mapping[Meaning, Option]]) -> list[tuple[str, Option]]:
    return [(path, option) for path, found in shared.items() for option in found.values()]


Meaning = tuple[str, str]
"""What a setting may be, and what it does."""


def _says(option: Option) -> Meaning:
    return option.expected, option.doc


@functools.cache
def _of(algorithm: str) -> dict[str, Option]:
    return dict(_options(get_algorithm(algorithm).config_schema(), "policy."))


def _options(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Option]]:
    for key, node in schema.items():
        if isinstance(node, Option):
            yield prefix + key, node
        else:
            yield from _options(node, f"{prefix}{key}.")


def _value(default: Any) -> str:
    return "" if default is None or default == "" else f"`{default}`"


def middleware() -> str:
    """All declared middleware with role and fields."""
    rows = []
    for module_info in pkgutil.iter_modules(minding.middleware.__path__):
        module = importlib.import_module(f"minding.middleware.{module_info.name}")
        for name, target in vars(module).items():
            declaration = declaration_of(target)
            if declaration is not None and declaration.name == name and target.__module__ == module.__name__:
                rows.append(_middleware_row(declaration, target))
    return _table(("middleware", "role", "reads", "writes", "what it does"), sorted(rows))


def _middleware_row(declaration: Declaration, target: Any) -> tuple[str, ...]:
    reads = [*declaration.reads, *(f"{name}?" for name in declaration.optional)]
    summary = " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())
    role = declaration.role.value if declaration.role else ""
    return f"`{declaration.name}`", role, ", ".join(reads), ", ".join(declaration.writes), summary


def algorithms() -> str:
    """All algorithms with what the first line of their module says."""
    rows = []
    for name in ALGORITHMS:
        entry = get_algorithm(name)
        title, _, what = summary_of(name).partition(": ")
        agents = {"one": "one", "any": "one or several", "several": "several"}[entry.agents]
        actions = ", ".join(kind.replace("_", "-") for kind in entry.actions)
        rows.append((f"[{title}]({name}.md)", f"`{name}`", what, actions, agents))
    return _table(("algorithm", "`policy.type`", "what it is", "actions", "agents"), rows)


def presets(algorithm: str, language: str) -> str:
    """The presets of an algorithm."""
    rows = []
    for name in PRESETS:
        module = importlib.import_module(f"minding.configs.{name}")
        if module.main_config.policy.type == algorithm:
            what, _, more = (inspect.getdoc(module) or "").partition("\n\n")
            rows.append((f"`{name}`", " ".join(what.split()), _expected(name, more)))
    return _table(WORDS[language]["presets"], rows)


def _expected(preset: str, more: str) -> str:
    """The expected result, and what else a docstring says of it."""
    found = expectation(preset) if "Expected: " in more else f"{expectation(preset)} {' '.join(more.split())}"
    return (
        found.strip().removeprefix("an evaluation mean of ").removesuffix(".").replace(" environment steps", " steps")
    )


def commands() -> str:
    """All commands by section, each with its help, its options and its examples."""
    parts = ["## Options of several commands\n", _table(("option", "meaning"), list(_common_options()))]
    for title, members in SECTIONS.items():
        parts.append(f"## {title}\n")
        for each in members:
            parts += [_command(each, f"minding {each.name}")]
            if isinstance(each, click.Group):
                parts += [_command(child, f"minding {each.name} {name}") for name, child in each.commands.items()]
    return "\n" + "\n".join(parts) + "\n"


def _all_commands() -> Iterator[click.Command]:
    for each in itertools.chain.from_iterable(SECTIONS.values()):
        yield each
        yield from each.commands.values() if isinstance(each, click.Group) else ()


def _options_of(command: click.Command) -> list[tuple[str, str]]:
    ctx = click.Context(command, info_name=command.name)
    found = [param.get_help_record(ctx) for param in command.params if isinstance(param, click.Option)]
    return [(f"`{flags}`", what) for flags, what in filter(None, found)]


@functools.cache
def _common_options() -> dict[tuple[str, str], None]:
    """The options that three or more commands have, word for word."""
    number = Counter(option for command in _all_commands() for option in _options_of(command))
    return {option: None for option, count in number.items() if count >= 3}


def _command(command: click.Command, name: str) -> str:
    ctx = click.Context(command, info_name=name)
    text = [f"### {name}\n", f"```text\n{' '.join(command.get_usage(ctx).removeprefix('Usage: ').split())}\n```\n"]
    text += [textwrap.fill(" ".join(each.split()), 120) + "\n" for each in (command.help or "").split("\n\n")]
    options, common = _options_of(command), _common_options()
    if rows := [option for option in options if option not in common]:
        text.append(_table(("option", "meaning"), rows))
    if shared := ", ".join(option[0] for option in options if option in common):
        text.append(f"Also {shared}.\n")
    if isinstance(command, Command):
        text.append("".join(f"- `minding {each}`\n" for each in command.examples))
    return "\n".join(text)


def identity(language: str) -> str:
    """The settings that make a run what it is."""
    rows = [(f"`{path}`", what) for path, what in RUN.items()]
    return _table(WORDS[language]["identity"], rows)


def spaces(language: str) -> str:
    """What a search changes by default; where algorithms differ, which have values of their own."""
    words = WORDS[language]
    of_each = {name: algorithm.search_space() for name, algorithm in ALGORITHMS.items()}
    rows: dict[tuple[str, str], list[str]] = {}
    for name, space in of_each.items():
        for path, values in space.items():
            if isinstance(values, Range):
                text = words["range"].format(f"{values.low:g}", f"{values.high:g}") + words["log"] * values.log
            else:
                text = ", ".join(f"`{each}`" for each in values.texts)
            rows.setdefault((path, text), []).append(name)
    most = {path: max((len(names), text) for (of, text), names in rows.items() if of == path)[1] for path, _ in rows}
    return _table(
        words["spaces"],
        [(f"`{path}`", text, "" if text == most[path] else ", ".join(names)) for (path, text), names in rows.items()],
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def table(name: str) -> str:
    """The table of a marker: ``keys:run``, ``keys:shared``, ``keys:dqn``, ``keys:dqn:zh``, ``spaces:zh``, ..."""
    parts = name.split(":")
    language = parts.pop() if parts[-1] == "zh" else "en"
    kind, of = parts[0], parts[-1]
    if kind == "keys":
        if of == "common":
            return keys(_rows(common_keys()))
        if of == "shared":
            return keys(_rows({path: each for path, each in shared_keys().items() if path not in common_keys()}))
        schemas = {"run": (RUN_SCHEMA, ""), "env": (config_schema(), "env.")}
        return keys(_options(*schemas[of])) if of in schemas else of_algorithm(of, language)
    if kind == "presets":
        return presets(of, language)
    if kind in ("spaces", "identity"):
        return {"spaces": spaces, "identity": identity}[kind](language)
    return {"algorithms": algorithms, "commands": commands, "middleware": middleware}[kind]()


def filled(text: str) -> str:
    """A page's text with the present tables between its markers."""
    return _BLOCK.sub(lambda block: block[1] + table(block[2]) + block[3], text)


def main() -> None:
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
