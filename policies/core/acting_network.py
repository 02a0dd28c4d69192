"""The network that acts: its interface, its NumPy form with views of the live parameters, and its compiled graph.

A network made of this package's cells has a NumPy form (`host`, see `networks.layers.Composed`), which tests compare
with the network. A user-defined cell may inherit the form of its base class, which knows nothing of the cell's
additions: the policy would silently act without them. Therefore, whenever a policy is built whose network has such a
cell, the form is compared with the network before it is used.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from minding.engine.checkpoint.store import first_line
from minding.engine.data.agent_axis import numbers_to_show
from minding.engine.data.observation import Leaf
from minding.engine.error_origin import is_users, places_of, user_location
from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.floats import flush_denormals
from minding.engine.process.runtime import ms, nn
from minding.engine.seeding import SeedStreams, generator_state
from minding.engine.types import Array
from minding.policies.acting.actors import Actor, Network, Outputs, SamplingActor
from minding.policies.acting.memory import Memory
from minding.policies.acting.team_actors import SharedActor
from minding.policies.core.modes import View, dumps, graph_view, host_view, loads
from minding.policies.networks.actor_critic import Decision

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy

_ASKED = {
    "memory_size": "size of the memory of each environment, 0 without memory",
    "shared_outputs": "indices of the outputs that have no batch axis, mostly ()",
    "decision": "which output decides the action without exploration, a policies.networks.actor_critic.Decision",
}


class ActingNetwork(Protocol):
    """A cell that acts, as returned by `BasePolicy.make_network`.

    Called with the arrays of an observation, ``(B, ...)`` each and including action masks, it returns a tuple of
    arrays, ``(B, ...)`` each except `shared_outputs`. A network with noisy layers has an attribute `noise_size`; to
    explore, it takes the noise ``(B, noise_size)`` as a further array. A network with a memory takes the memory,
    float32 ``(B, memory_size)``, as the last array and returns the new memory as the last output.

    A network with a method ``host()`` may act in NumPy: the method returns a picklable function with the same inputs
    and outputs on views of the live parameters (see `numpy_form`). Without this method, the network acts through
    its compiled graph.
    """

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an environment; 0 without memory."""
        ...

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis, such as a standard deviation that is a parameter."""
        ...

    @property
    def decision(self) -> Decision:
        """Which output decides the action without exploration; exported files contain this output."""
        ...

    def __call__(self, leaves: Any) -> Any: ...

    def get_parameters(self, expand: bool = True) -> Iterator[Any]:
        """As in `mindspore.nn.Cell`."""
        ...

    def cells_and_names(self, cells: Any = None, name_prefix: str = "") -> Iterator[tuple[str, Any]]:
        """As in `mindspore.nn.Cell`."""
        ...


def check_network(net: Any, algorithm: str) -> None:
    """Refuses a network that lacks an attribute of `ActingNetwork`."""
    for name, what in _ASKED.items():
        if not hasattr(net, name):
            raise ConfigError(
                f"policy.type={algorithm!r}: the network {type(net).__name__} has no attribute {name!r} ({what}); "
                "policies.core.acting_network.ActingNetwork lists the attributes of a network"
            )
    size = net.memory_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ConfigError(
            f"policy.type={algorithm!r}: {type(net).__name__}.memory_size: expected an integer of 0 or more, got "
            f"{size!r}"
        )


_log = logging.getLogger("minding.policies")
_HOST_LIMIT = 4_000_000
"""Number of weights up to which NumPy is faster than dispatching a compiled graph on CPU."""


class _Graph(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, *obs):
        return self.net(obs)


def acting_network(net: Any, backend: str, name: str, leaves: Sequence[Leaf] = ()) -> Network:
    """A function from observation leaves, each ``(B, ...)``, to the network's outputs as NumPy arrays."""
    is_small = runtime.device() == "CPU" and sum(p.size for p in net.get_parameters()) <= _HOST_LIMIT
    if backend == "graph" or (backend == "auto" and not is_small):
        return GraphNetwork(net, name)
    fault, unlike = "the device is not the CPU", False
    if runtime.device() == "CPU":
        try:
            return numpy_form(net, leaves)
        except NoNumpyForm as error:
            fault = str(error)
            unlike = isinstance(error, UnlikeNumpyForm)
    if backend == "numpy":
        raise ConfigError(
            f"policy.collect.backend='numpy': the network has to compute in NumPy, and {fault}: use 'auto' or 'graph'"
        )
    if unlike:
        _log.warning("%s: the network acts through its graph, as with policy.collect.backend=graph: %s", name, fault)
    return GraphNetwork(net, name)


class GraphNetwork:
    """Runs a network as a graph.

    Pads batches to the next power of two, so that a few compilations serve every batch size.
    """

    def __init__(self, net: nn.Cell, name: str) -> None:
        self._compiled = Compiled(_Graph(net), name, expected=8)
        self._shared = frozenset(net.shared_outputs)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        count = len(leaves[0])
        size = 1 << (count - 1).bit_length()
        if size != count:
            leaves = [np.concatenate([x, np.zeros((size - count, *x.shape[1:]), x.dtype)]) for x in leaves]
        outputs = self._compiled(*[runtime.to_device(narrow(x)) for x in leaves])
        arrays = [o.asnumpy() for o in outputs]
        return tuple((a if i in self._shared else a[:count]).copy() for i, a in enumerate(arrays))


_ROWS = 8
_SPREAD = 0.1
"""Standard deviation of the noise on parameters while both forms are compared; zeros could hide a difference."""
_TOLERANCE = 1e-3
"""Largest difference relative to an output's largest number. MindSpore's own tanh, which a user's network may contain,
is off by up to 1e-4 on CPU; the error of sums of it is smaller."""
_ILLEGAL = 1e20
"""Scores of larger magnitude belong to illegal actions."""


class NoNumpyForm(Exception):
    """The network, or a cell of it, has no NumPy form."""


class UnlikeNumpyForm(NoNumpyForm):
    """The network has a NumPy form that computes something else."""


def numpy_form(net: Any, leaves: Sequence[Leaf]) -> Network:
    """The NumPy form of a network, on views of its live parameters."""
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
            # A form that is made from the current parameters.
            _check_all_alike(net, outputs, drawn, net.host())
            raise UnlikeNumpyForm(
                f"the NumPy form (`host`) of {type(net).__name__} or of a cell in it holds copies of parameters. "
                "Learning changes them in place: let it hold what `parameter.asnumpy()` returns, or views of it "
                "such as `.T`, and compute everything else when it is called"
            ) from None
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


class Acting:
    """The acting side of a policy: its network, and for each mode an actor that remembers its environments."""

    def __init__(self, policy: "BasePolicy") -> None:
        self._policy = policy
        backend = policy.cfg.collect.backend
        self._network = acting_network(policy.net, backend, f"{policy.name}.act", policy.acting_leaves)
        self.actors = {mode: self._new_actor(mode) for mode in ("collect", "eval")}

    @property
    def in_numpy(self) -> bool:
        """Whether acting needs no compiled graph."""
        return not isinstance(self._network, GraphNetwork)

    def view(self, mode: type[View]) -> View:
        """A mode that acts in all environments."""
        policy, actor = self._policy, self._shared(self.actors[mode.name])
        if not self.in_numpy:
            return graph_view(mode, actor, policy)
        return host_view(mode, actor, policy.weights.live(), policy.config.seed, frozenset(policy.net.shared_outputs))

    def own_actor(self) -> Actor | SharedActor:
        """A new actor that follows the policy's learning, with a memory and a random stream of its own. One that
        computes in NumPy shares only the memory of the parameters with the policy."""
        if self.in_numpy:
            weights = self._policy.weights.live()
            actor: Actor = loads(dumps(self.actors["eval"], weights), weights)
        else:
            actor = self._new_actor("eval")
        actor.rng = SeedStreams(self._policy.config.seed).generator("policy.own")
        actor.reset()
        return self._shared(actor)

    def _new_actor(self, mode: str) -> Actor:
        rng = SeedStreams(self._policy.config.seed).generator("policy.act" if mode == "collect" else "policy.eval")
        actor, size = self._policy.make_actor(self._network, rng), self._policy.net.memory_size
        if size:
            actor.memory = Memory(size, f"{self._policy.name}.{mode}_mode")
        if mode == "eval" and isinstance(actor, SamplingActor) and not self._policy.cfg.eval.get("deterministic", True):
            actor.first_draw = generator_state(rng)
        return actor

    def _shared(self, actor: Actor) -> Actor | SharedActor:
        """The actor itself, or shared by several agents."""
        agents = self._policy.spec.get("agents")
        if agents is None:
            return actor
        return SharedActor(actor, numbers_to_show(agents["names"], self._policy.config.league.opponents))
