"""Rules of board games: the stones to draw, and a check by random games, which finds a mistake at its source."""

import multiprocessing
import warnings
import weakref
from typing import Any, NoReturn

import numpy as np

from minding.engine.errors import GameError
from minding.engine.search.puct import random_legal
from minding.engine.types import Array, BoardGame, State, is_savable

_GAMES = 6
_MOST_ACTIONS, _MOST_PLIES = 100_000, 10_000
"""Games that are played side by side hold the policies of all their plies."""
_warned: weakref.WeakSet[type] = weakref.WeakSet()
"""The classes of rules that this process has warned of: a run makes several environments."""


class RulesWarning(UserWarning):
    """Rules that are valid, but are probably a mistake."""


def stones_of(game: BoardGame, state: State) -> Array | None:
    """The stones on n boards, from the view of the player to move: int8 ``(n, H, W)``, 1 for his own, -1 for the
    opponent's, 0 for an empty square. Rules say this in their method ``stones(state)``; without it, two planes of zeros
    and ones that do not overlap are the stones of both, and other planes give None."""
    own: Any = getattr(game, "stones", None)
    if own is not None:
        stones: Array = own(state)
        return stones
    planes = game.planes(state)
    if planes.shape[1] != 2 or not np.isin(planes, (0, 1)).all() or planes.all(axis=1).any():
        return None
    return planes[:, 0].astype(np.int8) - planes[:, 1].astype(np.int8)


def check_rules(game: BoardGame, seed: int = 0) -> None:
    """Plays a few random games and checks everything that the rules return.

    Warns:
      RulesWarning: if no player ever won with a ply of their own, as in rules with the wrong sign; once per class.
    """
    checker = _Checker(game)
    state, rng = checker.initial(), np.random.default_rng(seed)
    for ply in range(1, game.longest + 1):
        checker.ply = ply
        checker.legal(state)
        checker.planes(state)
        checker.stones(state)
        state, over = checker.play(state, random_legal(game, state, rng))
        state = tuple(part[~over] for part in state)
        if over.all():
            checker.ply = 1
            checker.mirrored(game.initial(1))
            checker.winners()
            return
    checker.fail(
        "longest", f"expected the most plies that a game can have, but a random game continues after {game.longest}"
    )


def _copied(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(array.copy() for array in arrays)


class _Checker:
    def __init__(self, game: BoardGame) -> None:
        self.game, self.ply = game, 0
        self._ends: list[Array] = []
        for name in ("initial", "legal", "play", "planes", "symmetries"):
            if not callable(getattr(game, name, None)):
                self.fail(name, "expected a method, see minding.engine.types.BoardGame")
        for name, most in (("actions", _MOST_ACTIONS), ("longest", _MOST_PLIES)):
            number = getattr(game, name, None)
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 1 <= number <= most:
                self.fail(name, f"expected an integer from 1 to {most:,}, and it is {number!r:.80}")

    def fail(self, method: str, problem: str) -> NoReturn:
        where = f", ply {self.ply} of a random game" if self.ply else ""
        raise GameError(f"{type(self.game).__name__}.{method}: {problem}{where}")

    def initial(self) -> State:
        state = self.game.initial(_GAMES)
        self._form = [] if not isinstance(state, tuple) else [(np.shape(x)[1:], np.asarray(x).dtype) for x in state]
        for k, (_, dtype) in enumerate(self._form):
            if not is_savable(dtype):
                self.fail(
                    "initial",
                    f"array {k} of the state has dtype {dtype}, which checkpoints cannot hold: expected bool, or "
                    "integers or floats of at most 64 bits",
                )
        self._state("initial", state, _GAMES)
        return state

    def legal(self, state: State) -> None:
        n, before = len(state[0]), _copied(state)
        legal = self.game.legal(state)
        self._untouched("legal", state, before)
        self._array("legal", legal, (n, self.game.actions), "bool")
        if not legal.any(axis=1).all():
            self.fail("legal", "expected at least one legal action until the game is over, got none")

    def planes(self, state: State) -> None:
        n, A, before = len(state[0]), self.game.actions, _copied(state)
        planes = self.game.planes(state)
        self._untouched("planes", state, before)
        if np.ndim(planes) != 4:
            self.fail("planes", f"expected an array (n, C, H, W), and its shape is {np.shape(planes)}")
        self._array("planes", planes, (n, *planes.shape[1:]), "float32")
        if not (planes.min() >= 0 and planes.max() <= 1):
            self.fail("planes", f"expected numbers in [0, 1], and they reach from {planes.min()} to {planes.max()}")
        numbers = np.tile(np.arange(A, dtype=np.float32), (n, 1))
        given = _copied((planes, numbers))
        pairs = self.game.symmetries(planes, numbers)
        self._untouched("symmetries", (planes, numbers), given)
        if not isinstance(pairs, list) or not pairs or any(len(pair) != 2 for pair in pairs):
            self.fail("symmetries", "expected a list of pairs (planes, policy), first the given one")
        for image, policy in pairs:
            self._array("symmetries", image, planes.shape, "float32")
            self._array("symmetries", policy, numbers.shape, "float32")
            if not np.array_equal(np.sort(policy, axis=1), numbers):
                self.fail("symmetries", "expected the policy's numbers in another order, and they differ")
        if not np.array_equal(pairs[0][0], planes) or not np.array_equal(pairs[0][1], numbers):
            self.fail("symmetries", "expected the given planes and policy as the first pair")

    def stones(self, state: State) -> None:
        if not hasattr(self.game, "stones"):
            return
        n, before = len(state[0]), _copied(state)
        stones = self.game.stones(state)
        self._untouched("stones", state, before)
        self._array("stones", stones, (n, *np.shape(stones)[1:]), "int8")
        if stones.ndim != 3 or not np.isin(stones, (-1, 0, 1)).all():
            self.fail("stones", f"expected an array (n, H, W) of -1, 0 and 1, and its shape is {stones.shape}")

    def mirrored(self, first: State) -> None:
        """Checks that a first ply and its mirror image lead to positions that mirror each other."""
        legal, numbers = self.game.legal(first)[0], np.arange(self.game.actions, dtype=np.float32)[None]
        begun = self.game.planes(first)
        for action in np.flatnonzero(legal):
            after = self.game.planes(self.game.play(first, np.array([action]))[0])
            images = zip(self.game.symmetries(begun, numbers), self.game.symmetries(after, numbers))
            for k, ((before, policy), (image, _)) in enumerate(images):
                # On a board that equals its mirror image, the action at the mirrored place of this action.
                twin = int(np.flatnonzero(policy[0] == action)[0])
                if not np.array_equal(before, begun) or not legal[twin]:
                    continue
                if not np.array_equal(self.game.planes(self.game.play(first, np.array([twin]))[0]), image):
                    self.fail(
                        "symmetries",
                        f"form {k} mirrors the board and the policy differently: it makes action {action} of the "
                        f"initial position action {twin}, which leads to another position than its planes show",
                    )

    def winners(self) -> None:
        """Warns if outcomes may have the wrong sign, which only the author of the rules can tell."""
        outcomes, rules = np.concatenate(self._ends), type(self.game)
        if rules in _warned or multiprocessing.parent_process() is not None:
            return  # Workers have the rules of the process that started them.
        if (outcomes == 1).any() and not (outcomes == -1).any():
            _warned.add(rules)
            warnings.warn(
                f"{rules.__name__}.play: in {(outcomes == 1).sum()} of {len(outcomes)} random games the "
                "player of the last ply lost, and none won. The outcome is meant for the player to move next: a ply "
                "that wins has the outcome -1",
                RulesWarning,
                stacklevel=3,
            )

    def play(self, state: State, action: Array) -> tuple[State, Array]:
        n, before, played = len(state[0]), _copied(state), action.copy()
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
        self._untouched("play", (*state, action), (*before, played))
        self._ends.append(np.asarray(outcome)[over])
        alone, *ends = self.game.play(tuple(part[:1] for part in before), action[:1])
        same = [np.array_equal(a, b[:1]) for a, b in zip((*alone, *ends), (*after, over, outcome))]
        if not all(same):
            self.fail("play", "a game is played differently alone and among others")
        return after, over

    def _untouched(self, method: str, arrays: tuple[Array, ...], before: tuple[Array, ...]) -> None:
        if not all(np.array_equal(a, b) for a, b in zip(arrays, before)):
            self.fail(method, "it wrote to the arrays that it was given; change copies")

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
