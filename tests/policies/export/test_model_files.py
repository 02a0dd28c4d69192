"""Files that would run more than operators of MindSpore or ONNX."""

import json
import random

import numpy as np
import pytest

from minding.engine.errors import ExportError
from minding.policies.export.model_files import check_operators
from minding.policies.export.reader import SCHEMA, ExportedPolicy, checksum, open_onnx


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


def written(folder, data, file_format="onnx", **changes):
    """A file with its description."""
    usual = {
        "schema": SCHEMA,
        "sha256": checksum(data),
        "format": file_format,
        "inputs": [],
        "outputs": [],
        "memory": 0,
    }
    path = folder / f"policy.{file_format}"
    path.write_bytes(data)
    path.with_name(f"{path.name}.json").write_text(json.dumps({**usual, **changes}))
    return path


LIBRARY = field(5, field(1, "func_name") + field(5, "/tmp/evil.so:run"))
PLAIN = [mindir(node("REF::MatMul")), onnx(node("MatMul"), node("Relu", fields=[(7, "ai.onnx")]))]
FORBIDDEN = {
    "a custom node": ("mindir", mindir(node("MatMul"), node("Custom") + LIBRARY), "the operator 'Custom'"),
    "a primitive": ("mindir", mindir(node("REF::MatMul:1"), primitives=[field(2, "Custom")]), "'Custom'"),
    "one in a function": ("mindir", mindir(functions=[node("PyExecute")]), "'PyExecute'"),
    "in an attribute": (
        "mindir",
        mindir(field(5, field(17, field(7, field(1, node("PyInterpret")))))),
        "a graph inside",
    ),
    "another file": ("mindir", field(7, field(3, field(12, "x"))), "data in another file"),
    "in an input": ("mindir", field(7, field(5, field(2, field(12, "x")))), "data in another file"),
    "in a constant": ("mindir", mindir(field(5, field(6, field(12, "x")))), "data in another file"),
    "a graph in another file": ("mindir", field(7, field(9, "evil.mindir")), "a graph in another file"),
    "preparation": ("mindir", field(9, field(1, field(5, "x"))), "operators that prepare its inputs"),
    "another domain": ("onnx", onnx(node("Gelu", fields=[(7, "com.evil")])), "the domain 'com.evil'"),
    "functions": ("onnx", onnx(more=field(25, b"")), "functions of its own"),
    "data elsewhere": ("onnx", field(7, field(5, field(13, "x"))), "data in another file"),
    "sparse data elsewhere": ("onnx", field(7, field(15, field(1, field(13, "x")))), "a sparse tensor"),
    "a constant elsewhere": ("onnx", onnx(field(5, field(5, field(13, "x")))), "data in another file"),
    "constants elsewhere": ("onnx", onnx(field(5, field(10, field(13, "x")))), "data in another file"),
    "only the place is elsewhere": (
        "onnx",
        field(7, field(5, varint(14 << 3) + varint(1 + (1 << 32)))),
        "another file",
    ),
    "a branch": ("onnx", onnx(field(5, field(6, field(1, node("X", fields=[(7, "evil")]))))), "a graph inside"),
    "data elsewhere in a branch": ("onnx", onnx(field(5, field(6, field(5, field(13, "x"))))), "a graph inside"),
    "a training step": ("onnx", field(20, field(1, field(5, field(13, "x")))), "information for training"),
    "what nobody knows": ("onnx", field(7, field(99, "x")), "the field 99 of its graph"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_file_that_could_run_a_program_is_refused(name, tmp_path):
    file_format, data, message = FORBIDDEN[name]
    path = written(tmp_path, data, file_format)
    with pytest.raises(ExportError, match=f"it contains .*{message}.*do not load this file"):
        ExportedPolicy(path)


@pytest.mark.parametrize(
    "changes",
    [
        *({"memory": None}, {"memory": 1 << 40}, {"memory": -1}, {"inputs": 7}, {"inputs": [{}]}, {"outputs": [[]]}),
        *({"inputs": [{"name": "obs", "dtype": "object"}]}, {"inputs": [{"name": [], "dtype": "int8"}]}, {"format": 1}),
    ],
)
def test_a_description_that_no_export_writes_is_one_error(changes, tmp_path):
    path = written(tmp_path, PLAIN[1], **changes)
    with pytest.raises(ExportError, match=r"policy\.onnx\.json: no readable description; export again"):
        ExportedPolicy(path)


def test_what_onnxruntime_does_not_open_is_one_error():
    pytest.importorskip("onnxruntime")
    with pytest.raises(ExportError, match=r"onnxruntime cannot open the file: .*export again"):
        open_onnx(PLAIN[1])


def test_a_constant_that_memory_cannot_hold_is_one_error(tmp_path, capfd):
    build = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    shape = build.helper.make_tensor("shape", build.TensorProto.INT64, [1], [10**13])
    names = [build.helper.make_tensor_value_info(name, build.TensorProto.FLOAT, [None]) for name in ("obs", "action")]
    nodes = [
        build.helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        build.helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        build.helper.make_node("Add", ["obs", "sum"], ["action"]),
    ]
    graph = build.helper.make_graph(nodes, "graph", names[:1], names[1:], [shape])
    model = build.helper.make_model(graph, opset_imports=[build.helper.make_opsetid("", 13)], ir_version=8)
    arrays = {"inputs": [{"name": "obs", "dtype": "float32"}], "outputs": [{"name": "action", "dtype": "float32"}]}
    path = written(tmp_path, model.SerializeToString(), **arrays)
    with pytest.raises(ExportError, match=r"policy\.onnx cannot compute actions for observations of shapes \(3,\): "):
        ExportedPolicy(path).forward(np.ones(3, np.float32))
    assert capfd.readouterr().err == ""


HARMFUL = {"external_data", "data_location", "functions", "training_info", "sparse_initializer", "location"}
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def harm(message):
    """What is in or below a message that reads another file or is no operator, by protobuf's own reader."""
    for descriptor, value in message.ListFields():
        parts = value if hasattr(value, "append") or hasattr(value, "add") else [value]
        if descriptor.name in HARMFUL and any(part != 0 for part in parts):
            return True
        domain = descriptor.name == "domain" and descriptor.containing_type.name in ("NodeProto", "OperatorSetIdProto")
        if domain and value not in DOMAINS:
            return True
        if descriptor.message_type is not None and any(map(harm, parts)):
            return True
    return False


def grow(message, rng, most=6):
    """Puts a few fields of any kind that it can have into a message, at random."""
    fields = list(message.DESCRIPTOR.fields) if most else []
    for descriptor in rng.sample(fields, min(rng.choice([1, 1, 2, 3]), len(fields))):
        name, repeated = descriptor.name, hasattr(getattr(message, descriptor.name), "extend")
        if descriptor.message_type is not None:
            part = getattr(message, name).add() if repeated else getattr(message, name)
            part.SetInParent()
            grow(part, rng, most - 1)
            continue
        text = rng.choice(["", "ai.onnx", "x"])
        texts = {descriptor.TYPE_STRING: text, descriptor.TYPE_BYTES: text.encode()}
        value = texts.get(descriptor.type, rng.randrange(2))
        if repeated:
            getattr(message, name).append(value)
        else:
            setattr(message, name, value)


def test_what_reads_another_file_is_refused_in_any_graph(tmp_path):
    onnx_package = pytest.importorskip("onnx")
    rng, harmful, allowed = random.Random(0), 0, 0
    for _ in range(10_000):
        model = onnx_package.ModelProto()
        grow(model.graph if rng.random() < 0.8 else model, rng)
        try:
            check_operators(tmp_path, model.SerializeToString(), "onnx")
        except ExportError:
            harmful += harm(model)
        else:
            allowed += 1
            assert not harm(model), str(model)
    assert min(harmful, allowed) > 100, (harmful, allowed)


def test_a_damaged_byte_hides_nothing_from_the_check(tmp_path):
    onnx_package = pytest.importorskip("onnx")
    tensor = onnx_package.helper.make_tensor("w", onnx_package.TensorProto.FLOAT, [1], [1.0])
    plain = onnx_package.helper.make_graph([onnx_package.helper.make_node("Relu", ["x"], ["y"])], "g", [], [], [tensor])
    whole = onnx_package.helper.make_model(plain).SerializeToString()
    rng, harmful = random.Random(1), 0
    for _ in range(20_000):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 2, 3])):
            place = rng.randrange(len(data))
            # The place of data in another file, the data, and another domain.
            data[place : place + rng.choice([0, 2])] = rng.choice([b"\x70\x01", b"\x6a\x00", b"\x3a\x01", b"\x12"])
        try:
            model = onnx_package.ModelProto.FromString(bytes(data))
        except Exception:
            continue
        if harm(model):
            harmful += 1
            with pytest.raises(ExportError):
                check_operators(tmp_path, bytes(data), "onnx")
    assert harmful > 50
