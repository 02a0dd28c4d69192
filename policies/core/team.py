"""The base of policies whose rows are transitions of a whole team of agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minding.engine.data.agents import ALIVE
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.networks.encoder import Normalizer
from minding.policies.networks.team_agents import with_identity
from minding.policies.networks.team_rows import TeamPlaces, team_fields, team_places


class TeamPolicy(BasePolicy):
    """Learns for several agents from rows that hold all of them; the acting network is told the agent of each
    observation.

    A subclass defines the methods that `BasePolicy` leaves open, except `row_fields`.
    """

    @property
    def agents(self) -> int:
        """Number of agents, M."""
        return len(self.spec["agents"]["names"])

    @property
    def acting_spec(self) -> dict[str, Any]:
        """The description of the environment for actors, whose observation includes the agent number."""
        return {**self.spec, "observation": with_identity(self.spec["observation"], self.agents)}

    @property
    def acting_leaves(self) -> list[Leaf]:
        return observation_leaves(self.acting_spec["observation"])

    @property
    def places(self) -> TeamPlaces:
        """The places of the parts of the joint observation in rows."""
        return team_places(self.spec)

    def obs_fields(self, prefix: str) -> dict[str, Field]:
        """Row fields of the joint observation: the agents' leaves, which agents are present, and the state if learning
        uses it."""
        return {f"{prefix}.{path}": field for path, field in team_fields(self.spec).items()}

    @property
    def row_fields(self) -> dict[str, Field]:
        return {
            **self.obs_fields("obs"),
            **self.obs_fields("next_obs"),
            "action": self._of_each(self.action_field),
            "reward": Field(() if self.spec["agents"]["team_reward"] else (self.agents,)),
            "terminated": Field(),
        }

    def update_normalizers(
        self, batch: IndexedBatch, rows: Array, normalizers: Iterable[tuple[str, Normalizer]]
    ) -> None:
        """Adds the observations of present agents in these rows to the moments."""
        if not len(rows):
            return
        there = batch.layout.read(batch.tables.host, f"obs.{ALIVE}", rows)
        own = {leaf_name("obs", leaf) for leaf in self.leaves}
        for field, normalizer in normalizers:
            values = batch.layout.read(batch.tables.host, field, rows)
            values = values[there] if field in own else values
            normalizer.update(values.reshape(len(values), -1))

    def _of_each(self, field: Field) -> Field:
        """The field with an axis of agents, ``(M, ...)``."""
        return Field((self.agents, *field.shape), field.dtype)
