"""Gumbel search (Danihelka et al., 2022, Policy improvement by planning with Gumbel,
https://openreview.net/forum?id=bERaNdoegnO), which improves its policy with few simulations too.

    root:      sequential halving over the actions with the largest g(a) + logits(a) + sigma(q(a))
    elsewhere: argmax_a  pi'(a) - N(a) / (1 + sum_b N(b))
    pi'        = softmax(logits + sigma(completed q))
    sigma(q)   = (c_visit + max_b N(b)) * c_scale * (q + 1) / 2

g are draws of a Gumbel distribution. A completed q is the mean value of the simulations that took an action, and for
actions that none took the mix of the node's own value and theirs (appendix D), with N summed over all actions:

    v_mix = (v + N * sum_b pi(b) q(b) / sum_b pi(b)) / (1 + N),  b over the actions that were taken
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
)
from minding.engine.types import Array, BoardGame, State


@dataclasses.dataclass(frozen=True)
class GumbelOptions:
    """Settings of `gumbel`."""

    simulations: int = 16
    max_considered: int = 16
    c_visit: float = 50.0
    c_scale: float = 1.0
    gumbel_scale: float = 1.0

    def __post_init__(self) -> None:
        check_counts(simulations=self.simulations, max_considered=self.max_considered)
        check_weights(zero=True, c_visit=self.c_visit, c_scale=self.c_scale, gumbel_scale=self.gumbel_scale)


def gumbel(
    game: BoardGame, state: State, evaluate: Evaluate, options: GumbelOptions, rng: np.random.Generator
) -> Found:
    check_options(options, GumbelOptions, "gumbel")
    tree = Tree(game, state, options.simulations, *checked_answer(evaluate(state)))
    roots = np.arange(tree.games)
    noise = np.zeros((tree.games, tree.actions))
    if options.gumbel_scale:
        noise += options.gumbel_scale * rng.gumbel(size=noise.shape)
    legal = (tree.logits[: tree.games] > -np.inf).sum(axis=1)
    considered = np.minimum(legal, options.max_considered)
    table = {m: halving(m, options.simulations) for m in set(considered.tolist())}
    schedule = iter(np.array([table[m] for m in considered.tolist()]).T)

    def choose(tree: Tree, nodes: Array) -> Array:
        visits = tree.visits.take(nodes, axis=0)
        policy = softmax(_improved(tree, nodes, options)[0])
        action: Array = (policy - visits / tree.reached.take(nodes)[:, None]).argmax(axis=1)
        return action

    def choose_root(tree: Tree, nodes: Array) -> Array:
        return _most_promising(tree, nodes, noise, next(schedule), options)

    tree.grow(lambda state, _: evaluate(state), choose, choose_root)
    visits = tree.visits[: tree.games]
    logits, completed = _improved(tree, roots, options)
    policy = softmax(logits)
    best = _most_promising(tree, roots, noise, visits.max(axis=1), options)
    return Found(visits.astype(np.int64), policy, (policy * completed).sum(axis=1), best, tree)


def halving(considered: int, simulations: int) -> list[int]:
    """For each simulation of sequential halving, the number of visits of the actions that may be simulated next.

    Each phase gives all actions that are still considered the same number of simulations, and keeps the better half of
    them. The last two actions share the remaining simulations alternately. So the actions of a phase are those with the
    returned number of visits.
    """
    if considered <= 1:
        return list(range(simulations))
    phases = (considered - 1).bit_length()
    order: list[int] = []
    visits, remaining = 0, considered
    while len(order) < simulations:
        for _ in range(max(1, simulations // (phases * remaining))):
            order += [visits] * remaining
            visits += 1
        remaining = max(2, remaining // 2)
    return order[:simulations]


def _most_promising(tree: Tree, nodes: Array, noise: Array, visits: Array, options: GumbelOptions) -> Array:
    """The action with the largest g + logits + sigma(q) among those with this many visits ``(n,)``."""
    score = noise + _improved(tree, nodes, options)[0]
    action: Array = np.where(tree.visits.take(nodes, axis=0) == visits[:, None], score, -np.inf).argmax(axis=1)
    return action


def _improved(tree: Tree, nodes: Array, options: GumbelOptions) -> tuple[Array, Array]:
    """The logits of pi' of m nodes, ``(m, A)``, -inf for illegal actions; the completed q, in [-1, 1]."""
    visits, prior = tree.visits.take(nodes, axis=0), tree.prior.take(nodes, axis=0)
    taken = visits > 0
    reached = tree.reached.take(nodes)
    # A node without visits must not divide by 0, hence the maximum with 1.
    most = visits.max(axis=1, keepdims=True)
    q = np.where(taken, tree.total.take(nodes, axis=0), 0.0) / np.maximum(visits, 1.0)
    prior = np.where(taken, np.maximum(prior, np.finfo(np.float64).tiny), 0.0)
    share = prior.sum(axis=1)
    weighted = (prior * q).sum(axis=1) / np.where(share > 0, share, 1.0)
    mixed = (tree.value.take(nodes) + (reached - 1.0) * weighted) / reached
    completed = np.where(taken, q, mixed[:, None])
    scale = (options.c_visit + most) * (0.5 * options.c_scale)
    return tree.logits.take(nodes, axis=0) + scale * (completed + 1.0), completed


def softmax(logits: Array) -> Array:
    """Probabilities along the last of two axes."""
    weights: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
