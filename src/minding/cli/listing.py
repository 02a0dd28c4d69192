"""`minding list`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING

import click

from minding.cli.common import print_table

if TYPE_CHECKING:
    from minding.engine.chain.middleware import Declaration


@click.command("list")
@click.argument("what", required=False, type=click.Choice(["presets", "algorithms", "environments", "middleware"]))
def list_known(what: str | None) -> None:
    """List the presets, algorithms, environments or middleware; without an argument, all of them."""
    tables = {
        "presets": _presets,
        "algorithms": _algorithms,
        "environments": _environments,
        "middleware": _middleware,
    }
    for name in tables if what is None else [what]:
        tables[name]()


def _presets() -> None:
    from minding.configs import PRESETS

    docs = [(name, inspect.getdoc(importlib.import_module(f"minding.configs.{name}")) or "") for name in PRESETS]
    rows = [(name, doc.partition("\n")[0], doc.rpartition("Expected: ")[2]) for name, doc in docs]
    print_table("Presets: minding train NAME", ("name", "what", "expected"), rows)


def _algorithms() -> None:
    from minding.policies import ALGORITHMS

    rows = [(each.name, each.class_name, ", ".join(each.actions), each.chain) for each in ALGORITHMS.values()]
    print_table("Algorithms: policy.type", ("name", "class", "actions", "chain"), rows)


def _environments() -> None:
    import gymnasium

    import minding.envs  # noqa: F401 - registers our own
    from minding.envs.single.parallel import known_ids

    newest: dict[tuple[str, str], gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        # The entry point of retired ids is a function that raises; the two namespaces need JAX.
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
    rows = [(family, ", ".join(ids)) for family, ids in families.items()]
    title = "Environments: env.env_id, or your own 'module:Class'; see `minding check-env`"
    print_table(title, ("family", "ids"), rows)


def _family(entry_point: str) -> str:
    """``gymnasium.envs.box2d.lunar_lander:LunarLander -> box2d``; of others the package."""
    parts = entry_point.partition(":")[0].split(".")
    return parts[2] if parts[:2] == ["gymnasium", "envs"] and len(parts) > 2 else parts[0]


def _middleware() -> None:
    import minding.middleware
    from minding.engine.chain.middleware import declaration_of

    rows = []
    for module_info in pkgutil.iter_modules(minding.middleware.__path__):
        module = importlib.import_module(f"minding.middleware.{module_info.name}")
        for name, target in vars(module).items():
            declaration = declaration_of(target)
            # Only the name that declares: another one in the same file may carry its declaration too.
            if declaration is not None and declaration.name == name and target.__module__ == module.__name__:
                rows.append(_middleware_row(declaration, inspect.getdoc(target) or ""))
    print_table("Middleware: task.use(...)", ("name", "role", "reads -> writes", "what"), sorted(rows))


def _middleware_row(declaration: Declaration, doc: str) -> tuple[str, str, str, str]:
    reads = [*declaration.reads, *(f"{name}?" for name in declaration.optional)]
    fields = f"{', '.join(reads)} -> {', '.join(declaration.writes)}".strip()
    role = declaration.role.value if declaration.role else ""
    return declaration.name, role, fields, doc.partition("\n")[0]
