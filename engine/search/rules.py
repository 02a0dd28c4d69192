"""A check of rules by random games, which finds a mistake where it is, before search or learning meets it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from minding.engine.errors import GameError
from minding.engine.search.uct import random_legal
from minding.engine.types import Array, BoardGame, State

_GAMES = 6


def check_rules(game: BoardGame, seed: int = 0) -> None:
    """Plays a few random games and checks everything that the rules return.

    Raises:
      GameError: if something is not as `BoardGame` says; names the method and the ply.
    """
    checker = _Checker(game)
    state, rng = checker.initial(), np.random.default_rng(seed)
    for ply in range(1, game.longest + 1):
        checker.ply = ply
        checker.legal(state)
        checker.planes(state)
        state, over = checker.play(state, random_legal(game, state, rng))
        state = tuple(part[~over] for part in state)
        if over.all():
            return
    checker.fail("longest", f"expected the most plies of a game, and a random game runs after {game.longest}")


class _Checker:
    def __init__(self, game: BoardGame) -> None:
        self.game, self.ply = game, 0
        for name in ("actions", "longest"):
            number = getattr(game, name, None)
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 1:
                self.fail(name, f"expected an integer of at least 1, and it is {number!r}")

    def fail(self, method: str, problem: str) -> NoReturn:
        where = f", ply {self.ply} of a random game" if self.ply else ""
        raise GameError(f"{type(self.game).__name__}.{method}: {problem}{where}")

    def initial(self) -> State:
        state = self.game.initial(_GAMES)
        self._form = [] if not isinstance(state, tuple) else [(np.shape(x)[1:], np.asarray(x).dtype) for x in state]
        self._state("initial", state, _GAMES)
        return state

    def legal(self, state: State) -> None:
        n = len(state[0])
        legal = self.game.legal(state)
        self._array("legal", legal, (n, self.game.actions), "bool")
        if not legal.any(axis=1).all():
            self.fail("legal", "expected at least one legal action while a game runs, and there is none")

    def planes(self, state: State) -> None:
        n, A = len(state[0]), self.game.actions
        planes = self.game.planes(state)
        if np.ndim(planes) != 4:
            self.fail("planes", f"expected an array (n, C, H, W), and its shape is {np.shape(planes)}")
        self._array("planes", planes, (n, *planes.shape[1:]), "float32")
        if not (planes.min() >= 0 and planes.max() <= 1):
            self.fail("planes", f"expected numbers in [0, 1], and they reach from {planes.min()} to {planes.max()}")
        numbers = np.tile(np.arange(A, dtype=np.float32), (n, 1))
        pairs = self.game.symmetries(planes, numbers)
        if not isinstance(pairs, list) or not pairs or any(len(pair) != 2 for pair in pairs):
            self.fail("symmetries", "expected a list of pairs (planes, policy), first the given one")
        for image, policy in pairs:
            self._array("symmetries", image, planes.shape, "float32")
            self._array("symmetries", policy, numbers.shape, "float32")
            if not np.array_equal(np.sort(policy, axis=1), numbers):
                self.fail("symmetries", "expected the policy's numbers in another order, and they differ")
        if not np.array_equal(pairs[0][0], planes) or not np.array_equal(pairs[0][1], numbers):
            self.fail("symmetries", "expected the given planes and policy as the first pair")

    def play(self, state: State, action: Array) -> tuple[State, Array]:
        n, before = len(state[0]), tuple(part.copy() for part in state)
        answer = self.game.play(state, action)
        if not isinstance(answer, tuple) or len(answer) != 3:
            self.fail("play", "expected (next state, over, outcome)")
        after, over, outcome = answer
        self._state("play", after, n)
        self._array("play", over, (n,), "bool")
        if np.shape(outcome) != (n,) or not np.isin(outcome, (-1, 0, 1)).all():
            self.fail("play", f"expected outcomes ({n},) of -1, 0 and 1, and they are {outcome}")
        if np.asarray(outcome)[~over].any():
            self.fail("play", "expected the outcome 0 while a game runs")
        if not all(np.array_equal(a, b) for a, b in zip(state, before)):
            self.fail("play", "it wrote to the state that it was given; change a copy")
        alone, *told = self.game.play(tuple(part[:1] for part in before), action[:1])
        same = [np.array_equal(a, b[:1]) for a, b in zip((*alone, *told), (*after, over, outcome))]
        if not all(same):
            self.fail("play", "a game is played differently alone and among others")
        return after, over

    def _state(self, method: str, state: Any, n: int) -> None:
        if not isinstance(state, tuple) or not state:
            self.fail(method, f"expected a state that is a tuple of arrays, and it is a {type(state).__name__}")
        if len(state) != len(self._form):
            self.fail(method, f"expected {len(self._form)} arrays as `initial` returns, and there are {len(state)}")
        for k, (part, (shape, dtype)) in enumerate(zip(state, self._form)):
            self._array(method, part, (n, *shape), str(dtype), f"array {k} of the state")

    def _array(self, method: str, array: Any, shape: tuple[int, ...], dtype: str, what: str = "") -> None:
        given = np.asarray(array)
        if isinstance(array, np.ndarray) and given.shape == shape and given.dtype == dtype:
            return
        name, kind = (f"{what} of " if what else ""), type(array).__name__
        expected = f"expected {name}shape {shape} and dtype {dtype}"
        self.fail(method, f"{expected}, and it has shape {given.shape} and dtype {given.dtype} ({kind})")
