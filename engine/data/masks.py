"""Action masks: the legal actions, as a part of the observation to which they belong.

A mask is bool ``(..., A)``: A actions of a Discrete space, or the joined choices of a MultiDiscrete one, each of which
has `counts` entries. It is the entry `ACTION_MASK` of an observation; an observation that was not a dict becomes the
entry `OBSERVATION` (PettingZoo's names).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.types import Array, Obs, ObsLike

ACTION_MASK = "action_mask"
LEGAL_ACTION = "legal_action"
"""KaiWu's name of the mask; it is not read."""
OBSERVATION = "observation"


def first_entries(counts: Sequence[int]) -> list[int]:
    """The index of the first entry of each choice in a mask."""
    return [0, *np.cumsum(counts).tolist()[:-1]]


def without_legal(mask: Array, counts: Sequence[int]) -> Array:
    """Bool ``(...)``, true where a choice has no legal entry; mask: bool ``(..., A)``."""
    if len(counts) == 1:
        some: Array = mask.any(axis=-1)
    else:
        some = np.logical_or.reduceat(mask, first_entries(counts), axis=-1).all(axis=-1)
    return ~some


def random_legal(mask: Array, counts: Sequence[int], rng: np.random.Generator) -> Array:
    """Draws every legal entry of a choice with the same probability.

    Args:
      mask: bool ``(..., A)``; where a choice has no legal entry, its first one is returned.

    Returns:
      int64 ``(...)`` for one choice, ``(..., K)`` for K.
    """
    drawn = []
    for start, count in zip(first_entries(counts), counts):
        seen = mask[..., start : start + count].cumsum(axis=-1)
        rank = np.floor(rng.random(mask.shape[:-1]) * seen[..., -1])
        action = (seen <= rank[..., None]).sum(axis=-1)
        drawn.append(np.where(seen[..., -1] > 0, action, 0))
    return drawn[0] if len(counts) == 1 else np.stack(drawn, axis=-1)


def with_mask(obs: Any, mask: Any) -> dict[str, Any]:
    """An observation with its mask: a dict gets one more entry, anything else becomes the entry `OBSERVATION`."""
    return {**(obs if isinstance(obs, Mapping) else {OBSERVATION: obs}), ACTION_MASK: mask}


def masked_obs(obs: ObsLike, mask: Array, paths: Collection[str]) -> Obs:
    """Returns the observation that a policy with masks expects, from an observation and its mask.

    Args:
      obs: ``(N, ...)``, as the environment gives it.
      mask: bool ``(N, A)``.
    """
    leaves = obs_trees.named(obs)
    if not leaves.keys() <= set(paths):
        leaves = {f"{OBSERVATION}.{path}" if path else OBSERVATION: leaf for path, leaf in leaves.items()}
    masked: Obs = obs_trees.unflatten({**leaves, ACTION_MASK: np.asarray(mask)})
    return masked
