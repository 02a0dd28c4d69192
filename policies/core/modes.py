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
from minding.policies.acting.team_actors import SharedActor

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


Weights = Callable[[], Mapping[str, Array]]
"""Returns the live arrays, by parameter name, that an actor computes with."""


@dataclasses.dataclass(frozen=True, slots=True)
class ActingView:
    """Base of the modes that act."""

    name: ClassVar[str]
    actor: Actor | SharedActor
    weights: Weights
    rebuilt_by: Callable[[type[Any]], Factory]
    """Returns the factory that rebuilds a mode of this class in another process."""

    def predict(self, obs: ObsLike) -> dict[str, Array]:
        return predict_with(self.actor, obs)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        self.actor.reset(env_ids)

    def take_reward(self, reward: Array) -> None:
        self.actor.take_reward(reward)

    def factory(self) -> Factory:
        return self.rebuilt_by(type(self))


@dataclasses.dataclass(frozen=True, slots=True)
class CollectView(ActingView):
    """Acts with exploration, in the policy's own units. Its state is the random stream of acting and the memory."""

    name: ClassVar[str] = "collect"

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

    def state_dict(self) -> StateDict:
        return self.actor.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)


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
    from_each_row: bool = False
    """Whether sequences have to begin at each stored row equally often."""
    observe: Callable[[Mapping[str, Array]], None] | None = None
    """Tells the policy of new rows, whose observations it adds to its moments; None if it has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class EvalView(ActingView):
    """Acts without exploration, in the environment's units."""

    name: ClassVar[str] = "eval"

    def forward(self, obs: Obs, action_mask: Array | None = None) -> Array:
        return self.actor.act(obs, action_mask)


View = TypeVar("View", CollectView, EvalView)


def host_view(
    mode: type[View], actor: Actor | SharedActor, weights: Mapping[str, Array], seed: int, shared: frozenset[int]
) -> View:
    """The mode of an actor with a NumPy network."""

    def factory(mode: type[Any]) -> HostFactory:
        bare = dumps(_with_network(actor, None), {})
        return HostFactory(mode, bare, seed, dumps(actor.network, weights), shared)

    return mode(actor, lambda: weights, factory)


def graph_view(mode: type[View], actor: Actor | SharedActor, policy: BasePolicy) -> View:
    """The mode of an actor whose network is a compiled graph of `policy`."""

    def factory(mode: type[Any]) -> GraphFactory:
        bare, acting = dumps(_with_network(actor, None), {}), policy.actors[mode.name].state_dict()
        recipe = cloudpickle.dumps((type(policy), policy.config, policy.algorithm))
        return GraphFactory(mode, bare, policy.config.seed, policy.name, recipe, runtime.settings(), acting)

    return mode(actor, policy.weights.live, factory)


@dataclasses.dataclass(frozen=True)
class _ActorFactory:
    mode: type[Any]
    """The class of the mode, `CollectView` or `EvalView`."""
    actor: bytes
    """The pickled actor without its network."""
    seed: int
    """The seed of the run."""

    def on_network(self, lane: LaneContext, network: Network) -> CollectView | EvalView:
        """The mode with a network in another process."""
        actor = _with_network(loads(self.actor, {}), network)
        if _is_further(lane):
            _restart(actor, self.seed, lane)

        def refuse(mode: type[Any]) -> Factory:
            raise LaneError(f"{actor.name}: a mode that acts through an inference server cannot be sent further")

        view: CollectView | EvalView = self.mode(actor, dict, refuse)
        return view


@dataclasses.dataclass(frozen=True)
class HostFactory(_ActorFactory):
    """Rebuilds a pickled actor, with the weights of its lane or with a network in another process."""

    pickled_network: bytes
    shared: frozenset[int]
    """Indices of the network's outputs that have no batch axis."""

    def __call__(self, lane: LaneContext) -> CollectView | EvalView:
        actor = _with_network(loads(self.actor, {}), loads(self.pickled_network, lane.weights))
        if _is_further(lane):
            _restart(actor, self.seed, lane)
        view: CollectView | EvalView = host_view(self.mode, actor, lane.weights, self.seed, self.shared)
        return view

    def network(self, lane: LaneContext) -> tuple[Network, frozenset[int]]:
        return loads(self.pickled_network, lane.weights), self.shared


@dataclasses.dataclass(frozen=True)
class GraphFactory(_ActorFactory):
    """Rebuilds the policy for one mode, and copies the weights of its lane whenever they change."""

    name: str
    """Name of the algorithm."""
    policy: bytes
    """The pickled class, configuration and algorithm of the policy. Unpickling them loads MindSpore, so a collector
    whose network is in another process does not unpickle them."""
    settings: runtime.Settings
    """MindSpore settings of the learner's process, which an earlier policy may have prepared."""
    acting: StateDict
    """The state of the actor."""

    def __call__(self, lane: LaneContext) -> CollectView | EvalView:
        policy = self._policy_on(lane)
        actor = policy.actors[self.mode.name]
        if _is_further(lane):
            _restart(actor, self.seed, lane)
        else:
            actor.load_state_dict(self.acting)
        made: CollectView | EvalView = getattr(policy, f"{self.mode.name}_mode")
        return made

    def network(self, lane: LaneContext) -> tuple[Network, frozenset[int]]:
        policy = self._policy_on(lane)
        return policy.actors[self.mode.name].network, frozenset(policy.net.shared_outputs)

    def _policy_on(self, lane: LaneContext) -> BasePolicy:
        if not lane.own_process:
            raise LaneError(
                f"{self.name}: the {self.mode.name} mode acts with a compiled graph, and MindSpore belongs to "
                "one thread of a process: set lanes.transport=processes, or collect.backend=numpy for small networks"
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


def _with_network(actor: Actor | SharedActor, network: Any) -> Any:
    """A copy of an actor with another network."""
    copied: Any = copy.copy(actor)
    if isinstance(actor, SharedActor):
        copied.actor = _with_network(actor.actor, network)
    else:
        copied.network = network
    return copied


def _is_further(lane: LaneContext) -> bool:
    """Whether a worker is another one than worker 0, which continues with the state of the actor."""
    return lane.index > 0 or bool(lane.rng_stream)


def _restart(actor: Actor | SharedActor, seed: int, lane: LaneContext) -> None:
    """Gives the actor of a further worker a random stream of its own and an empty memory."""
    actor.rng = SeedStreams(seed).generator(".".join(["policy.act", str(lane.index), *filter(None, [lane.rng_stream])]))
    actor.reset()


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
