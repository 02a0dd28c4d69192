"""The three views of a policy, which `engine.types` calls its modes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from minding.engine.data.batch import Field
from minding.engine.types import Array, Factory, LearnOutput, Obs, ObsLike, StateDict
from minding.policies.acting.actors import Actor
from minding.policies.acting.agents import SharedActor
from minding.policies.acting.predicting import predict_with

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
