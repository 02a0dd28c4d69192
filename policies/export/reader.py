"""Exported policies: files that act without the code that trained them. `policies.export.writer` writes them.

Each file has a description next to it, ``<file>.json``: inputs, outputs, spaces, versions, and the checksum of the
file. Neither contains code.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint.store import first_line
from minding.engine.data import obs_trees
from minding.engine.data.observation import masked_obs
from minding.engine.errors import ExportError
from minding.engine.files import read_bounded, read_text
from minding.engine.process import runtime
from minding.engine.process.floats import flush_denormals
from minding.engine.process.packages import import_extra
from minding.engine.types import Array, EvalMode, Obs
from minding.policies.acting.memory import Memory
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.export.model_files import check_operators

SCHEMA = 3
TOLERANCE = 1e-5
"""Largest allowed difference from the policy, relative to the row's largest absolute value if this is above 1."""
_FATAL = 4
"""Level of onnxruntime's messages; its errors are exceptions, too."""
_MAX_BYTES, _MAX_DESCRIPTION, _MAX_MEMORY = 1 << 30, 1 << 20, 1 << 20

Run = Callable[[Sequence[Array]], Sequence[Array]]


@dataclasses.dataclass(frozen=True)
class Parity:
    """The difference between the outputs of an exported file and of its policy."""

    count: int
    difference: float
    other_actions: int

    @property
    def holds(self) -> bool:
        # False for NaN.
        return self.difference <= TOLERANCE and self.other_actions == 0

    def __str__(self) -> str:
        return (
            f"{self.count:,} observations, largest difference {self.difference:.1e} (limit {TOLERANCE:.0e}), "
            f"{self.other_actions} other actions"
        )


class ExportedPolicy:
    """The policy of an exported file, which acts without exploration. A policy with memory keeps it per
    environment."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.description, data = _read(path)
        check_operators(path, data, self.description["format"])
        self._inputs = self.description["inputs"]
        self._path = path
        self._names = [output["name"] for output in self.description["outputs"]]
        size = self.description["memory"]
        self._memory = Memory(size, str(path)) if size else None
        self._run = open_onnx(data) if self.description["format"] == "onnx" else open_mindir(path)

    @property
    def eval_mode(self) -> EvalMode:
        return self

    def forward(self, obs: Obs, action_mask: Array | None = None) -> Array:
        """The same actions as the policy's eval mode, in the environment's units; `action_mask` as in eval mode."""
        if action_mask is not None:
            obs = masked_obs(obs, action_mask, [each["name"].removeprefix("obs.") for each in self._inputs])
        outputs = self.outputs(obs)
        if self._memory is not None:
            self._memory.write(outputs["next_memory"])
        return outputs["action"]

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Clears the memory of these environments, or of all."""
        if self._memory is not None:
            self._memory.forget(env_ids)

    def outputs(self, obs: Obs, memory: Array | None = None) -> dict[str, Array]:
        """All outputs by name for a batch of observations, ``(B, ...)`` each; changes nothing. `memory`, float32 ``(B,
        S)``, is the memory before the observations; by default the current memory."""
        arrays = [np.asarray(leaf, spec["dtype"]) for (_, leaf), spec in zip(obs_trees.leaves(obs), self._inputs)]
        if self._memory is not None:
            arrays.append(self._memory.rows(len(arrays[0])) if memory is None else memory)
        try:
            return dict(zip(self._names, self._run(arrays)))
        except Exception as error:  # onnxruntime has one class per error code, and no common base class.
            raise ExportError(
                f"{self._path} cannot compute actions for observations of shapes "
                f"{', '.join(str(array.shape) for array in arrays)}: {first_line(error)}; export again"
            ) from error


def open_onnx(data: bytes) -> Run:
    onnxruntime: Any = import_extra("onnxruntime", "onnx", "running an ONNX file")
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # See `ExportedPolicy.outputs`.
        raise ExportError(f"onnxruntime cannot open the file: {first_line(error)}; export again") from error
    names = [each.name for each in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays)))


def open_mindir(path: Path) -> Run:
    ms = runtime.load()
    cell = ms.nn.GraphCell(ms.load(str(path)))

    @flush_denormals
    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        return [output.asnumpy().copy() for output in cell(*map(runtime.to_device, arrays))]

    return run


def draw_memory(policy: Any, count: int) -> Array | None:
    """A random memory of `count` environments, float32 ``(count, S)``; None for a policy without memory."""
    size = policy.net.memory_size
    return np.random.default_rng(0).uniform(-1.0, 1.0, (count, size)).astype(np.float32) if size else None


@flush_denormals
def compare(policy: Any, outputs: dict[str, Array], obs: Obs, memory: Array | None = None) -> Parity:
    """Compares the outputs of an exported file with those of the exported policy, on observations ``(B, ...)`` and, for
    policies with a memory, the memory before them, ``(B, S)``."""
    actor = policy.actors["eval"]
    raw = actor.outputs(obs, memory)
    own = actor.decide(raw)
    action = actor.adapter(own)
    adapter, other = actor.adapter, 0
    expected: dict[str, Array] = {}
    if adapter.continuous:
        expected = {"policy_action": np.clip(own, *adapter.policy_limits), "action": action}
    if not adapter.continuous or adapter.choices:
        decision = policy.net.decision
        scores = raw[decision.output]
        given, wanted = outputs[decision.name], scores
        if given.shape == scores.shape:
            # Scores of illegal actions are equal, and so large that the others could not be compared in their presence.
            illegal = (scores == ILLEGAL) & (given == ILLEGAL)
            given, wanted = np.where(illegal, 0.0, given), np.where(illegal, 0.0, scores)
        parts = np.split(scores, np.cumsum(policy.spec["action"].get("nvec", [scores.shape[1]]))[:-1], axis=1)
        clear = np.stack([_gap(part) for part in parts], axis=1) > TOLERANCE * _size(wanted)
        differs = (outputs["action"] != action).reshape(len(action), -1)[:, : len(parts)]
        other = int((differs & clear).any(axis=1).sum())
        # Of a row of choices and numbers, only the numbers have a difference.
        outputs = {**outputs, **{name: outputs[name][:, len(parts) :] for name in expected}, decision.name: given}
        expected = {**{name: values[:, len(parts) :] for name, values in expected.items()}, decision.name: wanted}
    if memory is not None:
        expected["next_memory"] = raw[-1]
    # Not Python's `max`, which ignores NaN.
    difference = np.max([_difference(outputs[name], value) for name, value in expected.items()])
    return Parity(len(action), float(difference), other)


def description_path(path: Path) -> Path:
    """The path of an exported file's description."""
    return path.with_name(f"{path.name}.json")


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        data, text = read_bounded(path, _MAX_BYTES), read_text(description_path(path), _MAX_DESCRIPTION)
    except OSError as error:
        raise ExportError(f"{error.filename}: {error.strerror}; make it with `minding export RUN`") from error
    try:
        description: dict[str, Any] = json.loads(text)
        schema, expected = description["schema"], description["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path) from error
    if schema != SCHEMA:
        raise ExportError(
            f"{description_path(path)}: schema {schema!r}; this version reads schema {SCHEMA}: export again"
        )
    if expected != checksum(data):
        raise ExportError(f"{path}: damaged, or from another export than its description; export again")
    try:
        _check_description(description)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path) from error
    return description, data


def _unreadable(path: Path) -> ExportError:
    return ExportError(f"{description_path(path)}: no readable description; export again")


def _check_description(description: dict[str, Any]) -> None:
    """Raises ValueError or KeyError unless a description has all entries that are read from it, with their types."""
    for each in (*description["inputs"], *description["outputs"]):
        if type(each["name"]) is not str or np.dtype(each["dtype"]).kind not in "biuf":
            raise ValueError(f"an input or output {each!r}")
    if type(description["memory"]) is not int or not 0 <= description["memory"] <= _MAX_MEMORY:
        raise ValueError(f"memory of {description['memory']!r} numbers")
    if type(description["format"]) is not str:
        raise ValueError("no format")


def _size(values: Array) -> Array:
    """The largest absolute value of each row, at least 1; ``(B, 1)``."""
    return np.maximum(np.abs(values).reshape(len(values), -1).max(axis=1, keepdims=True), 1.0)


def _difference(given: Array, expected: Array) -> float:
    if given.shape != expected.shape:
        return float("inf")
    flat = (len(expected), -1)
    return float((np.abs(given.reshape(flat) - expected.reshape(flat)) / _size(expected)).max())


def _gap(scores: Array) -> Array:
    """The difference between the best and the second-best score of each row; ``(B,)``."""
    if scores.shape[1] == 1:
        return np.full(len(scores), np.inf)
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2]
