"""The trust in settings from others: run folders, saved agents and .yaml files are data, and run no code.

The rule: a configuration that was read from such a file may name what has a plain name: algorithms and chains of
minding, and environments by their ids in minding, in Gymnasium and in the packages that minding knows. It cannot name
code, ``module:Name``, nor environments that load another one by its name, nor arguments that name an existing file, and
a run that starts from it cannot reach out of its folder, by a setting that declares so (``reaches`` of
`engine.config.options.Option`).

All of this is allowed to the user: what he types on the command line, writes in a ``.py`` file that he names, or passes
in Python is his own, ``--trust`` (in Python ``trust=True``) makes a file his own, and so does `signature`: this user
wrote the file, on this machine, in the current folder, in which the modules that it names lie unchanged.

Only a name that is allowed makes the current folder importable. Optional packages come from installed places
(`engine.process.packages`), never from the current folder.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.config.compiler import config_text, read_config
from minding.engine.config.config import Config, RecordedFolder
from minding.engine.config.named import CODE_KEYS, is_given, is_named, sources_of, texts_in
from minding.engine.config.options import Option, is_within, plain, setting_at, short
from minding.engine.errors import TrustError
from minding.engine.files import read_bounded, replace
from minding.engine.paths import current_folder

_ARGUMENTS = ("env.env_kwargs", "env.evaluator_kwargs")
_LOADERS = re.compile(r"Gym(V\d+)?Environment(-v\d+)?")
"""Registered environments whose arguments name another one, by ``module:id``."""
_SIGNATURE = re.compile(r"^# signature: ([0-9a-f]{64})$", re.MULTILINE)
_KEY_BYTES, _MAX_MODULE = 32, 1 << 26


def read_foreign(path: Path, *, trust: bool, own: Collection[str] = (), learns: bool = True) -> Config:
    """Reads a configuration that may be somebody else's. Nothing is imported to find out what it names. Classes and
    functions that this program passed itself, such as ``encoder=MyEncoder``, are its own."""
    cfg, text = read_config(path)
    if trust or _is_own(cfg, text, path):
        return cfg
    _confine(cfg, own if learns else reaching_settings())
    for where, value, what in refused(cfg, own):
        raise TrustError(
            f"{where}={short(value)} in {str(path)!r} {what}. A run folder or .yaml file may come from anyone: if it "
            "is yours, or you trust its author, give --trust (in Python trust=True). A setting that you type yourself "
            "needs none, nor does a run that you made in this folder, with modules that have not changed since"
        )
    return cfg


def save_own(cfg: Mapping[str, Any], path: Path) -> None:
    """Writes a configuration of the user's own atomically, see `own_text`."""
    replace(path, own_text(cfg))


def own_text(cfg: Mapping[str, Any]) -> str:
    """A configuration of the user's own as YAML, with a signature if a later command would ask otherwise."""
    text = config_text(cfg)
    sign = signature(cfg) if any(refused(cfg, ())) else None
    return text if sign is None else f"{text}# signature: {sign}\n"


def without_reach(cfg: Config) -> Config:
    """A copy of the settings in which those that reach out of a run have their defaults."""
    copied = Config(plain(cfg))
    _confine(copied, reaching_settings())
    return copied


def is_foreign(path: Path) -> bool:
    """Whether a command that starts a run with this file asks for ``--trust``."""
    cfg, text = read_config(path)
    return any(refused(cfg, ())) and not _is_own(cfg, text, path)


def signature(cfg: Mapping[str, Any]) -> str | None:
    """The user's signature (HMAC-SHA-256) of a configuration and of the modules that it names; None without a key.

    It covers all settings, and if they name code also the current folder, from which modules import others, and the
    paths and contents of the named modules and their packages. Who has the key can sign: it lies outside of any run, in
    a file that only the user can read.
    """
    named = [text for key in CODE_KEYS for _, text in texts_in(setting_at(cfg, key), key) if is_named(text)]
    key, sources = _key(), sources_of(named)
    if key is None or None in sources:
        return None
    try:
        files = [(os.path.realpath(each), _digest(each)) for each in sources if each]
    except OSError:
        return None
    here = os.path.realpath(current_folder()) if named or setting_at(cfg, "lanes.code") else ""
    return hmac.new(key, json.dumps([plain(cfg), here, files], sort_keys=True).encode(), "sha256").hexdigest()


def _is_own(cfg: Config, text: str, path: Path) -> bool:
    """Whether the text ends with the user's signature, in a file that belongs to him."""
    found = _SIGNATURE.findall(text)
    try:
        if not found or not _belongs(os.stat(path)):
            return False
    except OSError:
        return False
    expected = signature(cfg)
    return expected is not None and hmac.compare_digest(found[-1], expected)


def _digest(file: Path) -> str:
    return hashlib.sha256(read_bounded(file, _MAX_MODULE)).hexdigest()


def _belongs(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _key() -> bytes | None:
    """The user's key, ``$XDG_STATE_HOME/minding/key`` or ``~/.local/state/minding/key``, which is made if it is
    missing; None if that is impossible, or if others can read it."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given if os.path.isabs(given) else os.path.expanduser("~/.local/state"))
    if not base.is_absolute():
        return None
    file = base / "minding" / "key"
    try:
        if not os.path.lexists(file):
            _make_key(file)
        status, key = os.lstat(file), read_bounded(file, _KEY_BYTES)
    except OSError:
        return None
    closed = stat.S_ISREG(status.st_mode) and not (os.name == "posix" and status.st_mode & 0o077)
    return key if closed and _belongs(status) and len(key) == _KEY_BYTES else None


def _make_key(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Another process may make it at the same time: the first key stays.
    with tempfile.NamedTemporaryFile(dir=file.parent) as new:
        new.write(secrets.token_bytes(_KEY_BYTES))
        new.flush()
        try:
            os.link(new.name, file)
        except FileExistsError:
            return


def refused(cfg: Mapping[str, Any], own: Collection[str]) -> Iterator[tuple[str, Any, str]]:
    """Each value in the settings that a foreign file cannot set: where it is, the value, and what it does."""
    found = [*_code_in(cfg), *((where, value, each.reaches) for where, value, each in _reaching(cfg))]
    yield from (each for each in found if not any(is_within(each[0], key) for key in own))


def _code_in(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key in (*CODE_KEYS, *_ARGUMENTS):
        for where, text in texts_in(setting_at(cfg, key), key):
            if _LOADERS.fullmatch(text.rpartition(":")[2]):
                yield where, text, "loads another environment by its name"
            elif key in _ARGUMENTS and _is_file(text):
                yield where, text, "is an argument that names a file"
            elif key not in _ARGUMENTS and is_named(text) and not is_given(text):
                yield where, text, "names code"


def _reaching(cfg: Mapping[str, Any]) -> Iterator[tuple[str, Any, Option]]:
    """The settings that reach out of the run; their defaults, False and nothing do not."""
    for path, option in reaching_settings().items():
        value = setting_at(cfg, path)
        allowed = option.default if isinstance(option.default, list) else [option.default]
        if any(each and each not in allowed for each in (value if isinstance(value, list) else [value])):
            yield path, value, option


def _confine(cfg: Config, paths: Collection[str]) -> None:
    """Sets those of the settings that reach out of a run to their defaults."""
    for path, _, option in [*_reaching(cfg)]:
        if path in paths:
            section, _, key = path.rpartition(".")
            setting_at(cfg, section)[key] = option.default


def reaching_settings() -> dict[str, Option]:
    """The settings that reach out of a run, by path."""
    return dict(_declared({**Config.options(), "policy": {"other": RecordedFolder.options()}}, ""))


def _declared(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Option]]:
    for key, node in schema.items():
        if not isinstance(node, Option):
            yield from _declared(node, f"{prefix}{key}.")
        elif node.reaches:
            yield prefix + key, node


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(os.path.expanduser(text.removeprefix("file://")))
    except ValueError:  # a null character
        return False
