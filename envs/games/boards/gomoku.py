"""The rules of Gomoku: five or more in a row on a square board of any size."""

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.types import Array, State
from minding.envs.games.boards import square_symmetries

LINE = 5
SIZE = 15
_MOST = 99
_STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))


class Gomoku:
    """Gomoku without restrictions: longer lines win, too. Action k marks square k; squares are numbered row by row.

    A state is ``(board,)``, int8 ``(n, S, S)``: 1 for a stone of the player to move, -1 for one of the opponent.
    Planes: own stones, the opponent's stones, ``(n, 2, S, S)``.
    """

    def __init__(self, size: int = SIZE) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or not LINE <= size <= _MOST:
            raise ConfigError(f"size={size!r}: expected the squares per side, an integer from {LINE} to {_MOST}")
        self.size, self.actions, self.longest = size, size * size, size * size
        self._width = size + 2 * (LINE - 1)
        reach = np.arange(1 - LINE, LINE)
        # The squares around a stone that a line through it can have, in the padded and flattened board.
        self._around = np.array([(dy * self._width + dx) * reach for dy, dx in _STEPS])

    def initial(self, n: int) -> State:
        return (np.zeros((n, self.size, self.size), np.int8),)

    def legal(self, state: State) -> Array:
        legal: Array = (state[0] == 0).reshape(len(state[0]), -1)
        return legal

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        board, rows = state[0].copy(), np.arange(len(action))
        y, x = np.divmod(action, self.size)
        board[rows, y, x] = 1
        edge = LINE - 1
        padded = np.pad(board == 1, ((0, 0), (edge, edge), (edge, edge))).reshape(len(board), -1)
        near = padded[rows[:, None, None], ((y + edge) * self._width + x + edge)[:, None, None] + self._around]
        won = np.lib.stride_tricks.sliding_window_view(near, LINE, axis=-1).all(axis=-1).any(axis=(1, 2))
        return (-board,), won | board.all(axis=(1, 2)), -won.astype(np.int8)

    def planes(self, state: State) -> Array:
        return np.stack([state[0] == 1, state[0] == -1], axis=1).astype(np.float32)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The eight symmetries of the square."""
        return square_symmetries(planes, policy)
