"""The outcome of small board games under perfect play, by enumeration of all positions."""

from typing import NamedTuple

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.types import Array, BoardGame, State

LIMIT = 1_000_000
"""Maximum number of positions that are enumerated."""


class _Level(NamedTuple):
    """All different positions after some number of plies, and the positions to which their actions lead."""

    keys: Array
    legal: Array
    """The legal actions, bool ``(n, A)``."""
    outcome: Array
    """The outcomes of actions that end the game, for the player who moves, float64 ``(n, A)``."""
    following: Array
    """Rows of the resulting positions in the next level, int64 ``(n, A)``; -1 at the end and for illegal actions."""


class Solution:
    """Values of positions under perfect play of both players, and the actions that reach them.

    A position is enumerated, together with all that can follow, when its value is first requested; equal positions are
    enumerated once.

    Args:
      game: the rules.
    """

    def __init__(self, game: BoardGame) -> None:
        self.game = game
        self._known: dict[bytes, tuple[float, Array]] = {}

    def value(self, state: State) -> Array:
        """The outcome for the player to move, 1, 0 or -1, float64 ``(n,)``."""
        return np.array([self._known[key][0] for key in self._solve(state)])

    def optimal(self, state: State) -> Array:
        """The actions with that outcome, bool ``(n, A)``."""
        return np.array([self._known[key][1] for key in self._solve(state)])

    def _solve(self, state: State) -> list[bytes]:
        keys = [bytes(key) for key in _keys(state)]
        missing = [row for row, key in enumerate(keys) if key not in self._known]
        if missing:
            self._fold(self._enumerate(tuple(part[missing] for part in state)))
        return keys

    def _enumerate(self, state: State) -> list[_Level]:
        levels: list[_Level] = []
        count = 0
        keys, first = np.unique(_keys(state), return_index=True)
        state = tuple(part[first] for part in state)
        while True:
            count += len(keys)
            if count > LIMIT:
                raise ConfigError(
                    f"minimax enumerates all positions, and {type(self.game).__name__} has more than {LIMIT:,} that "
                    "can follow; play against uct:SIMULATIONS instead"
                )
            legal = self.game.legal(state)
            rows, actions = np.nonzero(legal)
            after, over, ended = self.game.play(tuple(part[rows] for part in state), actions)
            outcome, following = np.zeros(legal.shape), np.full(legal.shape, -1)
            outcome[rows, actions] = -ended.astype(np.float64)
            levels.append(_Level(keys, legal, outcome, following))
            if over.all():
                return levels
            running = ~over
            after = tuple(part[running] for part in after)
            keys, first, place = np.unique(_keys(after), return_index=True, return_inverse=True)
            following[rows[running], actions[running]] = place.reshape(-1)
            state = tuple(part[first] for part in after)

    def _fold(self, levels: list[_Level]) -> None:
        """Finds the values from the last level to the first."""
        below = np.zeros(0)
        for level in reversed(levels):
            # An index of -1 in `following` reads the additional 0.
            worth = np.where(level.following >= 0, -np.append(below, 0.0)[level.following], level.outcome)
            worth = np.where(level.legal, worth, -np.inf)
            below = worth.max(axis=1)
            optimal = worth == below[:, None]
            for key, value, best in zip(level.keys, below.tolist(), optimal):
                self._known[bytes(key)] = value, best


def _keys(state: State) -> Array:
    """The bytes of each row of all parts, ``(n,)``."""
    n = len(state[0])
    parts = [np.ascontiguousarray(part).reshape(n, -1).view(np.uint8).reshape(n, -1) for part in state]
    joined = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return joined.view(np.dtype((np.void, joined.shape[1]))).reshape(n)
