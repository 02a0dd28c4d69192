"""Files that would run more than operators of MindSpore or ONNX."""

import json

import pytest

from minding.engine.errors import ExportError
from minding.policies.export.model_files import check_operators
from minding.policies.export.reader import SCHEMA, ExportedPolicy, checksum


def varint(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(number, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(op_type, **more):
    extra = b"".join(field(number, value) for number, value in more.get("fields", ()))
    return field(1, "x") + field(2, "y") + field(4, op_type) + extra


def mindir(*nodes, functions=(), primitives=()):
    graph = b"".join(field(1, each) for each in nodes)
    body = field(1, "0.1.0") + field(7, graph) + b"".join(field(8, field(1, each)) for each in functions)
    return body + b"".join(field(12, each) for each in primitives)


def onnx(*nodes, more=b""):
    return b"\x08\x08" + field(7, b"".join(field(1, each) for each in nodes)) + more


LIBRARY = field(5, field(1, "func_name") + field(5, "/tmp/evil.so:run"))
PLAIN = [mindir(node("REF::MatMul")), onnx(node("MatMul"), node("Relu", fields=[(7, "ai.onnx")]))]
FORBIDDEN = {
    "a custom node": ("mindir", mindir(node("MatMul"), node("Custom") + LIBRARY), "the operator 'Custom'"),
    "a primitive": ("mindir", mindir(node("REF::MatMul:1"), primitives=[field(2, "Custom")]), "'Custom'"),
    "one in a function": ("mindir", mindir(functions=[node("PyExecute")]), "'PyExecute'"),
    "in an attribute": ("mindir", mindir(field(5, field(17, field(7, field(1, node("PyInterpret")))))), "PyInterpret"),
    "another file": ("mindir", field(7, field(3, field(12, "x"))), "data in another file"),
    "another domain": ("onnx", onnx(node("Gelu", fields=[(7, "com.evil")])), "the domain 'com.evil'"),
    "functions": ("onnx", onnx(more=field(25, b"")), "functions of its own"),
    "data elsewhere": ("onnx", field(7, field(5, field(13, "x"))), "data in another file"),
    "a branch": ("onnx", onnx(field(5, field(6, field(1, node("X", fields=[(7, "evil")]))))), "the domain 'evil'"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_file_that_could_run_a_program_is_refused_before_it_is_loaded(name, tmp_path):
    file_format, data, message = FORBIDDEN[name]
    path = tmp_path / f"policy.{file_format}"
    path.write_bytes(data)
    description = {"schema": SCHEMA, "sha256": checksum(data), "format": file_format, "inputs": [], "outputs": []}
    path.with_name(f"{path.name}.json").write_text(json.dumps(description))
    with pytest.raises(ExportError, match=f"it holds .*{message}.*do not load this file"):
        ExportedPolicy(path)


def test_usual_operators_are_allowed(tmp_path):
    for file_format, data in zip(("mindir", "onnx"), PLAIN):
        check_operators(tmp_path, data, file_format)


@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x3a\xff\xff\xff\x7f", b"\x0b", b"\x3d\x00", b"\x3a\x01\x0a"])
@pytest.mark.parametrize("file_format", ["mindir", "onnx", "other"])
def test_what_is_no_such_file_is_one_error(tmp_path, data, file_format):
    with pytest.raises(ExportError, match="export again"):
        check_operators(tmp_path / "policy", data, file_format)


def test_graphs_that_nest_without_end_are_refused(tmp_path):
    graph = field(1, node("If"))
    for _ in range(60):
        graph = field(1, field(5, field(6, graph)))
    with pytest.raises(ExportError, match="nest too deep"):
        check_operators(tmp_path, field(7, graph), "onnx")
