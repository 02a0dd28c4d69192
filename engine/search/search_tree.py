"""Search trees of n games as arrays, which grow by one node per game and simulation.

Axes: n games, A actions, m nodes. Simulation k adds node ``k * n + i`` to game i; node i is the root of game i. Edge
``node * A + action`` leads from a node to its child. The value of a node, and of the edges that leave it, is the value
for the player who moves there.

The score of an action depends on its own node only. So the next action of a node is computed when the node changes, for
all nodes on the path of a simulation at once, and a descent only follows the stored actions.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minding.engine.errors import ConfigError, GameError, NonFiniteError, ShapeError
from minding.engine.types import Array, BoardGame, State

Evaluate: TypeAlias = Callable[[State], tuple[Array, Array]]
"""Judges n positions: logits ``(n, A)``, of which those of illegal actions are ignored, and values ``(n,)`` for the
player to move, in [-1, 1]."""
Leaves: TypeAlias = Callable[[State, Array], tuple[Array, Array]]
"""Like `Evaluate`, with a second argument, bool ``(n,)``: the positions to judge; the others are padding."""
Choose: TypeAlias = Callable[["Tree", Array], Array]
"""The action that each of m nodes takes next, int ``(m,)``."""
MOST_SIMULATIONS = 1_000_000
"""Maximum number of simulations: trees are stored whole, and larger ones would not fit in memory."""
MOST_WEIGHT = 1_000_000
"""Largest weight in the score of an action: the other terms would be lost beside a larger one."""
_LARGEST = 1.0 + 1e-3
"""Largest size of a value: outcomes are in [-1, 1], up to rounding."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The results of a search in n games.

    Attributes:
      visits: int64 ``(n, A)``, the number of simulations that began with each action; each row sums to all simulations.
      policy: float64 ``(n, A)``, the improved policy; 0 for illegal actions.
      value: float64 ``(n,)``, the outcome that the search expects for the player to move.
      best: int64 ``(n,)``, the action to play.
    """

    visits: Array
    policy: Array
    value: Array
    best: Array
    tree: Tree

    @property
    def prior(self) -> Array:
        """The policy before the search, float64 ``(n, A)``."""
        return self.tree.prior[: self.tree.games]

    @property
    def action_value(self) -> Array:
        """Mean value of each action, float64 ``(n, A)``; NaN for actions that no simulation took."""
        visits = self.visits.astype(np.float64)
        mean: Array = np.where(visits > 0, self.tree.total[: self.tree.games], np.nan) / np.maximum(visits, 1.0)
        return mean


class _Path(NamedTuple):
    """The edges from the roots to the leaves, level by level, starting at the roots with one per game."""

    edges: Array
    games: Array
    sizes: list[int]


class Tree:
    """Trees of n games.

    Attributes:
      state: positions of the nodes, arrays ``(nodes, ...)``.
      visits: float64 ``(nodes, A)``, simulations that took each edge.
      total: float64 ``(nodes, A)``, sum of their values; -inf for illegal actions, so that they are never chosen.
      logits: float64 ``(nodes, A)``, from the evaluator; -inf for illegal actions.
      prior: float64 ``(nodes, A)``, softmax of `logits`.
      value: float64 ``(nodes,)``, from the evaluator.
      reached: float64 ``(nodes,)``, 1 + the number of simulations that continued from a node.
      child: int64 ``(nodes * A,)``, node to which an edge leads; -1 if none is stored, as at the end of a game.
    """

    def __init__(self, game: BoardGame, state: State, simulations: int, logits: Array, values: Array) -> None:
        form = [] if not isinstance(state, tuple) else [(np.shape(x)[1:], np.asarray(x).dtype) for x in state]
        usual = [(x.shape[1:], x.dtype) for x in game.initial(1)]
        if form != usual:
            raise ShapeError(
                f"search: expected positions of {type(game).__name__}, a tuple of arrays of shapes and dtypes {usual} "
                f"per game, got {form or type(state).__name__}"
            )
        n, actions = len(state[0]), game.actions
        if n == 0:
            raise ShapeError("search: expected the positions of at least one game, but the state has no rows")
        self.games, self.actions, self.simulations, self._game = n, actions, simulations, game
        nodes = (simulations + 1) * n
        self.state = tuple(np.empty((nodes, *part.shape[1:]), part.dtype) for part in state)
        self.visits = np.zeros((nodes, actions))
        self.total = np.zeros((nodes, actions))
        self.logits = np.empty((nodes, actions))
        self.prior = np.empty((nodes, actions))
        self.value = np.zeros(nodes)
        self.reached = np.ones(nodes)
        self.child = np.full(nodes * actions, -1)
        self._next = np.zeros(nodes, np.int64)
        """The edge that each node takes next."""
        self._flat_visits, self._flat_total = self.visits.reshape(-1), self.total.reshape(-1)
        self._numbers = np.arange(n)
        self._leaf = np.zeros(n, np.int64)
        self._signs = np.where(np.arange(simulations + 1) % 2, -1.0, 1.0)
        self._store(0, state, np.ones(n, bool), logits, values)

    def grow(self, leaves: Leaves, choose: Choose, choose_root: Choose | None = None) -> None:
        roots, skipped = self._numbers, 0 if choose_root is None else self.games
        changed = roots[skipped:]
        for simulation in range(1, self.simulations + 1):
            self._decide(choose, changed)
            if choose_root is not None:
                self._decide(choose_root, roots)
            path = self._descend()
            value, new = self._expand(simulation, leaves)
            nodes = self._back_up(path, value)
            changed = np.concatenate([nodes[skipped:], new])

    def _decide(self, choose: Choose, nodes: Array) -> None:
        self._next[nodes] = nodes * self.actions + choose(self, nodes)

    def _descend(self) -> _Path:
        """Follows the stored actions from each root to an edge that leaves the tree; sets `_leaf` to these edges."""
        games = nodes = self._numbers
        edges, rows, sizes = [], [], []
        while True:
            edge = self._next.take(nodes)
            self._leaf[games] = edge
            edges.append(edge)
            rows.append(games)
            sizes.append(len(edge))
            child = self.child.take(edge)
            inside = np.flatnonzero(child >= 0)
            if not inside.size:
                return _Path(np.concatenate(edges), np.concatenate(rows), sizes)
            games, nodes = games.take(inside), child.take(inside)

    def _expand(self, simulation: int, leaves: Leaves) -> tuple[Array, Array]:
        """Plays the actions at the ends of the paths and stores the resulting positions, unless the game is over;
        returns the value of each position that was reached, ``(n,)``, and the new nodes."""
        parents, actions = np.divmod(self._leaf, self.actions)
        before = tuple(part.take(parents, axis=0) for part in self.state)
        state, over, outcome = self._game.play(before, actions)
        check_outcomes(self._game, over, outcome)
        asked = ~over
        running = np.flatnonzero(asked)
        if not running.size:
            return outcome.astype(np.float64), running
        if running.size < self.games:
            state = self._padded(state, over)
        logits, values = checked_answer(leaves(state, asked))
        self._store(simulation, state, asked, logits, values)
        new = running + simulation * self.games
        self.child[self._leaf.take(running)] = new
        return np.where(over, outcome, values), new

    def _padded(self, state: State, over: Array) -> State:
        """`state`, with the root's position in place of finished games, so that every row can be evaluated."""
        padded = []
        for part, stored in zip(state, self.state):
            part = part.copy()
            part[over] = stored[: self.games][over]
            padded.append(part)
        return tuple(padded)

    def _back_up(self, path: _Path, value: Array) -> Array:
        """Adds the values of the leaves to all edges on their paths; returns the nodes on the paths."""
        edges, games, sizes = path
        depth = np.bincount(games)
        for_first = np.where(depth % 2, -value, value)
        self._flat_total[edges] += for_first.take(games) * np.repeat(self._signs[: len(sizes)], sizes)
        self._flat_visits[edges] += 1.0
        nodes = edges // self.actions
        self.reached[nodes] += 1.0
        return nodes

    def _store(self, simulation: int, state: State, asked: Array, logits: Array, values: Array) -> None:
        """Stores the nodes of a simulation with their evaluation; rows of padding are never reached."""
        legal = self._game.legal(state)
        if not legal.any(axis=1).all():
            row = int(np.flatnonzero(~legal.any(axis=1))[0])
            raise GameError(
                f"{type(self._game).__name__}: game {row} is not over but has no legal action, in simulation "
                f"{simulation} of the search (0 is its root): `legal` must allow one until `play` ends the game"
            )
        self._check(simulation, legal, asked, logits, values)
        rows = slice(simulation * self.games, (simulation + 1) * self.games)
        for stored, part in zip(self.state, state):
            stored[rows] = part
        masked = np.where(legal, logits, -np.inf)
        self.logits[rows] = masked
        weights = np.exp(masked - masked.max(axis=1, keepdims=True))
        self.prior[rows] = weights / weights.sum(axis=1, keepdims=True)
        self.total[rows] = np.where(legal, 0.0, -np.inf)
        self.value[rows] = values

    def _check(self, simulation: int, legal: Array, asked: Array, logits: Array, values: Array) -> None:
        expected = (self.games, self.actions)
        if logits.shape != expected or values.shape != expected[:1]:
            raise ShapeError(
                f"evaluate: expected logits of shape {expected} and values of shape {expected[:1]}, but it returned "
                f"{logits.shape} and {values.shape}"
            )
        if np.isfinite(logits).all() and (np.abs(values) <= _LARGEST).all():
            return
        where = f"in simulation {simulation} of {self.simulations} (0 judges the roots)"
        wrong = np.argwhere(~np.isfinite(logits) & legal & asked[:, None])
        if len(wrong):
            row, action = wrong[0]
            raise NonFiniteError(
                f"evaluate: the logit of game {row}, action {action} is {logits[row, action]}, {where}"
            )
        bad = np.flatnonzero(~np.isfinite(values) & asked)
        if len(bad):
            raise NonFiniteError(f"evaluate: the value of game {bad[0]} is {values[bad[0]]}, {where}")
        large = np.flatnonzero((np.abs(values) > _LARGEST) & asked)
        if len(large):
            raise GameError(
                f"evaluate: the value of game {large[0]} is {values[large[0]]}, {where}; expected an outcome in [-1, 1]"
            )


def check_outcomes(game: BoardGame, over: Array, outcome: Array) -> None:
    """GameError unless the outcomes of games that are over are in [-1, 1]; NaN is none."""
    fine = np.abs(outcome) <= _LARGEST
    if fine.all():
        return
    wrong = np.flatnonzero(over & ~fine)
    if len(wrong):
        raise GameError(
            f"{type(game).__name__}.play: the outcome of game {wrong[0]} is {outcome[wrong[0]]}; expected a number in "
            "[-1, 1] for the player to move: 1 if he has won, -1 if he has lost"
        )


def checked_answer(answer: Any) -> tuple[Array, Array]:
    """The result of an evaluator as two arrays of numbers; GameError for anything else."""
    if isinstance(answer, (tuple, list)) and len(answer) == 2:
        logits, values = (np.asarray(part) for part in answer)
        if logits.dtype.kind in "fiu" and values.dtype.kind in "fiu":
            return logits, values
        given = f"arrays of dtype {logits.dtype} and {values.dtype}"
    else:
        given = f"a {type(answer).__name__}"
    raise GameError(f"evaluate: expected a pair of arrays of numbers (logits, values), but it returned {given}")


def check_counts(**counts: int) -> None:
    """Raises a ConfigError unless all counts are integers in [1, 1,000,000]."""
    for name, value in counts.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or not 1 <= value <= MOST_SIMULATIONS:
            raise ConfigError(f"{name}={value!r}: expected an integer in [1, {MOST_SIMULATIONS}]")


def check_weights(*, zero: bool, most: float = MOST_WEIGHT, **weights: float) -> None:
    """Raises a ConfigError unless all weights are numbers in (0, most], or [0, most] with `zero`."""
    for name, value in weights.items():
        if not isinstance(value, numbers.Real) or not (value > 0 or (zero and value == 0)) or value > most:
            raise ConfigError(f"{name}={value!r}: expected a number in {'[' if zero else '('}0, {most}]")


def check_options(options: object, kind: type, search: str) -> None:
    """Raises a ConfigError unless the options belong to this search."""
    if not isinstance(options, kind):
        raise ConfigError(f"{search}: expected options of type {kind.__name__}, got {type(options).__name__}")


def most_visited(visits: Array, action_value: Array) -> Array:
    """The action with the most visits, and among equals the one with the higher value, int64 ``(n,)``."""
    value = np.where(visits > 0, action_value, -1.0)
    best: Array = (visits + 0.25 * np.clip(value, -1.0, 1.0)).argmax(axis=1)
    return best
