"""Configuration: the compiler that merges a user's settings onto the defaults and checks them.

A schema is a nested dict whose leaves are `Option`s, made by `opt`. `compile_config` is the only place where
settings come together: defaults, the user's tree, command-line overrides, and the environment's spaces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from minding.engine.config.config import Config, EnvSection, set_length
from minding.engine.config.options import Option, Written, opt, plain, setting_at, short
from minding.engine.config.section import Section
from minding.engine.config.yaml_text import MAX_BYTES, parse_yaml, yaml_of
from minding.engine.errors import ConfigError, nearest
from minding.engine.files import read_text, replace

__all__ = [
    "RUN_SCHEMA",
    "ConfigurablePolicy",
    "Option",
    "Overrides",
    "Schema",
    "compile_config",
    "fill_schema",
    "load_config",
    "opt",
    "save_config",
    "schema_defaults",
    "setting_paths",
]

Schema = Mapping[str, Any]
"""Nested mapping from key to `Option` or to a further Schema."""
Hint = Callable[[str, Sequence[str]], str]
"""From an unknown key and the paths of all settings to what to add to the message; empty for nothing."""


def schema_defaults(schema: Schema) -> Section:
    """The defaults of a schema as a fresh section."""
    return fill_schema(schema, {})


_LONGEST_NAME = 200
"""Characters of a run's name. File systems end names at 255 bytes, and `-seeds` or a number may follow."""


def fill_schema(schema: Schema, user: Mapping[str, Any], overrides: Iterable[str] | Overrides = ()) -> Section:
    """Lays settings over the defaults of any schema and checks them; `compile_config` is for a whole run."""
    return Section(_merge(Overrides(overrides).onto(_plain_tree(user)), schema, ()))


def setting_paths(schema: Schema, prefix: str = "") -> list[str]:
    """The dotted paths of all options of a schema, each after a prefix."""
    found = []
    for key, node in schema.items():
        found += [prefix + key] if isinstance(node, Option) else setting_paths(node, f"{prefix}{key}.")
    return found


def _merge(
    user: Any, schema: Schema, path: tuple[str, ...], root: Schema | None = None, hint: Hint = lambda name, known: ""
) -> dict[str, Any]:
    """Defaults of `schema` with `user` laid over them, all checked; `root`: the whole schema."""
    root = schema if root is None else root
    where = ".".join(path)
    if not isinstance(user, Mapping):
        keys = ", ".join(schema)
        raise ConfigError(f"{where or 'config'}={short(user)}: expected a section with the keys {keys}")
    for key in user:
        if key not in schema:
            raise ConfigError(_unknown_key((*path, str(key)), schema, root, hint))
    merged: dict[str, Any] = {}
    for key, node in schema.items():
        here = (*path, key)
        if isinstance(node, Option):
            merged[key] = node.check(user.get(key, node.default), ".".join(here))
        else:
            merged[key] = _merge(user.get(key, {}), node, here, root, hint)
    return merged


def _unknown_key(path: tuple[str, ...], schema: Schema, root: Schema, hint_of: Hint) -> str:
    paths = setting_paths(root)
    words = {each.rpartition(".")[2]: each for each in reversed(paths)}
    initials = {"".join(part[0] for part in word.split("_") if part): key for word, key in words.items()}
    hint = hint_of(path[-1], paths)
    if path[-1] in words:
        hint = f"; did you mean {words[path[-1]]!r}?"
    elif not hint and not (hint := nearest(path[-1], schema)):
        close = difflib.get_close_matches(path[-1].lower(), words, n=1, cutoff=0.7)
        key = words[close[0]] if close else initials.get(path[-1])
        hint = f"; did you mean {key!r}?" if key else ""
    where = f"in {'.'.join(path[:-1])!r}" if len(path) > 1 else "at the top"
    return f"unknown key {'.'.join(path)!r}{hint}{'' if hint.endswith('?') else '.'} Keys {where}: {', '.join(schema)}"


RUN_SCHEMA = {key: node for key, node in Config.options().items() if key not in ("env", "policy")}
"""The settings that belong to no policy and no environment."""


class ConfigurablePolicy(Protocol):
    """The compiler's view of an algorithm: a policy class, or its entry in a table.

    It may also have `chain`, the name of its chain, `unit`, the unit of its runs' clock ('env_step' by default, or
    'train_iter'), `env`, its own defaults in the section `env`, `needs`, the switches of that section that it turns on,
    and `setting_hint`, a `Hint`.
    """

    @property
    def name(self) -> str: ...

    def config_schema(self) -> Schema: ...


def compile_config(
    user: Mapping[str, Any],
    policy: ConfigurablePolicy,
    describe_env: Callable[[EnvSection], Mapping[str, Any]] | None = None,
    env_schema: Schema | None = None,
    overrides: Iterable[str] | Overrides = (),
) -> Config:
    """Merges a user's settings onto all defaults, checks every value, and fills in `cfg.env.spec`.

    Args:
      user: nested mapping as in a preset's `main_config`, or a saved compiled configuration; never changed.
      policy: the algorithm; see `ConfigurablePolicy`.
      describe_env: from ``cfg.env`` to a plain description of its spaces; None keeps a saved one.
      env_schema: schema of the section `env`; None accepts any keys.
      overrides: ``'a.b=c'`` strings, with c in YAML, or what was parsed from them; they take precedence over `user`.
    Returns:
      A new tree that shares nothing with `user` or with any other compiled configuration.
    Raises:
      ConfigError: for an unknown key, a wrong type, a value out of range, or a saved description that no longer
        fits the environment; names the key's full path.
    """
    own = getattr(policy, "env", {})
    schema = {
        **RUN_SCHEMA,
        "env": opt({}, "open") if env_schema is None else _with_defaults(env_schema, own),
        "policy": {"type": opt(policy.name, (policy.name,), "algorithm"), **policy.config_schema()},
    }
    given = Overrides(overrides).onto(_plain_tree(user))
    saved_spec = given["env"].pop("spec", None) if isinstance(given.get("env"), dict) else None
    hint = getattr(policy, "setting_hint", lambda name, known: "")
    cfg = Config(_merge(given, schema, (), hint=hint))
    _turn_on(getattr(policy, "needs", ()), cfg.env, given.get("env", {}), policy.name)
    if env_schema is not None and not cfg.env.get("env_id", True):
        raise ConfigError("env.env_id is missing: expected the id of an environment, such as 'CartPole-v1'")
    spec = saved_spec if describe_env is None else plain(describe_env(cfg.env))
    if spec is not None:
        _compare_specs(saved_spec, spec, "env.spec")
        cfg.env.spec = spec
    cfg.exp_name = _experiment_name(cfg)
    cfg["chain"] = cfg.chain or getattr(policy, "chain", None)
    set_length(cfg.run, _unit(policy, cfg.chain), cfg.policy.type)
    return cfg


def _with_defaults(schema: Schema, defaults: Mapping[str, Any]) -> Schema:
    return {**schema, **{key: dataclasses.replace(schema[key], default=value) for key, value in defaults.items()}}


def _unit(policy: ConfigurablePolicy, chain: str | None) -> str:
    """What the clock of a run counts: as the algorithm says in its own chain, and environment steps in others."""
    own: str = getattr(policy, "unit", "env_step")
    default = getattr(policy, "chain", None)
    return own if chain in (None, default) or ":" in str(chain) else "env_step"


def _turn_on(switches: Iterable[str], env: EnvSection, given: Mapping[str, Any], name: str) -> None:
    """Turns on what an algorithm needs of an environment; ConfigError where the user turned it off."""
    for key in switches:
        if key in given and not env[key]:
            raise ConfigError(
                f"env.{key}={env[key]!r}: policy.type={name!r} needs it and turns it on: leave the key out"
            )
        env[key] = True


def _plain_tree(user: Any) -> dict[str, Any]:
    if not isinstance(user, Mapping):
        raise ConfigError(f"expected a mapping of settings, got {type(user).__name__} {user!r}")
    try:
        tree: dict[str, Any] = plain(user)
    except TypeError as error:
        raise ConfigError(str(error)) from None
    return tree


class Overrides:
    """``'a.b=c'`` strings, parsed once; the later of two takes precedence."""

    def __init__(self, texts: Iterable[str] | Overrides) -> None:
        if isinstance(texts, str) or not isinstance(texts, Iterable | Overrides):
            raise ConfigError(f"settings={texts!r}: expected a list of strings, such as ['env.backend=sync']")
        self._values: list[tuple[str, Any]] = texts._values if isinstance(texts, Overrides) else [*map(_parse, texts)]

    @property
    def paths(self) -> tuple[str, ...]:
        """The dotted paths of the settings and sections that are set."""
        return tuple(path for path, _ in self._values)

    def onto(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The tree, in which the settings are set; `Option.check` reads their values."""
        for path, value in self._values:
            section, keys = tree, path.split(".")
            for key in keys[:-1]:
                section = section.setdefault(key, {})
                if not isinstance(section, dict):
                    raise ConfigError(f"override {path}={short(value)}: {key!r} is a value, not a section")
            section[keys[-1]] = value
        return tree

    def value(self, path: str) -> Any:
        """The value of a setting; None if it is not set. Strings are known among the settings of `RUN_SCHEMA` only."""
        found, option = setting_at(self.onto({}), path), setting_at(RUN_SCHEMA, path)
        kind = option.kind if isinstance(option, Option) else None
        return found.parse(kind) if isinstance(found, Written) else found


def _parse(override: object) -> tuple[str, Any]:
    """The path of a setting, and its value as it was written; a section or list is read at once."""
    if not isinstance(override, str):
        raise ConfigError(f"override {short(override)}: expected a string key=value, such as 'policy.learn.gamma=0.99'")
    path, sign, text = override.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"override {override!r}: expected key=value, such as policy.learn.gamma=0.99")
    value: Any = Written(text)
    if text.lstrip().startswith(("{", "[")):
        with contextlib.suppress(TypeError):
            value = value.parse()
    return path.strip(), value


def _compare_specs(saved: Any, found: Any, path: str) -> None:
    if isinstance(saved, dict) and isinstance(found, dict):
        for key in [*saved, *(key for key in found if key not in saved)]:
            _compare_specs(saved.get(key), found.get(key), f"{path}.{key}")
    elif saved is not None and saved != found:
        raise ConfigError(
            f"{path}: the saved configuration has {saved!r}, but the environment has {found!r}; "
            "restore the environment, or delete env.spec to train on the new one"
        )


def _experiment_name(cfg: Config) -> str:
    name = cfg.exp_name
    if name is None:
        env_id = re.sub(r"[^A-Za-z0-9.]+", "-", str(cfg.env.get("env_id", "env"))).strip("-.")
        algorithm = cfg.policy.type.replace(":", "-")
        name = f"{env_id}_{algorithm}"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*", name):
        odd = re.search(r"[^A-Za-z0-9_.+=-]", name)
        wrong = f"{odd[0]!r} is not allowed" if odd else f"it begins with {name[0]!r}" if name else "it is empty"
        raise ConfigError(
            f"exp_name={name!r}: expected a folder name made of the letters A-Z and a-z, digits and _ . + = -, whose "
            f"first character is a letter, a digit or _; {wrong}"
        )
    if len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"exp_name={name[:20]}...: expected at most {_LONGEST_NAME} characters, of which a folder is named; it has "
            f"{len(name)}"
        )
    return str(name)


def save_config(cfg: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a configuration atomically as YAML with plain types; `load_config` returns the same tree."""
    replace(path, config_text(cfg))


def config_text(cfg: Mapping[str, Any]) -> str:
    """A configuration as YAML with plain types."""
    return yaml_of(plain(cfg))


def load_config(path: str | os.PathLike[str], example: str = "exp_name: mine") -> Config:
    """Reads a YAML configuration."""
    return read_config(path, example)[0]


def read_config(path: str | os.PathLike[str], example: str = "exp_name: mine") -> tuple[Config, str]:
    """As `load_config`, with the text of the file."""
    try:
        text = read_text(path, MAX_BYTES)
        tree = parse_yaml(text)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is not YAML: {error}") from None
    if tree is None:
        raise ConfigError(f"{str(path)!r} is empty: expected settings, such as {example}")
    if not isinstance(tree, dict):
        raise ConfigError(f"{str(path)!r}: expected a mapping of settings, got {type(tree).__name__}")
    try:
        return Config(_check_keys(_plain_tree(tree))), text
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from None


def _check_keys(tree: Any) -> Any:
    """Refuses keys that are attributes of every section: those could not be read as settings."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if hasattr(Section, key):
                raise ConfigError(f"the key {key!r} cannot be used in a configuration")
            _check_keys(value)
    elif isinstance(tree, list):
        for item in tree:
            _check_keys(item)
    return tree
