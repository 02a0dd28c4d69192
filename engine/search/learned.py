"""Gumbel search in a learned model: Gumbel MuZero (Danihelka et al., 2022, Policy improvement by planning with Gumbel,
https://openreview.net/forum?id=bERaNdoegnO; Schrittwieser et al., 2020, https://arxiv.org/abs/1911.08265).

Edges have rewards, and the values of a node are those of the player to move. With one player, gamma is the discount;
with two who take turns, it is minus the discount, since what one gains, the other loses:

    Q(s, a) = r(s, a) + gamma V(s'),      V(s) the mean of the returns of all simulations through s
    pi'     = softmax(logits + (c_visit + max_b N(b)) c_scale normalized(completed q))

Completed q are as in `engine.search.gumbel`; they are normalized to [0, 1] by their own minimum and maximum in a node.
The root and the other nodes choose actions as there. This is the search of mctx's ``gumbel_muzero_policy``.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from minding.engine.errors import ConfigError, NonFiniteError, ShapeError
from minding.engine.search.gumbel import GumbelOptions, halving, softmax
from minding.engine.search.search_tree import check_options
from minding.engine.types import Array

_TINY = np.finfo(np.float64).tiny
_EPSILON = 1e-8


class Predicted(NamedTuple):
    """A model's answer for n states.

    Attributes:
      latent: hidden states of the model, ``(n, ...)``.
      reward: ``(n,)``, reward of the action that led to them.
      logits: ``(n, A)``.
      value: ``(n,)``, return from these states on.
    """

    latent: Array
    reward: Array
    logits: Array
    value: Array


Step: TypeAlias = Callable[[Array, Array], Predicted]
"""The model: hidden states ``(n, ...)`` and actions ``(n,)`` to what follows."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Result of a search for n states.

    Attributes:
      visits: int64 ``(n, A)``, simulations that took each action; the rows sum to the number of simulations.
      policy: float64 ``(n, A)``, pi', the improved policy; 0 for illegal actions.
      best: int64 ``(n,)``, the winner of sequential halving.
      value: float64 ``(n,)``, mean of the root's own value and the returns of the simulations.
      action_value: float64 ``(n, A)``, q; NaN for actions that no simulation took.
    """

    visits: Array
    policy: Array
    best: Array
    value: Array
    action_value: Array


def plan(
    root: Predicted,
    step: Step,
    options: GumbelOptions,
    gamma: float,
    *,
    legal: Array | None = None,
    noise: Array | None = None,
) -> Plan:
    """Searches n states at once. `legal`: bool ``(n, A)``, the legal actions of the states; None: all, as in the model.
    `noise`: draws of a Gumbel distribution, ``(n, A)``; None: no noise."""
    check_options(options, GumbelOptions, "plan")
    if not -1.0 <= gamma <= 1.0:
        raise ConfigError(f"gamma={gamma!r}: expected a number in [-1, 1]")
    tree = _Tree(root, options, gamma)
    n, actions = tree.count, tree.actions
    for name, array in (("legal", legal), ("noise", noise)):
        if array is not None and array.shape != (n, actions):
            raise ShapeError(f"plan: expected {name} of shape {(n, actions)}, got {array.shape}")
    allowed = np.ones((n, actions), bool) if legal is None else legal.astype(bool)
    if not (some := allowed.any(axis=1)).all():
        raise ShapeError(f"plan: state {some.argmin()} has no legal action, and a search needs one")
    gumbel = np.zeros((n, actions)) if noise is None else options.gumbel_scale * noise
    considered = np.minimum(allowed.sum(axis=1), options.max_considered).tolist()
    table = {m: halving(m, options.simulations) for m in set(considered)}
    schedule = np.array([table[m] for m in considered]).reshape(n, options.simulations)
    tree.logits[:n][~allowed] = -np.inf
    roots = np.arange(n)

    def most_promising(visits: Array) -> Array:
        """The best of the root's actions with this many visits."""
        logits = tree.logits[:n] - tree.logits[:n].max(axis=1, keepdims=True)
        score = np.maximum(gumbel + logits + tree.scaled(roots), -1e9)
        fits = allowed & (tree.visits[:n] == visits[:, None])
        best: Array = np.where(fits, score, -np.inf).argmax(axis=1)
        return best

    for simulation in range(options.simulations):
        tree.simulate(step, most_promising(schedule[:, simulation]))
    visits = tree.visits[:n]
    policy = softmax(tree.logits[:n] + tree.scaled(roots))
    q = np.where(visits > 0, tree.reward[:n] + gamma * tree.below[:n], np.nan)
    return Plan(visits.astype(np.int64), policy, most_promising(visits.max(axis=1)), tree.mean[:n].copy(), q)


class _Tree:
    """Trees of n states; node ``k n + i`` is the node that simulation k added to tree i, and node i its root.

    Attributes:
      logits, raw: the model's logits ``(nodes, A)`` and value ``(nodes,)``.
      mean, reached: mean and number of the returns through a node, ``(nodes,)``; its own value is one of them.
      visits: simulations that took each edge, ``(nodes, A)``.
      reward, below: reward of each edge, and the mean of the node to which it leads, ``(nodes, A)``.
      child: the node to which an edge leads, ``(nodes, A)``; -1: none.
    """

    def __init__(self, root: Predicted, options: GumbelOptions, gamma: float) -> None:
        if np.ndim(root.logits) != 2:
            raise ShapeError(f"plan: expected logits of shape (n, A), got {np.shape(root.logits)}")
        self.count, self.actions = root.logits.shape
        self.options, self.gamma, self.size = options, gamma, self.count
        nodes = (options.simulations + 1) * self.count
        shape = (nodes, self.actions)
        self.latent = np.empty((nodes, *root.latent.shape[1:]), root.latent.dtype)
        self.logits, self.raw, self.mean, self.reached = (
            np.empty(shape),
            np.empty(nodes),
            np.empty(nodes),
            np.ones(nodes),
        )
        self.visits, self.reward, self.below = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.child = np.full(shape, -1)
        self.next = np.zeros(nodes, np.int64)
        """The action that each node but a root takes next."""
        self._store(slice(0, self.count), root)

    def simulate(self, step: Step, first: Array) -> None:
        """Follows the trees from the roots, whose next actions are `first`, and adds one node to each."""
        rows = nodes = np.arange(self.count)
        action, path = first, []
        while rows.size:
            path.append((rows, nodes, action))
            child = self.child[nodes, action]
            inside = child >= 0
            rows, nodes = rows[inside], child[inside]
            action = self.next[nodes]
        # The last edge of each tree.
        parent, taken = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        for rows, nodes, action in path:
            parent[rows], taken[rows] = nodes, action
        new = slice(self.size, self.size + self.count)
        answer = step(self.latent[parent], taken)
        self._store(new, answer)
        self.reward[parent, taken] = answer.reward
        self.child[parent, taken] = np.arange(self.size, self.size + self.count)
        self.size += self.count
        gain = self.raw[new].copy()
        for rows, nodes, action in reversed(path):
            gain[rows] = self.reward[nodes, action] + self.gamma * gain[rows]
            self.mean[nodes] += (gain[rows] - self.mean[nodes]) / (self.reached[nodes] + 1.0)
            self.reached[nodes] += 1.0
            self.below[nodes, action] = self.mean[self.child[nodes, action]]
            self.visits[nodes, action] += 1.0
        changed = np.concatenate([np.arange(new.start, new.stop), *[nodes for _, nodes, _ in path[1:]]])
        policy = softmax(self.logits[changed] + self.scaled(changed))
        self.next[changed] = (policy - self.visits[changed] / self.reached[changed, None]).argmax(axis=1)

    def scaled(self, nodes: Array) -> Array:
        """The normalized completed q of nodes, weighted against logits, ``(m, A)``."""
        visits, logits = self.visits[nodes], self.logits[nodes]
        taken, q = visits > 0, self.reward[nodes] + self.gamma * self.below[nodes]
        prior = np.where(taken, np.maximum(softmax(logits), _TINY), 0.0)
        share = prior.sum(axis=1)
        mean = (prior * q).sum(axis=1) / np.where(share > 0, share, 1.0)
        total = visits.sum(axis=1)
        completed = np.where(taken, q, ((self.raw[nodes] + total * mean) / (total + 1.0))[:, None])
        low = completed.min(axis=1, keepdims=True)
        spread = np.maximum(completed.max(axis=1, keepdims=True) - low, _EPSILON)
        weight = (self.options.c_visit + visits.max(axis=1, keepdims=True)) * self.options.c_scale
        return weight * (completed - low) / spread  # type: ignore[no-any-return]

    def _store(self, rows: slice, answer: Predicted) -> None:
        n, latent = self.count, np.asarray(answer.latent)
        shapes = [np.shape(x) for x in (answer.reward, answer.logits, answer.value, latent)]
        expected = [(n,), (n, self.actions), (n,), (n, *self.latent.shape[1:])]
        if shapes != expected:
            raise ShapeError(f"plan: expected rewards, logits, values and latents of shapes {expected}, got {shapes}")
        if not np.can_cast(latent.dtype, self.latent.dtype, "same_kind"):
            raise ShapeError(f"plan: expected latents of {self.latent.dtype}, as at the root, got {latent.dtype}")
        finite = np.isfinite(answer.reward) & np.isfinite(answer.value) & np.isfinite(answer.logits).all(axis=1)
        if not finite.all():
            raise NonFiniteError(
                f"plan: the model returned NaN or infinity for state {finite.argmin()}: its observation, or weights of "
                "the model, are not finite"
            )
        self.latent[rows], self.logits[rows] = answer.latent, answer.logits
        self.raw[rows] = self.mean[rows] = answer.value
