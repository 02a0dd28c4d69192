"""Tree searches that share the visits of an action as their policy.

PUCT, the search of AlphaZero (Silver et al., 2018, https://www.science.org/doi/10.1126/science.aar6404):

    a = argmax_a  Q(s, a) + c_puct * P(s, a) * sqrt(1 + sum_b N(s, b)) / (1 + N(s, a))

Q is the mean value of the simulations that took an action, or 0 if none did. P is the network's policy, mixed with
Dirichlet noise at the root. The 1 in the square root counts the evaluation of s itself; with it, the first simulation
follows P.

UCT, with random rollouts and without a network (Kocsis and Szepesvári, 2006, https://doi.org/10.1007/11871842_29):

    a = argmax_a  Q(s, a) + c * sqrt(log sum_b N(s, b) / N(s, a))

Actions that no simulation took come first, in random order. The value of a new position is the outcome of one game that
is played to its end with random legal actions.
"""

import dataclasses
import math

import numpy as np

from minding.engine.errors import GameError
from minding.engine.search.search_tree import (
    Evaluate,
    Found,
    Tree,
    check_counts,
    check_options,
    check_weights,
    checked_answer,
    most_visited,
)
from minding.engine.types import Array, BoardGame, State


@dataclasses.dataclass(frozen=True)
class PuctOptions:
    """Settings of `puct`."""

    simulations: int = 64
    c_puct: float = 1.25
    dirichlet_alpha: float = 1.0
    dirichlet_fraction: float = 0.0

    def __post_init__(self) -> None:
        check_counts(simulations=self.simulations)
        check_weights(zero=False, c_puct=self.c_puct, dirichlet_alpha=self.dirichlet_alpha)
        check_weights(zero=True, most=1, dirichlet_fraction=self.dirichlet_fraction)


def puct(game: BoardGame, state: State, evaluate: Evaluate, options: PuctOptions, rng: np.random.Generator) -> Found:
    check_options(options, PuctOptions, "puct")
    tree = Tree(game, state, options.simulations, *checked_answer(evaluate(state)))
    if options.dirichlet_fraction:
        _add_noise(tree, options, rng)
    weight = options.c_puct

    def choose(tree: Tree, nodes: Array) -> Array:
        visits = tree.visits.take(nodes, axis=0)
        score = tree.prior.take(nodes, axis=0)
        score *= weight * np.sqrt(tree.reached.take(nodes))[:, None]
        score /= visits + 1.0
        score += tree.total.take(nodes, axis=0) / np.maximum(visits, 1.0)
        action: Array = score.argmax(axis=1)
        return action

    tree.grow(lambda state, _: evaluate(state), choose)
    return by_visits(tree)


def by_visits(tree: Tree) -> Found:
    """The results of a tree whose policy is the share of the visits."""
    visits, total = tree.visits[: tree.games], tree.total[: tree.games]
    value = np.where(visits > 0, total, 0.0).sum(axis=1) / tree.simulations
    best = most_visited(visits, total / np.maximum(visits, 1.0))
    return Found(visits.astype(np.int64), visits / tree.simulations, value, best, tree)


def _add_noise(tree: Tree, options: PuctOptions, rng: np.random.Generator) -> None:
    prior, fraction = tree.prior[: tree.games], options.dirichlet_fraction
    legal = tree.logits[: tree.games] > -np.inf
    noise = np.where(legal, rng.standard_gamma(options.dirichlet_alpha, prior.shape), 0.0)
    # With tiny concentrations, all drawn numbers may be 0 in float64.
    noise = np.where(legal & (noise.sum(axis=1, keepdims=True) == 0), 1.0, noise)
    prior *= 1.0 - fraction
    prior += fraction * noise / noise.sum(axis=1, keepdims=True)


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
