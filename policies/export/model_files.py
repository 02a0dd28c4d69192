"""Checks the operators of an exported file without running it.

MindIR and ONNX files are protocol buffers. A MindIR node can be a ``Custom`` operator that loads a library, or an
operator that runs Python text, and this happens as soon as the file is loaded. Files of both formats can refer to other
files. Therefore every field of every message is read, and only fields that an export of minding writes are accepted.
Field numbers come from ``mind_ir.proto`` and ``onnx.proto``.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from minding.engine.errors import ExportError

Value = int | bytes

_PLAIN, _EMPTY, _OPERATOR, _DOMAIN = "plain", "nothing", "name of an operator", "name of a domain"
"""Allowed contents of a field: numbers and strings that refer to nothing, no content, the name of an operator, the name
of a domain."""


def _plain(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, _PLAIN)


_MESSAGES: dict[str, dict[str, dict[int, str]]] = {
    "onnx": {
        "model": {**_plain(1, 2, 3, 4, 5, 6), 7: "graph", 8: "operator set"},
        "operator set": {1: _DOMAIN, 2: _PLAIN},
        "graph": {**_plain(2, 10), 1: "operator", 5: "tensor", 11: "value", 12: "value", 13: "value"},
        "operator": {**_plain(1, 2, 3, 4, 6), 5: "attribute", 7: _DOMAIN},
        "attribute": {**_plain(1, 2, 3, 4, 7, 8, 9, 13, 20), 5: "tensor", 10: "tensor"},
        "tensor": {**_plain(1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12), 14: _EMPTY},
        "value": {**_plain(1, 3), 2: "type"},
        "type": {1: "tensor type", 6: _PLAIN},
        "tensor type": {1: _PLAIN, 2: "shape"},
        "shape": {1: "size"},
        "size": _plain(1, 2, 3),
    },
    "mindir": {
        "model": {**_plain(1, 2, 3, 4, 5, 6, 10, 13), 7: "graph", 8: "graph", 12: "primitive"},
        "primitive": {**_plain(1, 4, 5), 2: _OPERATOR, 3: "attribute"},
        "graph": {**_plain(2, 4, 7), 1: "operator", 3: "tensor", 5: "value", 6: "value", 8: "attribute", 9: _EMPTY},
        "operator": {**_plain(1, 2, 3, 6, 7), 4: _OPERATOR, 5: "attribute", 8: "attribute", 9: "attribute"},
        "attribute": {
            **_plain(1, 2, 3, 4, 5, 8, 9, 10, 11, 14, 15, 16),
            **{6: "tensor", 12: "tensor", 17: "attribute", 18: "sequence"},
        },
        "sequence": {1: _PLAIN, 2: "attribute"},
        "tensor": {**_plain(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15), 16: _EMPTY},
        "value": {**_plain(1, 3, 4), 2: "tensor", 5: "attribute"},
    },
}
"""The allowed fields by format and message, with their contents: one of the kinds above, or the name of a message."""
_SHOWN = {
    ("onnx", "model", 20): "information for training",
    ("onnx", "model", 25): "functions of its own",
    ("onnx", "graph", 15): "a sparse tensor",
    ("onnx", "attribute", 6): "a graph inside an operator",
    ("onnx", "attribute", 11): "a graph inside an operator",
    ("onnx", "attribute", 22): "a sparse tensor",
    ("onnx", "attribute", 23): "a sparse tensor",
    ("onnx", "tensor", 13): "data in another file",
    ("onnx", "tensor", 14): "data in another file",
    ("mindir", "model", 9): "operators that prepare its inputs",
    ("mindir", "graph", 9): "a graph in another file",
    ("mindir", "attribute", 7): "a graph inside an operator",
    ("mindir", "attribute", 13): "a graph inside an operator",
    ("mindir", "tensor", 12): "data in another file",
}
"""Descriptions of forbidden fields, for error messages."""
_ONNX_DOMAINS = (b"", b"ai.onnx", b"ai.onnx.ml")
_MINDIR_OPERATORS = re.compile(
    r"Add|AddExt|Argmax|BatchMatMul|BiasAdd|Cast|ClampScalar|Concat|Constant|Conv2D|Cos|Depend|"
    r"Div|Divs|Equal|Exp|ExpandDims|Gather|Greater|LayerNorm|Less|Load|Log|MakeTuple|"
    r"MatMul|Maximum|Minimum|Mul|Muls|Neg|Pow|ReLU|ReduceMax|ReduceMean|ReduceSum|Reshape|"
    r"Return|Rsqrt|Select|Sigmoid|Sign|Slice|Softmax|Softplus|Split|Sqrt|Square|Squeeze|"
    r"Stack|StridedSlice|Sub|Subs|Tanh|Tile|Transpose|TupleGetItem|UpdateState"
)
"""Operators of exported policies, all of which only compute. If a new network needs another operator, add it here."""
_MAX_DEPTH = 32
_MAX_KEY = 1 << 32
"""Limit of keys. Readers of protocol buffers interpret a larger key by its lower 32 bits, or report a damaged file."""


def check_operators(path: Path, data: bytes, file_format: str) -> None:
    """Refuses a file that contains anything that exported policies do not contain."""
    if file_format not in _MESSAGES:
        raise ExportError(f"{path}: unknown format {file_format!r}; expected mindir or onnx: export again")
    try:
        for what in _forbidden(data, "model", file_format, 0):
            raise ExportError(
                f"{path}: it contains {what}, which no export of minding contains, and which can run a program on this "
                "machine or read other files: export again, and do not load this file"
            )
    except (IndexError, ValueError, TypeError) as error:
        raise ExportError(f"{path}: not a file of the format {file_format}: {error}; export again") from error


def _forbidden(data: Value, message: str, file_format: str, depth: int) -> Iterator[str]:
    """Yields short descriptions of the forbidden contents of a message and of the messages inside it."""
    if depth > _MAX_DEPTH:
        raise ValueError("its parts nest too deep")
    known: Mapping[int, str] = _MESSAGES[file_format][message]
    for number, value in _fields(data):
        holds = known.get(number)
        if holds == _PLAIN or (holds == _EMPTY and value in (0, b"")):
            continue
        if holds == _OPERATOR:
            if not _computes(value):
                yield f"the operator {_text(value)!r}"
        elif holds == _DOMAIN:
            if value not in _ONNX_DOMAINS:
                yield f"an operator of the domain {_text(value)!r}"
        elif holds in _MESSAGES[file_format]:
            yield from _forbidden(value, holds, file_format, depth + 1)
        else:
            yield _SHOWN.get((file_format, message, number), f"the field {number} of its {message}")


def _computes(name: Value) -> bool:
    """Whether an operator is allowed in exported policies; ``REF::MatMul:3`` means MatMul."""
    return bool(_MINDIR_OPERATORS.fullmatch(_text(name).removeprefix("REF::").partition(":")[0]))


def _text(name: Value) -> str:
    return name.decode("utf-8", "replace")[:80] if isinstance(name, bytes) else str(name)


def _fields(data: Value) -> Iterator[tuple[int, Value]]:
    """Yields the fields of a message as pairs of field number and value, an int for numbers and bytes otherwise."""
    if not isinstance(data, bytes):
        raise TypeError("a number is where a message was expected")
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if not number > 0 or key >= _MAX_KEY:
            raise ValueError(f"a field has the number {number}")
        if kind == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == 2:
            size, place = _varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + size > len(data):
            raise ValueError("it ends within a field")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number is too long")
