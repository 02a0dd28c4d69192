"""The rules of Connect Four: four in a row on 6 x 7 squares, where stones fall to the bottom of their column."""

import numpy as np

from minding.engine.types import Array, State

ROWS, COLUMNS = 6, 7
_HEIGHT = ROWS + 1
"""Bits per column: its squares from the bottom up, and one bit that stays empty, so that lines do not wrap around."""
_BITS = np.array([[c * _HEIGHT + r for c in range(COLUMNS)] for r in reversed(range(ROWS))], np.uint64)
"""The bit of each square, by row (from the top) and column."""
_ONE = np.uint64(1)
_TOP, _BOTTOM = _ONE << _BITS[0], _ONE << _BITS[-1]
_COLUMN = np.bitwise_or.reduce(_ONE << _BITS, axis=0)
_FULL = np.bitwise_or.reduce(_COLUMN)
_STEP = np.array([[1], [_HEIGHT - 1], [_HEIGHT], [_HEIGHT + 1]], np.uint64)
"""Distance in bits from a square to its neighbor upwards, diagonally down, sideways, and diagonally up."""
_TWO_STEPS = _STEP + _STEP


class ConnectFour:
    """Connect Four. Action k drops a stone into column k, counted from the left.

    A state is ``(own, stones)``, each uint64 ``(n,)``: the squares with stones of the player to move, and with stones
    of either player. Planes: own stones, the opponent's stones, ``(n, 2, 6, 7)``, the top row first.
    """

    actions = COLUMNS
    longest = ROWS * COLUMNS

    def initial(self, n: int) -> State:
        return np.zeros(n, np.uint64), np.zeros(n, np.uint64)

    def legal(self, state: State) -> Array:
        return (state[1][:, None] & _TOP) == 0

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        own, stones = state
        # The carry of the addition runs through the stones of the column to its lowest empty square.
        filled = stones | ((stones + _BOTTOM[action]) & _COLUMN[action])
        other = own ^ stones
        won = _has_line(filled ^ other)
        return (other, filled), won | (filled == _FULL), -won.astype(np.int8)

    def planes(self, state: State) -> Array:
        own, stones = state
        both = np.stack([own, own ^ stones], axis=1)[:, :, None, None]
        return (both >> _BITS & _ONE).astype(np.float32)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The position and its mirror image."""
        return [(planes, policy), (planes[..., ::-1].copy(), policy[..., ::-1].copy())]


def _has_line(stones: Array) -> Array:
    """Whether there are four stones in a row, bool ``(n,)``."""
    pairs = stones >> _STEP
    pairs &= stones
    fours = pairs >> _TWO_STEPS
    fours &= pairs
    return fours.any(axis=0)
