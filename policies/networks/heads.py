"""Action heads: each maps features ``(B, F)`` to a tuple of parameters of its `distribution` over actions; and masks.

The distribution draws actions in NumPy, see `acting.sampling`; `log_prob_entropy` computes log-probabilities and
entropies in compiled updates. A test checks that both agree. `fuse_likelihood` turns `log_prob_entropy` into one
kernel. A mask replaces the score of an illegal action by a number so low that the action is never chosen.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import SpaceError
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_layers, sampling
from minding.policies.kernels import usable
from minding.policies.networks.layers import Clip, Composed, Linear, TanhLinear
from minding.policies.ops import distributions


class ActionMask(nn.Cell):
    """Logits or values ``(B, A)``, replaced by `ILLEGAL` where the observation's mask forbids the action (Huang and
    Ontanon, 2020, https://arxiv.org/abs/2006.14171, section 3); no gradient flows to the scores of illegal actions."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place
        self.illegal = ms.Tensor(np.float32(numpy_layers.ILLEGAL))

    def construct(self, scores, leaves):
        return ops.select(ops.cast(leaves[self.place], ms.bool_), scores, self.illegal)

    def host(self) -> numpy_layers.ActionMask:
        return numpy_layers.ActionMask(self.place)


def action_mask(space: Mapping[str, Any]) -> ActionMask | None:
    """The mask cell for an observation space (see `envs.describe_env`); None if the space has no mask."""
    places = [k for k, leaf in enumerate(observation_leaves(space)) if leaf.is_mask]
    return ActionMask(places[0]) if places else None


class CategoricalHead(Composed, compositions.LayerHead):
    """One of n actions; parameters: logits ``(B, n)``."""

    shared: tuple[int, ...] = ()

    def __init__(self, features: int, n: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = Linear(features, n, gain, rng)
        self.distribution: sampling.Distribution = sampling.Categorical()
        self.ends = ms.Tensor(np.array([n], np.int32))
        self.fused: ops.Primitive | None = None

    def log_prob_entropy(self, params, action):
        if self.fused is not None:
            return self.fused(params[0], action, self.ends)[:2]
        return self.plain_log_prob_entropy(params[0], action)

    def plain_log_prob_entropy(self, logits, action):
        return distributions.categorical_log_prob_entropy(logits, action)

    def divergence(self, old, new):
        """KL(old || new) of the distributions with these parameters, float32 (B,)."""
        return distributions.categorical_divergence(old[0], new[0])


class MultiCategoricalHead(CategoricalHead):
    """K independent choices; parameters: joined logits ``(B, sum nvec)``."""

    def __init__(self, features: int, nvec: list[int], gain: float | None, rng: np.random.Generator) -> None:
        super().__init__(features, sum(nvec), gain, rng)
        self.distribution = sampling.MultiCategorical(nvec)
        self.stops = [int(s) for s in np.cumsum(nvec)]
        self.starts = [0, *self.stops[:-1]]
        self.ends = ms.Tensor(np.array(self.stops, np.int32))

    def plain_log_prob_entropy(self, logits, action):
        log_prob, entropy = 0.0, 0.0
        for k in range(len(self.starts)):
            part, part_entropy = distributions.categorical_log_prob_entropy(
                logits[:, self.starts[k] : self.stops[k]], action[:, k]
            )
            log_prob, entropy = log_prob + part, entropy + part_entropy
        return log_prob, entropy

    def divergence(self, old, new):
        total = 0.0
        for k in range(len(self.starts)):
            start, stop = self.starts[k], self.stops[k]
            total = total + distributions.categorical_divergence(old[0][:, start:stop], new[0][:, start:stop])
        return total


class GaussianHead(Composed, compositions.GaussianHead):
    """Diagonal normal with a state-independent standard deviation; parameters: mean ``(B, A)`` and log standard
    deviation ``(A,)``."""

    shared = (1,)

    def __init__(
        self, features: int, size: int, gain: float | None, rng: np.random.Generator, log_std: float = 0.0
    ) -> None:
        super().__init__()
        self.linear = Linear(features, size, gain, rng)
        self.distribution = sampling.DiagonalGaussian()
        self.log_std = ms.Parameter(ms.Tensor(np.full(size, log_std, np.float32)), name="log_std")
        self.fused: ops.Primitive | None = None

    def log_prob_entropy(self, params, action):
        if self.fused is not None:
            return self.fused(params[0], params[1], action)
        return distributions.gaussian_log_prob_entropy(params[0], params[1], action.reshape(params[0].shape))

    def divergence(self, old, new):
        """KL(old || new) of the distributions with these parameters, float32 (B,)."""
        return distributions.gaussian_divergence(old[0], old[1], new[0], new[1])


class CompositeHead(Composed, compositions.CompositeHead):
    """Choices and numbers of one action, all independent of each other; parameters: joined logits ``(B, sum nvec)``,
    mean ``(B, A)`` and log standard deviation ``(A,)``. Actions are float32 rows ``(B, K + A)``, the choices first.

        log pi(k, x | s) = sum_i log pi(k_i | s) + log N(x; mean(s), std),   H likewise
    """

    shared = (2,)

    def __init__(
        self, features: int, nvec: list[int], size: int, gain: float | None, rng: np.random.Generator, log_std: float
    ) -> None:
        super().__init__()
        self.choices = MultiCategoricalHead(features, nvec, gain, rng)
        self.numbers = GaussianHead(features, size, gain, rng, log_std)
        self.distribution = sampling.Composite(nvec)
        self.count = len(nvec)

    def log_prob_entropy(self, params, action):
        chosen = ops.cast(action[:, : self.count], ms.int32)
        of_choices, spread = self.choices.log_prob_entropy(params[:1], chosen)
        of_numbers, spread_of_numbers = self.numbers.log_prob_entropy(params[1:], action[:, self.count :])
        return of_choices + of_numbers, spread + spread_of_numbers

    def divergence(self, old, new):
        """KL(old || new) of the distributions with these parameters, float32 (B,)."""
        return self.choices.divergence(old[:1], new[:1]) + self.numbers.divergence(old[1:], new[1:])


class SquashedGaussianHead(Composed, compositions.SquashedGaussianHead):
    """tanh of a normal whose standard deviation depends on the state (Haarnoja et al., 2018,
    https://arxiv.org/abs/1812.05905, appendix C); parameters: mean and log standard deviation, each ``(B, A)``; actions
    in (-1, 1)."""

    LOG_STD_RANGE = (-20.0, 2.0)

    def __init__(self, features: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.mean = Linear(features, size, None, rng)
        self.log_std = Linear(features, size, None, rng)
        self.clip = Clip(*self.LOG_STD_RANGE)
        self.distribution = sampling.SquashedGaussian()


class DeterministicHead(Composed, compositions.LayerHead):
    """The action itself instead of a distribution, ``(B, A)`` in [-1, 1]: tanh of a linear layer (Lillicrap et al.,
    2016, https://arxiv.org/abs/1509.02971, section 7)."""

    def __init__(self, features: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = TanhLinear(features, size, None, rng)


def fuse_likelihood(head: nn.Cell) -> None:
    """Makes `log_prob_entropy` of a head one kernel with a gradient on CPU; call this before anything is compiled."""
    if not usable():
        return
    if isinstance(head, CompositeHead):
        fuse_likelihood(head.choices)
        fuse_likelihood(head.numbers)
    else:
        normal = isinstance(head, GaussianHead)
        head.fused = distributions.fused_normal() if normal else distributions.fused_categorical()


def make_action_head(
    space: Mapping[str, Any],
    features: int,
    rng: np.random.Generator,
    *,
    gain: float | None = 0.01,
    log_std: float = 0.0,
) -> nn.Cell:
    """The head that fits an action space description: discrete, multi_discrete, box or composite."""
    kind = space["kind"]
    if kind == "discrete":
        return CategoricalHead(features, space["n"], gain, rng)
    if kind == "multi_discrete":
        return MultiCategoricalHead(features, list(space["nvec"]), gain, rng)
    if kind == "box":
        return GaussianHead(features, math.prod(space["shape"]), gain, rng, log_std)
    if kind == COMPOSITE:
        return CompositeHead(features, list(space["nvec"]), len(space["low"]), gain, rng, log_std)
    raise SpaceError(f"no action head for a space of kind {kind!r}: use Discrete, MultiDiscrete or Box actions")
