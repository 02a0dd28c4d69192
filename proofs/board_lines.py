"""Every line of play against a deterministic player, enumerated: does it lose one?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minding.engine.search.opponents import Opponent, ask
from minding.engine.types import Array, BoardGame, State


class Lines(NamedTuple):
    """How the lines of play end, for the player."""

    won: int
    drawn: int
    lost: int

    def __add__(self, other: object) -> Lines:
        if not isinstance(other, Lines):
            return NotImplemented
        return Lines(self.won + other.won, self.drawn + other.drawn, self.lost + other.lost)


def lines_against(game: BoardGame, player: Opponent, first: bool) -> Lines:
    """Plays `player` against every possible sequence of replies.

    Args:
      game: the rules.
      player: asked for all positions of a ply at once; it draws nothing.
      first: whether it has the first ply.
    Returns:
      The number of lines that it wins, draws and loses.
    """
    rng = np.random.default_rng(0)
    state, ends = game.initial(1), Lines(0, 0, 0)
    for ply in range(game.longest):
        own = (ply % 2 == 0) == first
        count = len(state[0])
        if own:
            rows = np.arange(count)
            actions = ask(player, game, state, rng, np.full(count, ply), rows)
        else:
            rows, actions = np.nonzero(game.legal(state))
        state, over, outcome = game.play(_taken(state, rows), actions)
        # The outcome is that of the player to move next.
        results = outcome[over] if not own else -outcome[over]
        ends += Lines(int((results > 0).sum()), int((results == 0).sum()), int((results < 0).sum()))
        state = _taken(state, ~over)
        if not len(state[0]):
            break
    return ends


def _taken(state: State, rows: Array) -> State:
    return tuple(part[rows] for part in state)
