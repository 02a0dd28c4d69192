"""The NumPy form of an acting network, and a check that it computes the same as the network.

A network made of this package's cells has a NumPy form (`host`, see `acting.numpy_layers`), which tests compare with
the network. A user-defined cell may inherit the form of its base class, which knows nothing of the cell's additions:
the policy would silently act without them. Therefore, whenever a policy is built whose network has such a cell, the
form is compared with the network before it is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minding.engine.blame import is_users, places_of, user_location
from minding.engine.checkpoint.store import first_line
from minding.engine.data.observation import Leaf
from minding.engine.process import runtime
from minding.engine.process.floats import flush_denormals
from minding.engine.types import Array
from minding.policies.acting.actors import Network, Outputs

_ROWS = 8
_SPREAD = 0.1
"""Standard deviation of the noise on parameters while both forms are compared; zeros could hide a difference."""
_TOLERANCE = 1e-3
"""Largest difference relative to an output's largest number. The error of MindSpore's tanh on CPU is up to 1e-4, and
the error of sums of it is smaller."""
_ILLEGAL = 1e20
"""Scores of larger magnitude belong to illegal actions."""


class NoNumpyForm(Exception):
    """The network, or a cell of it, has no NumPy form."""


class UnlikeNumpyForm(NoNumpyForm):
    """The network has a NumPy form that computes something else."""


def numpy_form(net: Any, leaves: Sequence[Leaf]) -> Network:
    """The NumPy form of a network, on views of its live parameters.

    Args:
      net: the acting network.
      leaves: the observation leaves that the network takes.
    Raises:
      NoNumpyForm: if the network or a cell of it has no NumPy form.
      UnlikeNumpyForm: if a class inherits `host` but overrides methods that the form computes, or if the form fails or
        differs from the network for random observations and parameters.
    """
    foreign = [(path, cell) for path, cell in net.cells_and_names() if _is_foreign(type(cell))]
    for path, cell in foreign:
        changed = _overridden(type(cell))
        if changed is not None:
            raise UnlikeNumpyForm(f"{_place(path, cell)} overrides {changed} and inherits the NumPy form (`host`)")
    try:
        form: Network = net.host()
    except Exception as error:
        if isinstance(error, AttributeError) and "no attribute 'host'" in str(error):
            raise NoNumpyForm(f"{str(error).rstrip('.')}: a cell without NumPy form (`host`)") from None
        if not is_users(error, inside=1):
            raise
        raise UnlikeNumpyForm(f"`host` failed: {_fault(error)}") from error
    if foreign:
        _compare(net, form, leaves)
    return form


def _is_foreign(kind: type) -> bool:
    """Whether a class of cells comes from neither this package nor MindSpore."""
    return kind.__module__.partition(".")[0] not in ("minding", "mindspore")


def _overridden(kind: type) -> str | None:
    """The method that a class overrides of the class from which it inherits `host`, as ``'heads of ActorCritic'``."""
    between: dict[str, None] = {}
    for each in kind.__mro__:
        if "host" in vars(each):
            found = next((name for name in between if hasattr(each, name)), None)
            return None if found is None else f"{found} of {each.__name__}"
        computing = (name for name, value in vars(each).items() if inspect.isfunction(value))
        between.update(dict.fromkeys(name for name in computing if not name.startswith("__")))
    return None


def _place(path: str, cell: Any) -> str:
    return type(cell).__name__ + (f" ({path})" if path else "")


@flush_denormals
def _compare(net: Any, form: Network, leaves: Sequence[Leaf]) -> None:
    kept = [(p.asnumpy(), p.asnumpy().copy()) for p in net.get_parameters() if p.asnumpy().dtype == np.float32]
    rng = np.random.default_rng(0)
    try:
        for live, values in kept:
            live += (_SPREAD * rng.standard_normal(values.shape)).astype(np.float32)
        drawn = list(_inputs(net, leaves, rng))
        outputs = [_eager(net, rows) for rows in drawn]
        try:
            _check_all_alike(net, outputs, drawn, form)
        except UnlikeNumpyForm:
            if _is_alike_now(net, outputs, drawn):
                raise UnlikeNumpyForm(
                    f"the NumPy form (`host`) of {type(net).__name__} or of a cell in it holds copies of parameters. "
                    "Learning changes them in place: let it hold what `parameter.asnumpy()` returns, or views of it "
                    "such as `.T`, and compute everything else when it is called"
                ) from None
            raise
    finally:
        for live, values in kept:
            live[...] = values


def _check_all_alike(net: Any, outputs: Sequence[Outputs], drawn: Sequence[list[Array]], form: Network) -> None:
    for graph, rows in zip(outputs, drawn):
        try:
            host = form(rows)
        except Exception as error:
            raise UnlikeNumpyForm(f"the NumPy form failed: {_fault(error)}") from error
        _check_alike(type(net).__name__, graph, host)


def _fault(error: Exception) -> str:
    return f"{first_line(error)}{user_location(places_of(error)[1:])}"


def _is_alike_now(net: Any, outputs: Sequence[Outputs], drawn: Sequence[list[Array]]) -> bool:
    """Whether a form that is made from the current parameters computes the same as the network."""
    try:
        _check_all_alike(net, outputs, drawn, net.host())
    except UnlikeNumpyForm:
        return False
    return True


def _inputs(net: Any, leaves: Sequence[Leaf], rng: np.random.Generator) -> Iterator[list[Array]]:
    """Random arguments of an acting network: without noise, then with noise if the network takes it."""
    noise, memory = getattr(net, "noise_size", 0), net.memory_size
    for size in dict.fromkeys((0, noise)):
        extra = [rng.standard_normal((_ROWS, n)).astype(np.float32) for n in (size, memory) if n]
        yield [*(_draw(leaf, rng) for leaf in leaves), *extra]


def _draw(leaf: Leaf, rng: np.random.Generator) -> Array:
    """Random rows of a leaf in the form in which environments return them."""
    space, shape = leaf.space, (_ROWS, *leaf.field.shape)
    if space["kind"] in ("discrete", "multi_discrete"):
        return rng.integers(0, space.get("nvec", space.get("n")), shape)
    if leaf.is_mask:
        return rng.random(shape) < 0.5
    if space["kind"] == "multi_binary":
        return rng.integers(0, 2, shape, dtype=np.int8)
    dtype = np.dtype(space["dtype"])
    return (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)


def _eager(net: Any, rows: Sequence[Array]) -> Outputs:
    """The network's outputs without a graph, which would take seconds to compile."""
    try:
        outputs = net(tuple(runtime.to_device(narrow(x)) for x in rows))
        return tuple(output.asnumpy() for output in outputs)
    except Exception as error:
        raise UnlikeNumpyForm(
            f"{type(net).__name__} cannot be compared with its NumPy form, since it does not run without a graph "
            f"({first_line(error)})"
        ) from error


def _check_alike(name: str, graph: Outputs, host: Outputs) -> None:
    shapes, others = [x.shape for x in graph], [x.shape for x in host]
    if shapes != others:
        raise UnlikeNumpyForm(f"{name} returns arrays of shapes {shapes}, and its NumPy form of {others}")
    for k, (there, here) in enumerate(zip(graph, host)):
        legal = np.abs(there) < _ILLEGAL
        off = float(np.abs(np.where(legal, there - here, 0.0)).max(initial=0.0))
        scale = float(np.abs(np.where(legal, there, 0.0)).max(initial=0.0))
        if not off <= _TOLERANCE * scale or (legal != (np.abs(here) < _ILLEGAL)).any():
            raise UnlikeNumpyForm(
                f"output {k} of {name} differs from that of its NumPy form by {off:.2g}, where its numbers are up to "
                f"{scale:.2g}"
            )


def narrow(x: Array) -> Array:
    """The array in the dtype that a graph takes: int32 in place of int64, others unchanged."""
    return x.astype(np.int32) if x.dtype == np.int64 else x
