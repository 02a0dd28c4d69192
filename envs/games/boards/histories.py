"""Rules of games that other packages play one at a time; a state is the history of actions."""

from collections import OrderedDict
from typing import Any, Protocol

import numpy as np

from minding.engine.errors import ConfigError, GameError
from minding.engine.types import Array, State

_MOST_PLIES = 10_000
_HELD = 8192
"""Positions that are kept as objects of the package."""


class Package(Protocol):
    """A game of another package. Its positions are objects that are never modified."""

    name: str
    actions: int

    def initial(self) -> Any:
        """The initial position."""

    def after(self, position: Any, action: int) -> Any:
        """A new position."""

    def player(self, position: Any) -> int | None:
        """The player to move, 0 or 1; None if the game is over."""

    def legal(self, position: Any) -> Array:
        """The legal actions, bool ``(A,)``; none if the game is over."""

    def outcome(self, position: Any, player: int) -> float:
        """Positive if the player has won, negative if he has lost, 0 for a draw; the game is over."""

    def planes(self, position: Any, player: int) -> Array:
        """The network's input from the view of a player, float32 ``(C, H, W)``."""


class HistoryGame:
    """The rules of a game of another package, as `engine.types.BoardGame`.

    A state is ``(history,)``, the actions so far, integers ``(n, longest)``, with -1 for plies to come. Positions are
    rebuilt from it: the package's objects for the latest of them are kept and are not part of a state, so checkpoints
    and lanes hold numbers only.

    Args:
      package: the game.
      longest: most plies; a game that is not over by then is a draw.
    Raises:
      ConfigError: `longest` is out of range.
    """

    def __init__(self, package: Package, longest: int) -> None:
        if isinstance(longest, bool) or not isinstance(longest, int) or not 1 <= longest <= _MOST_PLIES:
            raise ConfigError(
                f"longest={longest!r}: expected the plies after which {package.name} is a draw, an integer from 1 to "
                f"{_MOST_PLIES:,}: set env.env_kwargs.longest"
            )
        self.actions, self.longest = package.actions, longest
        self._package = package
        self._held: OrderedDict[bytes, Any] = OrderedDict()
        self._dtype = np.dtype(np.int16 if package.actions < np.iinfo(np.int16).max else np.int32)
        self._first = 0
        self._first = self._mover(package.initial(), 0)

    def initial(self, n: int) -> State:
        return (np.full((n, self.longest), -1, self._dtype),)

    def legal(self, state: State) -> Array:
        legal = [self._package.legal(self._position(each)) for each in _played(state)]
        return np.array(legal, bool).reshape(-1, self.actions)

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        history, n = state[0].copy(), len(action)
        over, outcome = np.zeros(n, bool), np.zeros(n, np.int8)
        for row, before in enumerate(_played(state)):
            ply = len(before)
            history[row, ply] = action[row]
            position = self._position(history[row, : ply + 1])
            if self._package.player(position) is None:
                over[row] = True
                outcome[row] = np.sign(self._package.outcome(position, self._turn(ply + 1)))
            else:
                over[row] = ply + 1 == self.longest
                self._mover(position, ply + 1)
        return (history,), over, outcome

    def planes(self, state: State) -> Array:
        seen = [self._package.planes(self._position(each), self._turn(len(each))) for each in _played(state)]
        return np.stack(seen).astype(np.float32, copy=False)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The given position: the packages do not tell symmetries."""
        return [(planes, policy)]

    def _turn(self, ply: int) -> int:
        return (self._first + ply) % 2

    def _mover(self, position: Any, ply: int) -> int:
        player = self._package.player(position)
        if ply and player != self._turn(ply):
            raise GameError(
                f"{self._package.name}: the same player moves again after ply {ply}; expected players that alternate: "
                "let the other player pass, see docs/games.md"
            )
        assert player is not None
        return player

    def _position(self, played: Array) -> Any:
        """The position after these actions; replays them from the latest position that is kept."""
        known = len(played)
        while known and played[:known].tobytes() not in self._held:
            known -= 1
        position = self._held[played[:known].tobytes()] if known else self._package.initial()
        if known:
            self._held.move_to_end(played[:known].tobytes())
        for ply in range(known, len(played)):
            position = self._package.after(position, int(played[ply]))
            self._held[played[: ply + 1].tobytes()] = position
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return position


def _played(state: State) -> list[Array]:
    """The actions of each game so far."""
    history = state[0]
    return [row[:plies] for row, plies in zip(history, (history >= 0).sum(axis=1))]
