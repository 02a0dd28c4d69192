"""UCT: tree search with random rollouts and without a network (Kocsis and Szepesvári, 2006,
https://doi.org/10.1007/11871842_29).

    a = argmax_a  Q(s, a) + c * sqrt(log sum_b N(s, b) / N(s, a))

Actions that no simulation took come first, in random order. The value of a new position is the outcome of one game that
is played to its end with random legal actions.
"""

import dataclasses
import math

import numpy as np

from minding.engine.errors import GameError
from minding.engine.search.puct import by_visits
from minding.engine.search.search_tree import Found, Tree, check_counts, check_options, check_weights
from minding.engine.types import Array, BoardGame, State

_UNTRIED = 1e6
"""Score of an action that no simulation took: above every value and bonus."""


@dataclasses.dataclass(frozen=True)
class UctOptions:
    """Settings of `uct`."""

    simulations: int = 100
    c: float = math.sqrt(2.0)

    def __post_init__(self) -> None:
        check_counts(simulations=self.simulations)
        check_weights(zero=False, c=self.c)


def uct(game: BoardGame, state: State, options: UctOptions, rng: np.random.Generator) -> Found:
    """Searches n positions."""
    check_options(options, UctOptions, "uct")
    n, c = len(state[0]), options.c
    tree = Tree(game, state, options.simulations, rng.random((n, game.actions)), np.zeros(n))

    def leaves(state: State, asked: Array) -> tuple[Array, Array]:
        values = np.zeros(n)
        values[asked] = rollout(game, tuple(part[asked] for part in state), rng)
        return rng.random((n, game.actions)), values

    def choose(tree: Tree, nodes: Array) -> Array:
        visits = tree.visits.take(nodes, axis=0)
        tries = np.maximum(visits, 1.0)
        # A node from which no simulation continued has the logarithm of 1.
        spread = np.log(np.maximum(tree.reached.take(nodes) - 1.0, 1.0))[:, None]
        bonus = np.where(visits > 0, c * np.sqrt(spread / tries), _UNTRIED * (1.0 + tree.prior.take(nodes, axis=0)))
        action: Array = (tree.total.take(nodes, axis=0) / tries + bonus).argmax(axis=1)
        return action

    tree.grow(leaves, choose)
    return by_visits(tree)


def rollout(game: BoardGame, state: State, rng: np.random.Generator) -> Array:
    """Plays n games to their end with random legal actions; returns their outcomes for the player to move, ``(n,)``."""
    outcomes = np.zeros(len(state[0]))
    rows = np.arange(len(outcomes))
    # Sign that converts the next outcome, for the player to move next, to the player to move in `state`.
    sign = 1.0
    for _ in range(game.longest):
        state, over, outcome = game.play(state, random_legal(game, state, rng))
        sign = -sign
        if over.any():
            outcomes[rows[over]] = sign * outcome[over]
            rows = rows[~over]
            if not rows.size:
                return outcomes
            state = tuple(part[~over] for part in state)
    raise GameError(
        f"{type(game).__name__}: a game is not over after {game.longest} more plies, but longest={game.longest} is "
        "the maximum of a whole game"
    )


def random_legal(game: BoardGame, state: State, rng: np.random.Generator) -> Array:
    """Draws one legal action per game, uniformly, int64 ``(n,)``."""
    legal = game.legal(state)
    # In (0, 1], so that 0 marks illegal actions only.
    draws = 1.0 - rng.random(legal.shape, np.float32)
    draws *= legal
    action: Array = draws.argmax(axis=1)
    return action
