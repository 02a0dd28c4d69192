"""The rules of Breakthrough: two rows of pieces on each side; the first piece on the opposite row wins."""

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.types import Array, State

ROWS = COLUMNS = 8
_MOST = 26
_DIRECTIONS = 3


class Breakthrough:
    """Breakthrough. Pieces move one square forward or diagonally forward, and capture diagonally only.

    Action ``3 * square + direction`` moves the piece on a square: direction 0 to the left, 1 straight, 2 to the right.
    Squares are numbered row by row from the view of the player to move, whose pieces move up; for the second player,
    row 0 is the lowest row. A player who has lost all pieces has lost. There is always a legal action.

    A state is ``(board, second)``: int8 ``(n, R, C)``, 1 for a piece of the player to move and -1 for one of the
    opponent, with the first player's side at the bottom; and bool ``(n,)``, whether the second player moves next.
    Planes, from the view of the player to move: own pieces, the opponent's pieces, ``(n, 2, R, C)``.
    """

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        for name, given, least in (("rows", rows, 4), ("columns", columns, 2)):
            if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= _MOST:
                raise ConfigError(f"{name}={given!r}: expected an integer from {least} to {_MOST}")
        self.rows, self.columns = rows, columns
        self.actions = rows * columns * _DIRECTIONS
        # Each ply moves one of the pieces on, which can move rows - 1 or rows - 2 times.
        self.longest = 2 * columns * (2 * rows - 3)

    def initial(self, n: int) -> State:
        board = np.zeros((n, self.rows, self.columns), np.int8)
        board[:, :2], board[:, -2:] = -1, 1
        return board, np.zeros(n, bool)

    def legal(self, state: State) -> Array:
        board = _viewed(*state)
        own, empty = board == 1, board == 0
        legal = np.zeros((*board.shape, _DIRECTIONS), bool)
        legal[:, 1:, :, 1] = own[:, 1:] & empty[:, :-1]
        legal[:, 1:, 1:, 0] = own[:, 1:, 1:] & ~own[:, :-1, :-1]
        legal[:, 1:, :-1, 2] = own[:, 1:, :-1] & ~own[:, :-1, 1:]
        return legal.reshape(len(board), -1)

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        board, games = _viewed(*state).copy(), np.arange(len(action))
        square, direction = np.divmod(action, _DIRECTIONS)
        y, x = np.divmod(square, self.columns)
        board[games, y, x] = 0
        board[games, y - 1, x + direction - 1] = 1
        won = (y == 1) | ~(board == -1).any(axis=(1, 2))
        second = state[1]
        return (-_viewed(board, second), ~second), won, -won.astype(np.int8)

    def planes(self, state: State) -> Array:
        board = _viewed(*state)
        return np.stack([board == 1, board == -1], axis=1).astype(np.float32)

    def stones(self, state: State) -> Array:
        return state[0]

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The position and its mirror image."""
        moves = policy.reshape(-1, self.rows, self.columns, _DIRECTIONS)[:, :, ::-1, ::-1]
        return [(planes, policy), (planes[..., ::-1].copy(), np.ascontiguousarray(moves).reshape(policy.shape))]


def _viewed(board: Array, second: Array) -> Array:
    """The boards with the row 0 of the second player at the bottom; its own inverse."""
    return np.where(second[:, None, None], board[:, ::-1], board)
