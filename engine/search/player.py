"""A player that searches with an evaluator, such as a network; it is also an `Opponent`."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np

from minding.engine.search.gumbel import GumbelOptions, gumbel
from minding.engine.search.puct import PuctOptions, puct
from minding.engine.search.tree import Evaluate, Found
from minding.engine.types import Array, BoardGame, State

Options: TypeAlias = PuctOptions | GumbelOptions
"""Settings of a search with an evaluator; their class determines the search."""


def search(game: BoardGame, state: State, evaluate: Evaluate, options: Options, rng: np.random.Generator) -> Found:
    """Searches n positions by `puct` or `gumbel`, depending on the options."""
    if isinstance(options, PuctOptions):
        return puct(game, state, evaluate, options, rng)
    return gumbel(game, state, evaluate, options, rng)


@dataclasses.dataclass(frozen=True)
class SearchPlayer:
    """Plays the best action of a search; without noise in the options, always the same action.

    Attributes:
      evaluate: judges positions.
      options: settings of the search; None: no search, and the action of the highest logit.
      name: its name in tables.
    """

    evaluate: Evaluate
    options: Options | None
    name: str = "agent"

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        if self.options is not None:
            return search(game, state, self.evaluate, self.options, rng).best
        logits, _ = self.evaluate(state)
        action: Array = np.where(game.legal(state), logits, -np.inf).argmax(axis=1)
        return action
