"""One recorded episode, the unit in which recorded data are read, checked and written."""

import dataclasses
from collections.abc import Mapping

from minding.engine.types import Array

RECORDED = "data"
"""The `env.env_id` of a run without an environment: spaces and limits are those of the recorded data."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """T steps of one episode.

    Attributes:
      obs: by path of the leaf, ``(T, ...)``: the observations that were acted on.
      final_obs: by path, ``(...)``: the observation after the last step.
      action: ``(T, ...)``, in the environment's units.
      reward: float32 ``(T,)``.
    """

    obs: Mapping[str, Array]
    final_obs: Mapping[str, Array]
    action: Array
    reward: Array
    terminated: bool
    truncated: bool

    def __len__(self) -> int:
        return len(self.action)
