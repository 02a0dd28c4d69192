"""The three views of a policy, see the protocols of the same names in `engine.types`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from minding.engine.data.batch import Field
from minding.engine.seeding import generator_state, restore_generator
from minding.engine.types import Array, Obs, Recipe, StateDict
from minding.policies.core.actors import Actor


class Shipping(Protocol):
    """How an acting mode reaches other processes."""

    def recipe(self, mode: type[CollectMode] | type[EvalMode]) -> Recipe:
        """Returns the factory that rebuilds this mode in another process."""
        ...

    def weights(self) -> Mapping[str, Array]:
        """Returns the live arrays, by parameter name, that the actor computes with."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class CollectMode:
    """Acts with exploration, in the policy's own units. Its state is that of the random stream of acting."""

    name: ClassVar[str] = "collect"
    actor: Actor
    shipping: Shipping

    @property
    def record_fields(self) -> Sequence[str]:
        return self.actor.record_fields

    def forward(self, obs: Obs, **collect_kwargs: Any) -> dict[str, Array]:
        return self.actor.collect(obs, **collect_kwargs)

    def value(self, obs: Obs) -> Array:
        return self.actor.value(obs)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self.actor.reset(env_ids)

    def state_dict(self) -> StateDict:
        return {"rng": generator_state(self.actor.rng)}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self.actor.rng, state["rng"])

    def recipe(self) -> Recipe:
        return self.shipping.recipe(CollectMode)

    def weights(self) -> Mapping[str, Array]:
        return self.shipping.weights()


@dataclasses.dataclass(frozen=True, slots=True)
class LearnMode:
    """All gradient steps of one iteration in one compiled call."""

    forward: Callable[..., dict[str, float]]
    """(batch, progress=0.0) -> metrics; `progress` in [0, 1] drives schedules."""
    fields: Mapping[str, Field]
    """The rows that `forward` reads."""


@dataclasses.dataclass(frozen=True, slots=True)
class EvalMode:
    """Acts without exploration, in the environment's units."""

    name: ClassVar[str] = "eval"
    actor: Actor
    shipping: Shipping

    def forward(self, obs: Obs) -> Array:
        return self.actor.act(obs)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self.actor.reset(env_ids)

    def recipe(self) -> Recipe:
        return self.shipping.recipe(EvalMode)

    def weights(self) -> Mapping[str, Array]:
        return self.shipping.weights()
