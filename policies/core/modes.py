"""The modes of a policy, and their factories for other processes, with names in place of weights.

An actor that computes in NumPy is pickled and acts in the other process without MindSpore. An actor that runs a
compiled graph cannot be pickled: the other process rebuilds its policy from the class and the configuration, which
loads MindSpore. If an inference server computes the network, both kinds are pickled without it. Worker 0 of a lane
continues with the actor's random stream and memory as they were when the factory was made; every other worker starts
with its own stream and an empty memory.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cloudpickle
import numpy as np

from minding.engine.data.batch import Field
from minding.engine.errors import LaneError, MindingError
from minding.engine.process import runtime
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, Factory, LaneContext, LearnOutput, Network, Obs, ObsLike, StateDict
from minding.policies.acting.actors import Actor, predict_with
from minding.policies.acting.agents import SharedActor

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


Weights = Callable[[], Mapping[str, Array]]
"""Returns the live arrays, by parameter name, that an actor computes with."""


@dataclasses.dataclass(frozen=True, slots=True)
class CollectView:
    """Acts with exploration, in the policy's own units. Its state is the random stream of acting and the memory."""

    name: ClassVar[str] = "collect"
    actor: Actor | SharedActor
    weights: Weights
    rebuilt_by: Callable[[type[CollectView]], Factory]
    """Returns the factory that rebuilds a mode in another process."""

    @property
    def record_fields(self) -> Sequence[str]:
        fields = self.actor.record_fields
        return fields if self.actor.memory is None else (*fields, "memory")

    @property
    def memory(self) -> Array | None:
        return self.actor.newest_memory

    def forward(self, obs: Obs, **collect_kwargs: Any) -> dict[str, Array]:
        return self.actor.collect(obs, **collect_kwargs)

    def value(self, obs: Obs, memory: Array | None = None) -> Array:
        return self.actor.value(obs, memory)

    def predict(self, obs: ObsLike) -> dict[str, Array]:
        return predict_with(self.actor, obs)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        self.actor.reset(env_ids)

    def state_dict(self) -> StateDict:
        return self.actor.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)

    def factory(self) -> Factory:
        return self.rebuilt_by(CollectView)


@dataclasses.dataclass(frozen=True, slots=True)
class LearnView:
    """All gradient steps of one iteration in one compiled call."""

    forward: Callable[..., LearnOutput]
    """(batch, progress=0.0) -> metrics, steps and priorities; `progress` in [0, 1] drives schedules."""
    fields: Mapping[str, Field]
    """The fields of the rows that `forward` reads."""
    prioritized: bool = False
    """Whether `forward` returns priorities."""
    sequences: bool | None = None
    """Whether `forward` takes sequences (K, T, B) of a buffer rather than single rows (K, B); None: unspecified."""


@dataclasses.dataclass(frozen=True, slots=True)
class EvalView:
    """Acts without exploration, in the environment's units."""

    name: ClassVar[str] = "eval"
    actor: Actor | SharedActor
    weights: Weights
    rebuilt_by: Callable[[type[EvalView]], Factory]
    """Returns the factory that rebuilds a mode in another process."""

    def forward(self, obs: Obs, action_mask: Array | None = None) -> Array:
        return self.actor.act(obs, action_mask)

    def predict(self, obs: ObsLike) -> dict[str, Array]:
        return predict_with(self.actor, obs)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        self.actor.reset(env_ids)

    def factory(self) -> Factory:
        return self.rebuilt_by(EvalView)


ActingView = type[CollectView] | type[EvalView]
View = TypeVar("View", CollectView, EvalView)


def host_view(
    mode: type[View], actor: Actor | SharedActor, weights: Mapping[str, Array], seed: int, shared: frozenset[int]
) -> View:
    """The mode of an actor with a NumPy network.

    Args:
      mode: class of the mode.
      actor: actor whose network's arrays are views of `weights`.
      weights: the live, contiguous arrays of the parameters by name.
      seed: seed of the run.
      shared: indices of the network's outputs that have no batch axis.
    """
    return mode(actor, lambda: weights, lambda mode: _host_factory(mode, actor, weights, seed, shared))


def graph_view(mode: type[View], actor: Actor | SharedActor, policy: BasePolicy) -> View:
    """The mode of an actor whose network is a compiled graph of `policy`."""

    def factory(mode: ActingView) -> GraphFactory:
        acting = policy.actors[mode.name].state_dict()
        made_of = cloudpickle.dumps((type(policy), policy.config, policy.algorithm))
        bare = dumps(_on(actor, None), {})
        return GraphFactory(mode, policy.name, made_of, runtime.settings(), policy.config.seed, acting, bare)

    return mode(actor, policy.acting_weights, factory)


def _host_factory(
    mode: ActingView, actor: Actor | SharedActor, weights: Mapping[str, Array], seed: int, shared: frozenset[int]
) -> HostFactory:
    return HostFactory(mode, dumps(_on(actor, None), {}), dumps(actor.network, weights), seed, shared)


@dataclasses.dataclass(frozen=True)
class HostFactory:
    """Rebuilds a pickled actor, with the weights of its lane or with a network in another process."""

    mode: ActingView
    actor: bytes
    """The pickled actor without its network."""
    computes: bytes
    """The pickled network."""
    seed: int
    shared: frozenset[int]

    def __call__(self, lane: LaneContext) -> CollectView | EvalView:
        actor = _on(loads(self.actor, {}), loads(self.computes, lane.weights))
        if lane.index > 0 or lane.guest:
            _begin_anew(actor, self.seed, lane)
        mode: Any = self.mode
        view: CollectView | EvalView = host_view(mode, actor, lane.weights, self.seed, self.shared)
        return view

    def network(self, lane: LaneContext) -> tuple[Network, frozenset[int]]:
        return loads(self.computes, lane.weights), self.shared

    def on_network(self, lane: LaneContext, network: Network) -> CollectView | EvalView:
        return _on_network(self.mode, self.actor, self.seed, lane, network)


@dataclasses.dataclass(frozen=True)
class GraphFactory:
    """Rebuilds the policy for one mode, and copies the weights of its lane whenever they change."""

    mode: ActingView
    name: str
    """Name of the algorithm."""
    policy: bytes
    """The pickled class, configuration and algorithm of the policy. Unpickling them loads MindSpore, so a collector
    whose network is in another process does not unpickle them."""
    settings: runtime.Settings
    """MindSpore settings of the learner's process, which an earlier policy may have prepared."""
    seed: int
    acting: StateDict
    actor: bytes
    """The pickled actor without its network."""

    def __call__(self, lane: LaneContext) -> CollectView | EvalView:
        policy = self._policy_on(lane)
        actor = policy.actors[self.mode.name]
        if lane.index > 0 or lane.guest:
            _begin_anew(actor, self.seed, lane)
        else:
            actor.load_state_dict(self.acting)
        made: CollectView | EvalView = getattr(policy, f"{self.mode.name}_mode")
        return made

    def network(self, lane: LaneContext) -> tuple[Network, frozenset[int]]:
        policy = self._policy_on(lane)
        return policy.actors[self.mode.name].network, frozenset(policy.net.shared_outputs)

    def on_network(self, lane: LaneContext, network: Network) -> CollectView | EvalView:
        return _on_network(self.mode, self.actor, self.seed, lane, network)

    def _policy_on(self, lane: LaneContext) -> BasePolicy:
        if not lane.own_process:
            raise LaneError(
                f"{self.name}: the {self.mode.name} mode acts with a compiled graph, and MindSpore belongs to "
                "one thread of a process: set lanes.transport=processes, or collect.backend=host for small networks"
            )
        runtime.prepare(self.settings)
        kind, config, algorithm = pickle.loads(self.policy)  # noqa: S301 - from a process of this run
        policy: BasePolicy = kind(config, (self.mode.name,), algorithm)

        def refresh() -> None:
            for name, parameter in policy.params.items():
                runtime.assign(parameter, _weight(lane.weights, name))

        refresh()
        lane.on_refresh.append(refresh)
        return policy


def _on(actor: Actor | SharedActor, network: Any) -> Any:
    """A copy of an actor with another network."""
    copied: Any = copy.copy(actor)
    if isinstance(actor, SharedActor):
        copied.actor = _on(actor.actor, network)
    else:
        copied.network = network
    return copied


def _on_network(
    mode: ActingView, pickled: bytes, seed: int, lane: LaneContext, network: Network
) -> CollectView | EvalView:
    """The mode of an actor whose network is in another process."""
    actor = _on(loads(pickled, {}), network)
    if lane.index > 0 or lane.guest:
        _begin_anew(actor, seed, lane)

    def refuse(mode: ActingView) -> Factory:
        raise LaneError(f"{actor.name}: a mode that acts through an inference server cannot be sent further")

    made: Any = mode
    view: CollectView | EvalView = made(actor, dict, refuse)
    return view


def dumps(value: Any, weights: Mapping[str, Array]) -> bytes:
    """Pickles `value`; an array in it that is a view of one of `weights` is stored as that name and the position."""
    file = io.BytesIO()
    _Pickler(file, weights).dump(value)
    return file.getvalue()


def loads(data: bytes, weights: Mapping[str, Array]) -> Any:
    """Inverse of `dumps`, with views of these `weights`: the loaded object follows later writes to them."""
    return _Unpickler(io.BytesIO(data), weights).load()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, weights: Mapping[str, Array]) -> None:
        super().__init__(file)
        self._spans = [(name, array.ctypes.data, array.nbytes) for name, array in weights.items()]

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        if not isinstance(value, np.ndarray):
            return None
        for name, start, size in self._spans:
            offset = value.ctypes.data - start
            if 0 <= offset < size:
                return name, value.shape, value.dtype.str, offset, value.strides
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, weights: Mapping[str, Array]) -> None:
        super().__init__(file)
        self._weights = weights

    def persistent_load(self, reference: tuple[Any, ...]) -> Array:
        name, shape, dtype, offset, strides = reference
        return np.ndarray(shape, dtype, _weight(self._weights, name).data, offset, strides)


def _weight(weights: Mapping[str, Array], name: str) -> Array:
    if name not in weights:
        raise MindingError(f"the weights of this process lack parameter {name!r}: fill them from the mode's weights()")
    return weights[name]


def _begin_anew(actor: Actor | SharedActor, seed: int, lane: LaneContext) -> None:
    """Gives the actor of a worker other than 0, or of a guest, a random stream of its own and an empty memory."""
    actor.rng = SeedStreams(seed).generator(".".join(["policy.act", str(lane.index), *filter(None, [lane.guest])]))
    actor.reset()
