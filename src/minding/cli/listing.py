"""`minding list`, and `minding docs`, which prints the pages of the documentation."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

import minding
from minding.cli.common import bad_input, command, echo, print_lines, terminal_width, wrapped

if TYPE_CHECKING:
    from minding.engine.chain.middleware import Declaration


@command("list", examples=("list algorithms", "list cartpole_ppo"))
@click.argument("what", required=False)
def list_known(what: str | None) -> None:
    """List the presets, algorithms, environments and middleware.

    Without WHAT, print an overview that fits on a screen. WHAT is presets, algorithms, environments or middleware,
    for one line per entry; or the name of an entry, or of a family of environments, for its details, such as all
    settings of an algorithm.
    """
    with bad_input():
        if what is None:
            _overview()
        elif what in _TABLES:
            _TABLES[what]()
        else:
            _details(what)


def _overview() -> None:
    from minding.configs import PRESETS
    from minding.policies import ALGORITHMS

    groups: dict[str, list[str]] = {}
    for preset in PRESETS:
        where = _environment_part(preset, ALGORITHMS)
        groups.setdefault(where, []).append(preset.removeprefix(f"{where}_"))
    echo("Presets: minding train NAME. One per line: minding list presets")
    width = max(map(len, groups))
    for where, names in groups.items():
        echo(wrapped(", ".join(names), f"  {where:<{width}} "))
    echo("Algorithms: minding train NAME --env ENV_ID")
    echo(wrapped(", ".join(ALGORITHMS), "  "))
    echo("Environments, number by family: --env ENV_ID, or your own module:Class")
    echo(wrapped(", ".join(f"{family} {len(ids)}" for family, ids in _families().items()), "  "))
    echo(f"Middleware: {len(_middleware_found())}, minding list middleware. Details of one: minding list NAME")


def _environment_part(preset: str, algorithms: Iterable[str]) -> str:
    """``cartpole_dqn_per -> cartpole``: the part before the algorithm, whose longest matching name counts."""
    known = "|".join(sorted(algorithms, key=len, reverse=True))
    match = re.match(rf"(.+?)_(?:dueling_|munchausen_)?(?:{known})(?:_|$)", preset)
    return match[1] if match else preset.partition("_")[0]


def _presets() -> None:
    from minding.configs.names import PRESETS, expectation

    rows = []
    for name in PRESETS:
        module = importlib.import_module(f"minding.configs.{name}")
        target = module.main_config.run.get("target")
        # Steps until the preset reaches its target.
        within = re.search(r"within ([\d.]+[kM]?)\b", expectation(name))
        what, steps = _first_sentence(inspect.getdoc(module) or ""), "" if within is None else within[1]
        rows.append((name, what, "" if target is None else f"{target:g}", steps))
    print_lines("Presets: minding train NAME", ("name", "what", "target", "within"), rows, long=1)


def _algorithms() -> None:
    from minding.policies import by_kind, summary_of

    rows: list[tuple[str, ...]] = []
    kinds = {}
    for kind, members in by_kind().items():
        kinds[len(rows)] = f"{kind}:"
        rows += [(each.name, summary_of(each.name), ", ".join(each.actions), each.chain) for each in members]
    print_lines("Algorithms: policy.type", ("name", "what", "actions", "chain"), rows, long=1, above=kinds)


def _first_sentence(doc: str) -> str:
    """The first sentence of a docstring, which may take several lines."""
    return re.split(r"(?<=\.) ", " ".join(doc.partition("\n\n")[0].split()))[0]


def _environments() -> None:
    rows = [(family, str(len(ids)), ", ".join(ids)) for family, ids in _families().items()]
    title = "Environments: env.env_id, or your own 'module:Class'; see `minding check-env`"
    print_lines(title, ("family", "", "ids"), rows, long=2)


@functools.cache
def _families() -> dict[str, list[str]]:
    """The ids of environments, by family; only the newest version of each."""
    import gymnasium

    import minding.envs  # noqa: F401 - registers our own
    from minding.envs.single.parallel import known_ids

    newest: dict[tuple[str, str], gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        # Retired ids have a function that raises as their entry point; the two namespaces need JAX.
        if not isinstance(spec.entry_point, str) or spec.namespace in ("phys2d", "tabular"):
            continue
        key = (_family(spec.entry_point), f"{spec.namespace or ''}/{spec.name}")
        if key not in newest or (spec.version or 0) > (newest[key].version or 0):
            newest[key] = spec
    families: dict[str, list[str]] = {}
    for (family, _), spec in sorted(newest.items(), key=lambda item: item[0]):
        families.setdefault(family, []).append(spec.id)
    for family, ids in known_ids().items():
        families.setdefault(family, []).extend(ids)
    return families


def _family(entry_point: str) -> str:
    """``gymnasium.envs.box2d.lunar_lander:LunarLander -> box2d``; for other modules the package."""
    parts = entry_point.partition(":")[0].split(".")
    return parts[2] if parts[:2] == ["gymnasium", "envs"] and len(parts) > 2 else parts[0]


def _middleware() -> None:
    rows = [
        (declaration.name, declaration.role.value if declaration.role else "", _first_sentence(doc))
        for declaration, doc in _middleware_found().values()
    ]
    print_lines("Middleware: task.use(...)", ("name", "role", "what"), rows, long=2)


@functools.cache
def _middleware_found() -> dict[str, tuple[Declaration, str]]:
    """All declared middleware by name, with their docstrings."""
    import minding.middleware
    from minding.engine.chain.middleware import declaration_of

    found = {}
    for module_info in pkgutil.iter_modules(minding.middleware.__path__):
        module = importlib.import_module(f"minding.middleware.{module_info.name}")
        for name, target in vars(module).items():
            declaration = declaration_of(target)
            # Only the middleware itself: another name in the same file may have its declaration, too.
            if declaration is not None and declaration.name == name and target.__module__ == module.__name__:
                found[name] = declaration, inspect.getdoc(target) or ""
    return dict(sorted(found.items()))


_TABLES = {"presets": _presets, "algorithms": _algorithms, "environments": _environments, "middleware": _middleware}


def _details(name: str) -> None:
    """Prints the details of one name; ConfigError if it is unknown."""
    from minding.configs import PRESETS
    from minding.engine.errors import ConfigError, nearest
    from minding.policies import ALGORITHMS

    families = _families()
    ids = [env_id for every in families.values() for env_id in every]
    if name in PRESETS:
        _preset_details(name)
    elif name in ALGORITHMS:
        _algorithm_details(name)
    elif name in families:
        echo(wrapped(", ".join(families[name]), ""))
    elif name in ids:
        _environment_details(name, next(family for family, every in families.items() if name in every))
    elif name in _middleware_found():
        _middleware_details(name)
    else:
        known = [*_TABLES, *PRESETS, *ALGORITHMS, *families, *ids, *_middleware_found()]
        kinds = "the name of a preset, an algorithm, a middleware, an environment or a family of environments"
        raise ConfigError(
            f"unknown name {name!r}{nearest(name, known) or '.'} Expected one of {', '.join(_TABLES)}, or {kinds}"
        )


def _preset_details(name: str) -> None:
    import yaml

    from minding.configs import load_preset
    from minding.configs.names import expectation
    from minding.engine.config.options import plain

    doc = inspect.getdoc(importlib.import_module(f"minding.configs.{name}")) or ""
    _print_text(f"{name}: {doc}\n" + ("" if "Expected: " in doc else f"\nExpected: {expectation(name)}\n"))
    echo("Settings that differ from the defaults:")
    text = yaml.safe_dump(plain(load_preset(name)), sort_keys=False, default_flow_style=None, width=terminal_width())
    echo("".join(f"  {line}\n" for line in text.splitlines()))
    echo(f"minding train {name}")


def _algorithm_details(name: str) -> None:
    from minding.configs.names import example_env, presets_of
    from minding.engine.config.compiler import setting_paths
    from minding.engine.config.options import setting_at
    from minding.policies import ALGORITHMS, summary_of

    entry = ALGORITHMS[name]
    agents = {"one": "one", "any": "one or several", "several": "several"}[entry.agents]
    _print_fields(
        summary_of(name),
        {
            "class": f"minding.policies.{entry.class_name}",
            "actions": ", ".join(entry.actions),
            "agents": agents,
            "chain": entry.chain,
            "presets": ", ".join(presets_of(name)) or "none",
            "page": f"docs/algorithms/{name}.md",
        },
    )
    echo("\nSettings with their defaults; `minding train` takes them as KEY=VALUE:")
    schema = entry.config_schema()
    for path in setting_paths(schema):
        option = setting_at(schema, path)
        echo(f"  policy.{path}={option.default}")
        echo(wrapped(f"{option.doc}; {option.expected}", "      "))
    echo(f"\nminding train {name} --env {example_env(entry)}")


def _environment_details(env_id: str, family: str) -> None:
    from minding.configs import PRESETS, load_preset

    own = [name for name in PRESETS if load_preset(name).env.env_id == env_id]
    _print_fields(env_id, {"family": family, "presets": ", ".join(own) or "none"})
    echo(f"\nminding check-env {env_id}")


def _middleware_details(name: str) -> None:
    declaration, doc = _middleware_found()[name]
    reads = [*declaration.reads, *(f"{field}?" for field in declaration.optional)]
    fields = {"role": declaration.role.value if declaration.role else "none", "reads": ", ".join(reads) or "nothing"}
    _print_fields(name, {**fields, "writes": ", ".join(declaration.writes) or "nothing"})
    _print_text(f"\n{doc}")


def _print_fields(title: str, fields: dict[str, str]) -> None:
    echo(wrapped(title, ""))
    width = max(map(len, fields))
    for key, text in fields.items():
        echo(wrapped(text, f"  {key:<{width}}  "))


def _print_text(doc: str) -> None:
    """Prints a docstring in the width of the terminal; lines that begin with a name and a colon start new lines."""
    blocks: list[str] = []
    for line in doc.split("\n"):
        if line and blocks and blocks[-1] and not re.match(r"\s*[\w`.]+(, [\w`.]+)*:( |$)", line):
            blocks[-1] += f" {line.strip()}"
        else:
            blocks.append(line)
    for block in blocks:
        echo(wrapped(block.strip(), " " * (len(block) - len(block.lstrip()))))


PAGES = Path(minding.__file__).parent / "docs"
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_FORMULA = re.compile(r"```math\n(.*?)\n```", re.DOTALL)
_SIGNS = {"\\": "\n", "|": "|", "_": "_", "cdot": "·", "dots": "...", "partial": "∂", "quad": "\t", "qquad": "\t"}
_ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303"}
_UNSEEN = r"\\(?:begin|end)\{\w+\}|\\(?:[Bb]ig|left|right|textstyle)(?![a-z])|(?<=\\\\)\[\w+\]|&"
_INNERMOST: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\\(?:mathrm|text|mathcal|mathbb)\{([^{}]*)\}", r"\1"),
    (r"\\t?frac(?:\{([^{}]*)\}\{([^{}]*)\}|(\w)(\w))", lambda found: _fraction(*filter(None, found.groups()))),
    (r"\\underset\{([^{}]*)\}\{?([^{}\s]*)\}?", r"\2_\1"),
    (r"\\(hat|bar|tilde)\s*\{?(\w)([^{}\s]*)\}?", lambda found: found[2] + _ACCENTS[found[1]] + found[3]),
    (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\overline\{([^{}]*)\}", r"mean(\1)"),
    (r"([_^])\{(\w+|\*)\}", r"\1\2"),
    (r"([_^])\{([^{}]*)\}", r"\1(\2)"),
)


def pages() -> dict[str, Path]:
    """The pages by topic: the path below the folder of the pages, without extension, such as ``howto/video``."""
    found = (path.relative_to(PAGES) for path in sorted(PAGES.rglob("*.md")))
    return {path.with_suffix("").as_posix(): PAGES / path for path in found}


def formula_text(latex: str) -> str:
    """A formula of a page as text: Greek letters and signs, fractions with a slash, names without their markup."""
    from html.entities import html5

    def sign(found: re.Match[str]) -> str:
        name = found[1]
        return _SIGNS.get(name) or ("" if name in _ACCENTS else html5.get(f"{name};", "")) or found[0]

    text, before = re.sub(r"\\([a-zA-Z]+|[\\|_])", sign, re.sub(_UNSEEN, "", latex)), ""
    text = re.sub(r"\\[,;! ]", " ", text)
    while text != before:
        before = text
        for pattern, replacement in _INNERMOST:
            text = re.sub(pattern, replacement, text)
    lines = (re.sub(r"[ \n]+", " ", each.replace("\\", "")).strip() for each in text.split("\n"))
    return "\n".join(each.replace("\t", "  ") for each in lines if each)


def _fraction(above: str, below: str) -> str:
    return "/".join(each if re.fullmatch(r"\w+", each) else f"({each})" for each in (above, below)) + " "


def _with_section(known: Mapping[str, Path], topic: str) -> list[str]:
    """The pages with a heading that is a topic, or else with one that contains it."""
    words = re.sub(r"[_-]", " ", topic.lower())
    found: tuple[list[str], list[str]] = [], []
    for name, path in known.items():
        headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8").lower(), re.MULTILINE)
        if not name.startswith("zh/") and any(words in each for each in headings):
            found[words not in headings].append(name)
    return found[0] or found[1]


@command("docs", examples=("docs", "docs tutorial", "docs ppo"))
@click.argument("topic", required=False)
def docs(topic: str | None) -> None:
    """Print a page of the documentation.

    TOPIC is the name of a page; a page of a folder may be named without the folder, such as ppo for algorithms/ppo.
    Without TOPIC, the command prints all names. In a pipe it prints Markdown.
    """
    with bad_input():
        from minding.engine.errors import ConfigError, nearest

        known = pages()
        if topic is None:
            for name, path in known.items():
                if not name.startswith("zh/"):
                    echo(f"{name:<34}{_title(path)}")
            echo("\nPages in Chinese have the prefix zh/, such as zh/tutorial.")
            return
        name = topic.removeprefix("docs/").removesuffix(".md")
        short = {each.rpartition("/")[2]: each for each in reversed(known) if not each.startswith("zh/")}
        page = known.get(name) or known.get(short.get(name, ""))
        if page is None:
            about = _with_section(known, name)
            hint = f"; {', '.join(about[:3])} has a section on it" if about else nearest(name, [*known, *short])
            raise ConfigError(f"no page {topic!r}{hint}; `minding docs` lists all pages")
    text = _COMMENT.sub("", page.read_text(encoding="utf-8"))
    text = _FORMULA.sub(lambda found: f"```\n{formula_text(found[1])}\n```", text)
    if not sys.stdout.isatty():
        echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return next((line.removeprefix("# ").strip() for line in file if line.startswith("# ")), "")
