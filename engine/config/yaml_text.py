"""Reads YAML that anyone may have written, in bounded time and memory, and writes it."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

MAX_BYTES = 1 << 18
"""Of a configuration: about fifty times the usual size."""
_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"
_MAX_DEPTH = 32
_TOO_DEEP = f"sections are nested more than {_MAX_DEPTH} levels deep"
_MAX_VALUES = 50_000
_MAX_TEXT, _MAX_BITS = 10_000, 1024


_BYTE = re.compile(r"\\(?:u|U0000)[dD][cC][89a-fA-F]")
"""The escape of a character by which Python stands for a byte of a file's name that is not text."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader that also reads 1e-3 as a number, where YAML 1.1 wants 1.0e-3."""


class _ByteLoader(yaml.SafeLoader):
    """The same, slower, for texts with a `_BYTE`, which the library in C refuses."""


def _whole_number(loader: Any, node: yaml.Node) -> int:
    # Decimal ones have a limit of Python's own.
    number: int = loader.construct_yaml_int(node)
    if number.bit_length() > _MAX_BITS:
        raise ValueError(f"an integer of {number.bit_length():,} bits")
    return number


class _Dumper(yaml.SafeDumper):
    """Puts a text in quotes that a loader would take for a number."""


for _reader in (_Loader, _ByteLoader):
    _reader.add_constructor("tag:yaml.org,2002:int", _whole_number)
for _each in (_Loader, _ByteLoader, _Dumper):
    _each.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def parse_yaml(text: str) -> Any:
    """The value of a YAML text."""
    try:
        kind: Any = _ByteLoader if _BYTE.search(text) else _Loader
        _check_bounds(text, kind)
        loader = kind(text)
        try:
            node = loader.get_single_node()
            _check_keys(node, set())
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        # PyYAML reads ahead, and has its own limit since 6.0.4.
        if "maximum nesting depth" in str(error):
            raise ValueError(_TOO_DEEP) from None
        raise ValueError(" ".join(str(error)[:500].replace(' in "<unicode string>",', " at").split())) from None


def _check_keys(node: yaml.Node | None, seen: set[int]) -> None:
    """Refuses keys that are not texts, and those given twice in a section, of which YAML would drop the first."""
    if node is None or id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item, seen)
        return
    keys = set()
    for key, value in node.value:
        if key.tag != _MERGE:
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"a list or section is a key ({where}): keys are strings")
            name = repr(key.value[:100])
            if key.tag != _TEXT:
                raise ValueError(f"the key {name} is not a string but a {_kind(key)} ({where}): put it in quotes")
            if key.value in keys:
                raise ValueError(f"the key {name} is given twice in one section ({where})")
            keys.add(key.value)
        _check_keys(value, seen)


def _kind(key: yaml.ScalarNode) -> str:
    """What YAML takes a key for: on, off, yes and no are bools to it."""
    name = key.tag.rpartition(":")[2]
    return {"bool": "boolean", "int": "number", "float": "number", "timestamp": "date"}.get(name, name)


def _check_bounds(text: str, kind: Any) -> None:
    """Counts values and characters as they will be once every alias is a copy, without making any."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"the text has {len(text):,} characters, but at most {MAX_BYTES:,} are read")
    totals, names = [(0, 0)], [""]
    anchors: dict[str, tuple[int, int]] = {}
    for event in yaml.parse(text, kind):
        if isinstance(event, yaml.CollectionStartEvent):
            totals.append((1, 0))
            names.append(event.anchor or "")
            if len(totals) > _MAX_DEPTH:
                raise ValueError(_TOO_DEEP)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            size, name = totals.pop(), names.pop()
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ValueError(f"the alias *{event.anchor} refers to nothing or to itself")
            size, name = anchors[event.anchor], ""
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > _MAX_TEXT:
                raise ValueError(f"a value has {len(event.value):,} characters, but at most {_MAX_TEXT:,} are read")
            size, name = (1, len(event.value)), event.anchor or ""
        else:
            continue
        if name:
            anchors[name] = size
        values, characters = (total + more for total, more in zip(totals[-1], size))
        totals[-1] = values, characters
        if values > _MAX_VALUES or characters > MAX_BYTES:
            what = f"{_MAX_VALUES:,} values" if values > _MAX_VALUES else f"{MAX_BYTES:,} characters"
            raise ValueError(f"more than {what}, with aliases expanded")


def yaml_of(tree: Any) -> str:
    """A tree of plain types as YAML, which `parse_yaml` reads back as it was."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


def one_line(value: Any) -> str:
    """A value as YAML on one line: JSON, but its escapes for characters beyond U+FFFF are pairs, which YAML refuses."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in text)
