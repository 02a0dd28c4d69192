"""What an exported file would run, read from the file without running it.

MindIR and ONNX files are protocol buffers. A MindIR node can be a ``Custom`` operator that loads a library, or one that
runs Python text, and loading such a file is enough. Only the fields that name operators are read here; everything else
is skipped. Field numbers are those of ``mind_ir.proto`` and ``onnx.proto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from minding.engine.errors import ExportError

Value = int | bytes

_MODEL_GRAPHS = {"mindir": (7, 8), "onnx": (7,)}
_MINDIR_PRIMITIVES = 12
_ONNX_FUNCTIONS, _ONNX_TRAINING = 25, 20
_ONNX_DOMAINS = (b"", b"ai.onnx", b"ai.onnx.ml")
_EXTERNAL = {"mindir": (3, 12), "onnx": (5, 13)}
"""Of a graph: field of its tensors; of a tensor: field of data in another file."""
_GRAPHS_OF_ATTRIBUTE = {"mindir": ((7, 13), (17,)), "onnx": ((6, 11), ())}
"""Fields of an attribute that are graphs, and those that are attributes."""
_MINDIR_OPERATORS = re.compile(
    r"Add|AddExt|Argmax|BatchMatMul|BiasAdd|Cast|ClampScalar|Concat|Constant|Conv2D|Depend|"
    r"Div|Divs|Equal|Exp|ExpandDims|Gather|Greater|LayerNorm|Less|Load|Log|MakeTuple|"
    r"MatMul|Maximum|Minimum|Mul|Muls|Neg|Pow|ReLU|ReduceMax|ReduceMean|ReduceSum|Reshape|"
    r"Return|Rsqrt|Select|Sigmoid|Sign|Slice|Softmax|Softplus|Split|Sqrt|Square|Squeeze|"
    r"Stack|StridedSlice|Sub|Subs|Tanh|Tile|Transpose|TupleGetItem|UpdateState"
)
"""What exported policies consist of; a network that needs another operator adds it here. All of them only compute."""
_MAX_DEPTH = 16


def check_operators(path: Path, data: bytes, file_format: str) -> None:
    """Refuses a file whose operators are more than those of MindSpore or ONNX themselves.

    Args:
      path: names the file.
      data: its contents.
      file_format: 'mindir' or 'onnx'.
    Raises:
      ExportError: it holds such an operator or reads other files, or is not of that format.
    """
    if file_format not in ("mindir", "onnx"):
        raise ExportError(f"{path}: unknown format {file_format!r}; expected mindir or onnx: export again")
    try:
        for name in _mindir(data) if file_format == "mindir" else _onnx(data):
            raise ExportError(
                f"{path}: it holds {name}, which an export of minding never does, and which can run a program on this "
                "machine: export again, and do not load this file"
            )
    except (IndexError, ValueError, TypeError) as error:
        raise ExportError(f"{path}: not a file of the format {file_format}: {error}; export again") from error


def _mindir(data: bytes) -> Iterator[str]:
    for number, value in _fields(data):
        if number == _MINDIR_PRIMITIVES:
            yield from _forbidden(_texts(value, (2,)))
        elif number in _MODEL_GRAPHS["mindir"]:
            yield from _graph(value, "mindir", 0)


def _onnx(data: bytes) -> Iterator[str]:
    for number, value in _fields(data):
        if number in (_ONNX_FUNCTIONS, _ONNX_TRAINING):
            yield "functions of its own"
        elif number in _MODEL_GRAPHS["onnx"]:
            yield from _graph(value, "onnx", 0)


def _graph(data: Value, kind: str, depth: int) -> Iterator[str]:
    """What may not be in a graph, or in one inside it."""
    if depth > _MAX_DEPTH:
        raise ValueError("graphs nest too deep")
    tensors, elsewhere = _EXTERNAL[kind]
    for number, value in _fields(data):
        if number == 1:
            yield from _node(value, kind, depth)
        elif number == tensors and any(field == elsewhere for field, _ in _fields(value)):
            yield "data in another file"


def _node(data: Value, kind: str, depth: int) -> Iterator[str]:
    if kind == "mindir":
        yield from _forbidden(_texts(data, (4,)))
    for number, value in _fields(data):
        if kind == "onnx" and number == 7 and value not in _ONNX_DOMAINS:
            yield f"an operator of the domain {_shown(value)}"
        elif number in (5, 8, 9) if kind == "mindir" else number == 5:
            yield from _attribute(value, kind, depth)


def _attribute(data: Value, kind: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise ValueError("attributes nest too deep")
    graphs, attributes = _GRAPHS_OF_ATTRIBUTE[kind]
    for number, value in _fields(data):
        if number in graphs:
            yield from _graph(value, kind, depth + 1)
        elif number in attributes:
            yield from _attribute(value, kind, depth + 1)


def _texts(data: Value, numbers: tuple[int, ...]) -> Iterator[Value]:
    return (value for number, value in _fields(data) if number in numbers)


def _forbidden(names: Iterator[Value]) -> Iterator[str]:
    """Names of operators that are not among those of exported policies: ``Custom``, or ``REF::Custom:3``."""
    for name in names:
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
        if not _MINDIR_OPERATORS.fullmatch(text.removeprefix("REF::").partition(":")[0]):
            yield f"the operator {_shown(name)}"


def _shown(name: Value) -> str:
    return repr(name.decode("utf-8", "replace")[:80]) if isinstance(name, bytes) else repr(name)


def _fields(data: Value) -> Iterator[tuple[int, Value]]:
    """The fields of a message: (number, an int for numbers, bytes for the rest)."""
    if not isinstance(data, bytes):
        raise TypeError("a number is where a message was expected")
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
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
