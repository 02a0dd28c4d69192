"""Writes a policy as one graph, raw observations in, the greedy action out, in MindIR or ONNX.

    obs (batch, ...) -> normalization -> network -> argmax, or tanh -> units of the environment

A policy with memory also takes the input 'memory' and returns the new memory as 'next_memory'. Weights and the moments
of observations are constants of the graph; the batch size is free. Before a file gets its final name, it is run and
compared with the policy.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.observation import Leaf, leaf_name
from minding.engine.errors import ExportError
from minding.engine.files import as_json, json_text, replace
from minding.engine.process.packages import import_extra
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.export.reader import (
    SCHEMA,
    Run,
    checksum,
    compare,
    description_path,
    draw_memory,
    open_mindir,
    open_onnx,
)
from minding.policies.networks.fused import plain_layers
from minding.policies.networks.layers import Tanh

_CHECKED_SIZES = (1, 4)
"""Batch sizes at which a file is checked; two sizes, because an exporter may treat the first one as fixed."""


class _Discrete(nn.Cell):
    """The choice with the largest score, int32 ``(B,)``, counted from the space's start, and the scores."""

    def __init__(self, scores: str, adapter: ActionAdapter) -> None:
        super().__init__()
        self.names = ("action", scores)
        # int32, because the ONNX exporter declares every integer output as int32.
        self.argmax = ops.Argmax(-1, ms.int32)
        self.start = _start(adapter)

    def construct(self, scores):
        action = self.argmax(scores)
        if self.start is not None:
            action = action + self.start
        return action, scores


class _Largest(nn.Cell):
    """The choices with the largest scores, int32 ``(B, K)``, counted from 0."""

    def __init__(self, nvec: Sequence[int]) -> None:
        super().__init__()
        self.stops = [int(s) for s in np.cumsum(nvec)]
        self.starts = [0, *self.stops[:-1]]
        self.argmax = ops.Argmax(-1, ms.int32)
        self.stack = ops.Stack(1)

    def construct(self, scores):
        # A tuple, because with a list MindIR fixes the batch size of the first call.
        parts: tuple[Any, ...] = ()
        for k in range(len(self.starts)):
            parts = (*parts, self.argmax(scores[:, self.starts[k] : self.stops[k]]))
        return self.stack(parts)


class _MultiDiscrete(nn.Cell):
    """The choices with the largest scores, int32 ``(B, *shape)``, counted from the space's start, and the scores."""

    def __init__(self, scores: str, nvec: Sequence[int], adapter: ActionAdapter) -> None:
        super().__init__()
        self.names = ("action", scores)
        self.largest = _Largest(nvec)
        self.start = _start(adapter)
        self.shape = adapter.shape

    def construct(self, scores):
        action = self.largest(scores)
        if len(self.shape) > 1:
            action = action.reshape((-1, *self.shape))
        if self.start is not None:
            action = action + self.start
        return action, scores


class _Box(nn.Cell):
    """Actions in the environment's units and in the policy's units, float32 ``(B, *shape)`` each."""

    names = ("action", "policy_action")

    def __init__(self, adapter: ActionAdapter, squash: bool) -> None:
        super().__init__()
        self.shape = adapter.shape
        self.squash = Tanh() if squash else None
        self.scale, self.middle = _constant(adapter.scale), _constant(adapter.middle)
        self.low, self.high = _constant(adapter.low), _constant(adapter.high)
        policy_low, policy_high = adapter.policy_limits
        self.policy_low, self.policy_high = _constant(policy_low), _constant(policy_high)

    def construct(self, mean):
        if self.squash is not None:
            mean = self.squash(mean)
        own = mean.reshape((-1, *self.shape))
        own = ops.minimum(ops.maximum(own, self.policy_low), self.policy_high)
        action = ops.minimum(ops.maximum(own * self.scale + self.middle, self.low), self.high)
        return action, own


class _Composite(nn.Cell):
    """Rows of choices and numbers in the environment's units and in the policy's units, float32 ``(B, K + A)`` each,
    and the scores of the choices."""

    def __init__(self, scores: str, nvec: Sequence[int], adapter: ActionAdapter) -> None:
        super().__init__()
        self.names = (*_Box.names, scores)
        self.largest, self.box = _Largest(nvec), _Box(adapter, squash=False)

    def construct(self, scores, mean):
        return (*self.box(ops.Concat(1)((ops.cast(self.largest(scores), ms.float32), mean))), scores)


class _ActingGraph(nn.Cell):
    """The acting network and the decision: from observation leaves and memory to the outputs named in `names`."""

    def __init__(self, policy: BasePolicy) -> None:
        # Without a prefix, parameters keep the names that they have in the policy.
        super().__init__(auto_prefix=False)
        decision, space, adapter = policy.net.decision, policy.spec["action"], policy.actors["eval"].adapter
        self.net = policy.net
        # Other runtimes do not have this package's kernels.
        plain_layers(self.net)
        # The numbers of a composite action are the output after the scores of its choices.
        self.first = decision.output
        self.last = self.first + (2 if space["kind"] == COMPOSITE else 1)
        if space["kind"] == COMPOSITE:
            self.decide: Any = _Composite(decision.name, space["nvec"], adapter)
        elif adapter.continuous:
            self.decide = _Box(adapter, decision.squash)
        elif space["kind"] == "multi_discrete":
            self.decide = _MultiDiscrete(decision.name, space["nvec"], adapter)
        else:
            self.decide = _Discrete(decision.name, adapter)
        self.remembers = policy.net.memory_size > 0
        self.names = (*self.decide.names, "next_memory") if self.remembers else self.decide.names

    def construct(self, *obs):
        outputs = self.net(obs)
        decided = self.decide(*outputs[self.first : self.last])
        return (*decided, outputs[-1]) if self.remembers else decided


@dataclasses.dataclass(frozen=True)
class _Input:
    """One input of the graph; `shape` is the shape without the batch axis."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, leaf: Leaf) -> _Input:
        dtypes = {"discrete": "int64", "multi_discrete": "int64", "multi_binary": "int8", "action_mask": "bool"}
        dtype = dtypes.get(leaf.space["kind"])
        return cls(leaf_name("obs", leaf), dtype or leaf.space["dtype"], tuple(leaf.field.shape))

    @property
    def tensor(self) -> Any:
        """The placeholder of the input for compiling the graph, with any batch size."""
        return ms.Tensor(shape=(None, *self.shape), dtype=ms.Tensor(np.zeros(1, self.dtype)).dtype)


def export_policy(policy: BasePolicy, path: str | Path, file_format: str, *, info: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the file `path` and its description ``<path>.json``."""
    path = Path(path)
    inputs = [_Input.of(leaf) for leaf in policy.acting_leaves]
    if policy.net.memory_size:
        inputs.append(_Input("memory", "float32", (policy.net.memory_size,)))
    outputs, data = _draft(policy, inputs, file_format)
    description = {
        "schema": SCHEMA,
        "format": file_format,
        **as_json(info),
        "memory": policy.net.memory_size,
        "inputs": [_described(each.name, each.dtype, each.shape) for each in inputs],
        "outputs": [_described(name, str(each.dtype), each.shape[1:]) for name, each in outputs.items()],
        "sha256": checksum(data),
    }
    try:
        # If only the first file is replaced, the checksum reveals that the description is older.
        replace(path, data, make=True)
        replace(description_path(path), json_text(description))
    except OSError as error:
        raise ExportError(f"{path}: cannot write: {error.strerror}; give another --out") from error
    return description


def _draft(policy: BasePolicy, inputs: Sequence[_Input], file_format: str) -> tuple[dict[str, Array], bytes]:
    """Outputs of the file for a few observations, which were compared with the policy, and the contents of the file."""
    write, opened = _FORMATS[file_format]
    graph = _ActingGraph(policy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"draft.{file_format}"
        try:
            write(graph, inputs, path)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ExportError(
                f"{policy.name}: no {file_format} of this network: {reason}; try the other format"
            ) from error
        return _checked(policy, opened(path), graph.names), path.read_bytes()


def _start(adapter: ActionAdapter) -> Any:
    """The number from which choices are counted; None for 0."""
    return ms.Tensor(adapter.start.astype(np.int32)) if adapter.start.any() else None


def _constant(values: Array) -> Any:
    return ms.Tensor(np.asarray(values, np.float32))


def _write_mindir(graph: _ActingGraph, inputs: Sequence[_Input], path: Path) -> None:
    ms.export(graph, *[each.tensor for each in inputs], file_name=str(path), file_format="MINDIR")


def _write_onnx(graph: _ActingGraph, inputs: Sequence[_Input], path: Path) -> None:
    onnx: Any = import_extra("onnx", "onnx", "export to ONNX")
    ms.onnx.export(
        graph,
        *[each.tensor for each in inputs],
        file_name=str(path),
        input_names=[each.name for each in inputs],
        dynamic_axes={each.name: {0: "batch"} for each in inputs},
    )
    model = onnx.load(path)
    # MindSpore's own `output_names` loses track of an output that another operator reads.
    for output, name in zip(model.graph.output, graph.names):
        model.graph.node.append(onnx.helper.make_node("Identity", [output.name], [name]))
        output.name = name
        output.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


_FORMATS: dict[str, tuple[Callable[..., None], Callable[[Path], Run]]] = {
    "mindir": (_write_mindir, open_mindir),
    "onnx": (_write_onnx, lambda path: open_onnx(path.read_bytes())),
}


def _checked(policy: BasePolicy, run: Run, names: Sequence[str]) -> dict[str, Array]:
    """Outputs of the file for random observations; raises ExportError if they differ from the policy's."""
    rng = np.random.default_rng(0)
    obs = obs_trees.unflatten((leaf.path, _draw(leaf, sum(_CHECKED_SIZES), rng)) for leaf in policy.acting_leaves)
    memory = draw_memory(policy, sum(_CHECKED_SIZES))
    arrays = [*(values for _, values in obs_trees.leaves(obs)), *([] if memory is None else [memory])]
    stops = np.cumsum(_CHECKED_SIZES)
    parts = [run([values[a:b] for values in arrays]) for a, b in zip([0, *stops], stops)]
    outputs = {name: np.concatenate(each) for name, each in zip(names, zip(*parts))}
    parity = compare(policy, outputs, obs, memory)
    if not parity.holds:
        raise ExportError(
            f"{policy.name}: the exported graph does not compute what the policy computes ({parity}); "
            "one of the network's operators does not survive the export: try the other format"
        )
    return outputs


def _draw(leaf: Leaf, count: int, rng: np.random.Generator) -> Array:
    wanted, space = _Input.of(leaf), leaf.space
    shape = (count, *wanted.shape)
    if leaf.is_mask:
        # In every row, one random action of each choice is legal, and others with probability 0.3.
        counts = space["counts"]
        chosen = [np.eye(n, dtype=bool)[rng.integers(0, n, count)] for n in counts]
        return np.concatenate(chosen, axis=1) | (rng.random(shape) < 0.3)
    if np.dtype(wanted.dtype).kind == "f":
        return rng.standard_normal(shape).astype(wanted.dtype)
    return rng.integers(0, space.get("n", space.get("nvec", 2)), shape).astype(wanted.dtype)


def _described(name: str, dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": ["batch", *shape]}
