"""PUCT, the search of AlphaZero (Silver et al., 2018, https://www.science.org/doi/10.1126/science.aar6404).

    a = argmax_a  Q(s, a) + c_puct * P(s, a) * sqrt(1 + sum_b N(s, b)) / (1 + N(s, a))

Q is the mean value of the simulations that took an action, or 0 if none did. P is the network's policy, mixed with
Dirichlet noise at the root. The 1 in the square root counts the evaluation of s itself; with it, the first simulation
follows P.
"""

import dataclasses

import numpy as np

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
    """Searches n positions."""
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
