"""The rules of Tic-Tac-Toe: three in a row on 3 x 3 squares."""

import numpy as np

from minding.engine.types import Array, State
from minding.envs.games.boards import square_symmetries

_SQUARES = np.arange(9)
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_FULL = 0b111_111_111
_STONES = (np.arange(_FULL + 1)[:, None] >> _SQUARES & 1).astype(bool)
"""The squares of each set of stones, bool (512, 9)."""
_WON = np.any([_STONES[:, line].all(axis=1) for line in _LINES], axis=0)
"""Whether a set of stones holds a line, bool (512,)."""


class TicTacToe:
    """Tic-Tac-Toe. Action k marks square k; squares are numbered row by row.

    A state is ``(own, other)``, each int16 ``(n,)``: the squares of the player to move and of the opponent, bit k for
    square k. Planes: own marks, the opponent's marks, ``(n, 2, 3, 3)``.
    """

    actions = 9
    longest = 9

    def initial(self, n: int) -> State:
        return np.zeros(n, np.int16), np.zeros(n, np.int16)

    def legal(self, state: State) -> Array:
        own, other = state
        return ~_STONES[own | other]

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        own, other = state
        own = own | np.left_shift(1, action).astype(np.int16)
        won = _WON[own]
        return (other, own), won | ((own | other) == _FULL), -won.astype(np.int8)

    def planes(self, state: State) -> Array:
        own, other = state
        return np.stack([_STONES[own], _STONES[other]], axis=1).reshape(-1, 2, 3, 3).astype(np.float32)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The eight symmetries of the square: four rotations, each also mirrored."""
        return square_symmetries(planes, policy)
