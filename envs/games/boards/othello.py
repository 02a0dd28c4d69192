"""The rules of Othello (Reversi): a stone turns over the lines of the opponent's stones that it encloses."""

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.types import Array, State
from minding.envs.games.boards import turned

SIZE = 8
_MOST = 26
_DIRECTIONS = tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
_SYMMETRIES = ((0, False), (2, False), (1, True), (3, True))
"""The rotations and mirror images that keep the initial position."""


class Othello:
    """Othello. Action k puts a stone on square k, numbered row by row; the last action, S * S, is a pass.

    A pass is legal only for a player without another action, so players always alternate. The game is over when neither
    player can put a stone, and the player with more stones has won. In the initial position, the player to move holds
    the two squares of the diagonal that rises to the right.

    A state is ``(board,)``, int8 ``(n, S, S)``: 1 for a stone of the player to move, -1 for one of the opponent.
    Planes: own stones, the opponent's stones, ``(n, 2, S, S)``.
    """

    def __init__(self, size: int = SIZE) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size % 2 or not 4 <= size <= _MOST:
            raise ConfigError(f"size={size!r}: expected the squares per side, an even integer from 4 to {_MOST}")
        self.size, self.actions = size, size * size + 1
        # No two passes follow each other.
        self.longest = 2 * (size * size - 4)

    def initial(self, n: int) -> State:
        board, half = np.zeros((n, self.size, self.size), np.int8), self.size // 2
        board[:, half - 1, half] = board[:, half, half - 1] = 1
        board[:, half - 1, half - 1] = board[:, half, half] = -1
        return (board,)

    def legal(self, state: State) -> Array:
        put = self._puts(state[0]).reshape(len(state[0]), -1)
        return np.concatenate([put, ~put.any(axis=1, keepdims=True)], axis=1)

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        board = state[0].copy()
        rows = np.flatnonzero(action < self.size * self.size)
        if rows.size:
            placed = np.zeros((len(rows), self.size, self.size), bool)
            placed.reshape(len(rows), -1)[np.arange(len(rows)), action[rows]] = True
            before = board[rows]
            own, other, gained = before == 1, before == -1, placed.copy()
            for step in _DIRECTIONS:
                enclosed = self._runs(placed, other, step)
                # A run is enclosed if one of the player's own stones follows its last stone.
                closed = (_shifted(enclosed, step) & own).any(axis=(1, 2))
                gained |= enclosed & closed[:, None, None]
            board[rows] = np.where(gained, 1, before)
        board = -board
        can = self._puts(board).any(axis=(1, 2)) | self._puts(-board).any(axis=(1, 2))
        lead = np.sign(board.sum(axis=(1, 2), dtype=np.int64))
        return (board,), ~can, np.where(can, 0, lead).astype(np.int8)

    def planes(self, state: State) -> Array:
        return np.stack([state[0] == 1, state[0] == -1], axis=1).astype(np.float32)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The four symmetries of the square that keep the initial position; a pass stays a pass."""
        board, forms = policy[:, :-1].reshape(-1, self.size, self.size), []
        for each in _SYMMETRIES:
            image, moved = turned(planes, board, *each)
            forms.append((image, np.concatenate([moved.reshape(len(policy), -1), policy[:, -1:]], axis=1)))
        return forms

    def _puts(self, board: Array) -> Array:
        """The squares on which the player with the stones 1 can put a stone."""
        own, other, empty = board == 1, board == -1, board == 0
        put = np.zeros_like(own)
        for step in _DIRECTIONS:
            put |= _shifted(self._runs(own, other, step), step) & empty
        return put

    def _runs(self, start: Array, other: Array, step: tuple[int, int]) -> Array:
        """The unbroken runs of the opponent's stones that begin next to a square of `start`."""
        runs = _shifted(start, step) & other
        for _ in range(self.size - 3):
            runs |= _shifted(runs, step) & other
        return runs


def _shifted(squares: Array, step: tuple[int, int]) -> Array:
    """Squares ``(n, S, S)`` moved by one square; what leaves the board is gone."""
    moved, size = np.zeros_like(squares), squares.shape[1]
    (y, x), (to_y, to_x) = ([slice(max(sign * d, 0), size + min(sign * d, 0)) for d in step] for sign in (-1, 1))
    moved[:, to_y, to_x] = squares[:, y, x]
    return moved
