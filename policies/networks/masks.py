"""Masks: the score of an illegal action is replaced by a number so low that the action is never chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers as numpy_forms


class ActionMask(nn.Cell):
    """Logits or values ``(B, A)``, replaced by `ILLEGAL` where the observation's mask forbids the action (Huang and
    Ontanon, 2020, https://arxiv.org/abs/2006.14171, section 3); no gradient flows to the scores of illegal actions.

    Args:
      place: index of the mask among the leaves of the observation.
    """

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place
        self.illegal = ms.Tensor(np.float32(numpy_forms.ILLEGAL))

    def construct(self, scores, leaves):
        return ops.select(ops.cast(leaves[self.place], ms.bool_), scores, self.illegal)

    def host(self) -> numpy_forms.ActionMask:
        return numpy_forms.ActionMask(self.place)


def action_mask(space: Mapping[str, Any]) -> ActionMask | None:
    """The mask cell for an observation space (see `envs.describe_env`); None if the space has no mask."""
    places = [k for k, leaf in enumerate(observation_leaves(space)) if leaf.is_mask]
    return ActionMask(places[0]) if places else None
