"""A world model of a recurrent state and categorical latents, an actor on its states, and predictions from them.

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104; latents drawn from the observation alone: Samsami et
al., 2024 (R2I), https://arxiv.org/abs/2403.04253, section 3.2.

    h_t = GRU(mix(z_{t-1}, a_{t-1}), h_{t-1}),   z_t ~ q(z | o_t)  or with `full`  q(z | o_t, h_t),   prior p(z | h_t)

A state is (h, z), where z is a row of S one-hots of C classes. The memory of an environment is (h, z, a).
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import Leaf, observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_networks
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.acting.sampling import BoundedNormal, Categorical, MultiCategorical
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import OF_BYTES, ActionNumbers, ImageDecoder, OneHot, layers_of, make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear, ScalarLinear
from minding.policies.networks.recurrent import GRU
from minding.policies.ops import arrays, imagination, primitives
from minding.policies.ops.distributions import categorical_log_prob_entropy, normal_log_prob_entropy
from minding.policies.ops.imagination import symlog, two_hot

_SMALL = 0.01
"""Gain of the actor's last layer, so small that the initial policy is almost the same in all states."""
_CHOICES = ("discrete", "multi_discrete")
_ALMOST_ONE = np.float32(0.99999)
"""The largest number to draw with, so that rounding of cumulative probabilities draws no action of probability 0."""


class SymlogEncoder(Composed, compositions.SymlogEncoder):
    """Features (B, F) of observation leaves: encoder, then hidden layers. `symlog` is applied to vectors first, unless
    they are normalized or the encoder is user-defined."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        leaves, as_given = observation_leaves(spec["observation"]), bool(model.encoder or model.normalize_obs)
        self.squeezed = tuple(is_vector(leaf) and not as_given for leaf in leaves)
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng)
        self.out_features = self.torso.out_features


def is_vector(leaf: Any) -> bool:
    """Whether a leaf holds numbers other than images, choices and masks."""
    return not (leaf.is_image or leaf.is_mask or leaf.space["kind"] in _CHOICES)


class Latents(nn.Cell):
    """S choices of C classes each, from logits (B, S C); probabilities are rows (B S, C)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.choices, self.classes, self.uniform = model.latents, model.classes, model.unimix
        self.size = self.choices * self.classes
        self.table = ms.Tensor(np.eye(self.classes, dtype=np.float32))
        self.before = ms.Tensor(np.triu(np.ones((self.classes, self.classes), np.float32), 1))

    def construct(self, logits, number):
        """Latents (B, S C): drawn with uniform numbers (B, S), or the likeliest without."""
        probability = self.probability(logits)
        return self.likeliest(probability) if number is None else self.draw(probability, number)

    def probability(self, logits):
        return imagination.mixed(ops.Reshape()(logits, (-1, self.classes)), self.uniform)

    def draw(self, probability, number):
        """Latents (B, S C), drawn with uniform numbers (B, S); gradients flow through them."""
        hot = imagination.drawn(probability, ops.Reshape()(number, (-1,)), self.before, self.table)
        return ops.Reshape()(hot, (-1, self.size))

    def likeliest(self, probability):
        return ops.Reshape()(imagination.likeliest(probability, self.table), (-1, self.size))

    def host(self) -> numpy_networks.Latents:
        return numpy_networks.Latents(self.classes, self.uniform)


class MixedCategoricalHead(nn.Cell):
    """One of n actions; parameters: log-probabilities (B, n) of a distribution that is mixed with the uniform one."""

    distribution = Categorical()
    decision = Decision(0, "logits")

    def __init__(self, features: int, n: int, uniform: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = Linear(features, n, _SMALL, rng)
        self.size, self.uniform = n, uniform
        self.table = ms.Tensor(np.eye(n, dtype=np.float32))
        self.before = ms.Tensor(np.triu(np.ones((n, n), np.float32), 1))
        self.illegal = ms.Tensor(np.float32(ILLEGAL))

    def construct(self, x):
        return (ops.Log()(imagination.mixed(self.linear(x), self.uniform)),)

    def allowed(self, params, scores):
        """The parameters without the actions whose score (B, n) is negative; those of the highest score stay."""
        least = ops.Minimum()(primitives.largest(scores, keepdims=True), 0.0)
        return (ops.LogSoftmax(-1)(ops.select(scores >= least, params[0], self.illegal)),)

    def draw(self, params, number):
        """Samples as rows (B, n) for the model, drawn with uniform numbers (B,)."""
        return imagination.drawn(ops.Exp()(params[0]), number, self.before, self.table)

    def decided(self, params):
        """The actions without exploration, as rows (B, n)."""
        return imagination.likeliest(params[0], self.table)

    def rows(self, action):
        """Actions of the environment, int32 (B,), as rows (B, n)."""
        return ops.Gather()(self.table, action, 0)

    def model_rows(self, drawn):
        """Drawn actions in the form that the model takes."""
        return drawn

    def log_prob_entropy(self, params, drawn):
        return categorical_log_prob_entropy(params[0], ops.Argmax(-1)(drawn))

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        """The random numbers that `draw` takes, in this shape."""
        return np.minimum(rng.random(shape, dtype=np.float32), _ALMOST_ONE)

    def host(self) -> numpy_networks.MixedCategoricalHead:
        return numpy_networks.MixedCategoricalHead(self.linear.host(), self.table.asnumpy(), self.uniform)


class MixedChoicesHead(Composed, compositions.MixedChoicesHead):
    """K independent choices, each by a `MixedCategoricalHead`; parameters: joined log-probabilities (B, sum nvec).
    Rows, scores and draws are joined alike."""

    decision = Decision(0, "logits")

    def __init__(self, features: int, nvec: list[int], uniform: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.parts = nn.CellList([MixedCategoricalHead(features, n, uniform, rng) for n in nvec])
        self.distribution = MultiCategorical(nvec)
        self.stops = [int(stop) for stop in np.cumsum(nvec)]
        self.starts = [0, *self.stops[:-1]]

    def allowed(self, params, scores):
        made: Any = ()
        for k in range(len(self.starts)):
            made = (*made, self.parts[k].allowed((self.of(params[0], k),), self.of(scores, k))[0])
        return (arrays.concat(made),)

    def draw(self, params, number):
        """Samples, see `MixedCategoricalHead.draw`, with uniform numbers (B, K)."""
        made: Any = ()
        for k in range(len(self.starts)):
            made = (*made, self.parts[k].draw((self.of(params[0], k),), number[:, k]))
        return arrays.concat(made)

    def rows(self, action):
        """Actions of the environment, int32 (B, K), as rows."""
        made: Any = ()
        for k in range(len(self.starts)):
            made = (*made, self.parts[k].rows(action[:, k]))
        return arrays.concat(made)

    def model_rows(self, drawn):
        return drawn

    def log_prob_entropy(self, params, drawn):
        log_prob, entropy = 0.0, 0.0
        for k in range(len(self.starts)):
            one, spread = self.parts[k].log_prob_entropy((self.of(params[0], k),), self.of(drawn, k))
            log_prob, entropy = log_prob + one, entropy + spread
        return log_prob, entropy

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return np.minimum(rng.random((*shape, len(self.starts)), dtype=np.float32), _ALMOST_ONE)


class BoundedNormalHead(Composed, compositions.BoundedNormalHead):
    """Box actions in [-1, 1]; parameters: mean and standard deviation, each (B, A), of independent normals.

        mean = tanh(m),   deviation = low + (high - low) sigmoid(s + 2)

    A draw may lie outside the box: its likelihood is computed before clipping, and environment and model get the
    clipped action.
    """

    distribution = BoundedNormal()
    decision = Decision(0, "mean")

    def __init__(self, features: int, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        super().__init__()
        self.size = math.prod(shape)
        self.mean, self.deviation = (Linear(features, self.size, _SMALL, rng) for _ in range(2))

    def draw(self, params, noise):
        """Samples, see `MixedCategoricalHead.draw`; the noise is standard normal, (B, A)."""
        return params[0] + params[1] * noise

    def rows(self, action):
        return self.model_rows(ops.Reshape()(action, (-1, self.size)))

    def model_rows(self, drawn):
        return ops.clamp(drawn, -1.0, 1.0)

    def log_prob_entropy(self, params, drawn):
        return normal_log_prob_entropy(params[0], params[1], drawn)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.standard_normal((*shape, self.size), dtype=np.float32)


class WorldActor(Composed, compositions.WorldActor):
    """The acting network: the part of the world model that follows the environment, and the actor on its states.

    Takes the observation leaves, uniform numbers (B, S) in order to explore, and the memory rows, (h, z, a) of the
    previous step, float32 (B, D + S C + A). Returns the parameters of the head's distribution and the new memory rows,
    which contain the action without exploration; an actor that takes another action overwrites it. Log-probabilities of
    actions that the observation's mask forbids are `ILLEGAL`.
    """

    shared_outputs = ()

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        action, wide = spec["action"], model.hidden[-1:]
        self.latents = Latents(model)
        acts = ActionNumbers(action).out_features
        self.seen = SymlogEncoder(spec, model, rng)
        self.num_leaves = len(self.seen.squeezed)
        self.is_full = model.posterior == "full"
        # Transition
        self.mix = hidden_layers(self.latents.size + acts, wide, model, rng)
        self.memory = GRU(self.mix.out_features, model.deter, rng)
        # Posterior
        seen = self.seen.out_features + (model.deter if self.is_full else 0)
        self.posterior_torso = hidden_layers(seen, wide, model, rng)
        self.posterior_logits = Linear(self.posterior_torso.out_features, self.latents.size, 1.0, rng)
        # Actor
        self.state_size = model.deter + self.latents.size
        self.policy = MLP.of(self.state_size, model, None, rng)
        features = self.policy.out_features
        self.head = _make_head(action, features, model.unimix, rng)
        self.mask = action_mask(spec["observation"])
        self.memory_size = self.state_size + acts
        self.nothing = ms.Tensor(np.zeros((1, self.memory_size), np.float32))

    @property
    def noise_size(self) -> int:
        """Number of uniform numbers that the network takes to explore."""
        return self.latents.choices

    @property
    def decision(self) -> Decision:
        return self.head.decision

    def posterior(self, seen, h):
        """Probabilities (B S, C) of the latents; for the arguments see `latent_logits`."""
        return self.latents.probability(self.latent_logits(seen, h))

    def unroll(self, seen, action, first, number):
        """The states of sequences, by the actions taken after all observations but the last, as rows (T B, A), and the
        memory (B, D + S C + A) before the first observations."""
        if self.is_full:
            return self.unroll_by_steps(seen, action, first, number)
        count, deter = first.shape[0], self.memory.size
        probability = self.posterior(seen, first)
        z = self.latents.draw(probability, number)
        before = ops.Concat(-1)((primitives.part(z, 0, z.shape[0] - count), action))
        before = ops.Concat(0)((first[:, deter:], before))
        begun = ops.ZerosLike()(number[:, 0])
        h = self.memory.unroll(self.mix(before), first[:, :deter], begun)
        return h, z, probability

    def unroll_by_steps(self, seen, action, first, number):
        """`unroll` for a posterior that depends on the state of the GRU, and so on the previous latent."""
        count, deter, size = first.shape[0], self.memory.size, self.latents.size
        steps = seen.shape[0] // count
        h, z = first[:, :deter], first[:, deter : deter + size]
        action = ops.Concat(0)((first[:, deter + size :], action))
        action, seen = ops.Reshape()(action, (steps, count, -1)), ops.Reshape()(seen, (steps, count, -1))
        number = ops.Reshape()(number, (steps, count, -1))
        hs, zs, ps = self.no_states(steps, h), self.no_states(steps, z), self.no_states(steps, z)
        t = self.memory.first_step
        while t < steps:
            h = self.step(ops.Concat(-1)((z, primitives.entry(action, t))), h)
            probability = self.posterior(primitives.entry(seen, t), h)
            z = self.latents.draw(probability, primitives.entry(number, t))
            hs, zs = primitives.with_entry(hs, t, h), primitives.with_entry(zs, t, z)
            ps = primitives.with_entry(ps, t, ops.Reshape()(probability, (count, size)))
            t = t + 1
        rows = ops.Reshape()(ps, (-1, self.latents.classes))
        return ops.Reshape()(hs, (-1, deter)), ops.Reshape()(zs, (-1, size)), rows

    def no_states(self, steps, rows):
        """Zeros for `steps` steps of arrays like `rows`."""
        return ops.Tile()(ops.ExpandDims()(ops.ZerosLike()(rows), 0), (steps, 1, 1))


def _make_head(
    action: Mapping[str, Any], features: int, uniform: float, rng: np.random.Generator
) -> MixedCategoricalHead | MixedChoicesHead | BoundedNormalHead:
    if action["kind"] == "discrete":
        return MixedCategoricalHead(features, action["n"], uniform, rng)
    if action["kind"] == "multi_discrete":
        return MixedChoicesHead(features, list(action["nvec"]), uniform, rng)
    return BoundedNormalHead(features, tuple(action["shape"]), rng)


def hidden_layers(features: int, sizes: list[int], model: Any, rng: np.random.Generator) -> MLP:
    """Hidden layers of these sizes, with activation and normalization from the section `policy.model`."""
    return MLP(features, sizes, model.activation, None, rng, model.norm)


class TwoHotNumber(Composed, compositions.TwoHotNumber):
    """A number of any size as a distribution over equally spaced bins of its `symlog`: hidden layers and logits (B, N)
    from features (B, F). The last layer starts at 0, so that all bins are equally likely."""

    def __init__(self, features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.torso = MLP.of(features, model, None, rng)
        self.logits = Linear(self.torso.out_features, model.bins, 0.0, rng)
        self.low, self.spacing = -model.bin_limit, 2.0 * model.bin_limit / (model.bins - 1)
        self.places = ms.Tensor(np.arange(model.bins, dtype=np.float32))
        bins = np.linspace(-model.bin_limit, model.bin_limit, model.bins, dtype=np.float32)
        self.bins = ms.Tensor(bins.reshape(-1, 1))

    def target(self, number):
        """The distribution that encodes a number: (B,) -> (B, N)."""
        return two_hot(symlog(number), self.low, self.spacing, self.places)

    def loss(self, logits, target):
        """Cross-entropy with the distribution `target`, float32 (B,)."""
        return -ops.ReduceSum()(ops.stop_gradient(target) * ops.LogSoftmax(-1)(logits), -1)


class Continuation(nn.Cell):
    """Logits (B,) of the probability that the episode continues after states (B, F)."""

    def __init__(self, features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.torso = MLP.of(features, model, None, rng)
        self.logit = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, x):
        return self.logit(self.torso(x))

    def loss(self, logit, going):
        """Binary cross-entropy, float32 (B,)."""
        return ops.Softplus()(logit) - going * logit


class _Numbers(nn.Cell):
    """Numbers as their `symlog`, the pixels of an image in [0, 1], or the entries of a mask as 0 and 1: (B, n)."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.out_features, self.is_image, self.is_mask = math.prod(leaf.field.shape), leaf.is_image, leaf.is_mask

    def construct(self, x):
        x = ops.Cast()(ops.Reshape()(x, (-1, self.out_features)), ms.float32)
        if self.is_mask:
            return x
        return x * OF_BYTES if self.is_image else symlog(x)


class Decoder(nn.Cell):
    """Predicts the observation from states (B, F): after hidden layers, a linear layer gives one row of numbers for all
    leaves but the action mask, which has a linear layer of its own. With ``model.decoder=convolutions``, the pixels of
    images come from an `ImageDecoder` each.

    A vector is predicted as its `symlog`, an image as pixels in [0, 1], choices as logits, and a mask as the logits of
    its entries. The loss of a row is the sum of the squared errors of numbers and pixels and of the cross-entropies of
    choices and of the mask's entries.
    """

    def __init__(self, spec: Mapping[str, Any], features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        leaves = observation_leaves(spec["observation"])
        kinds = (OneHot(leaf.space) if leaf.space["kind"] in _CHOICES else _Numbers(leaf) for leaf in leaves)
        self.targets = nn.CellList(list(kinds))
        # Number of classes of each choice in each leaf; empty for numbers.
        self.choices = tuple(tuple(getattr(target, "sizes", ())) for target in self.targets)
        self.sizes = tuple(target.out_features for target in self.targets)
        self.torso = MLP.of(features, model, None, rng)
        width, convolutions = self.torso.out_features, model.decoder == "convolutions"
        self.is_mask = tuple(leaf.is_mask for leaf in leaves)
        # The leaves that the joint linear layer does not predict.
        self.apart = tuple(leaf.is_mask or (convolutions and leaf.is_image) for leaf in leaves)
        linear = sum(size for size, apart in zip(self.sizes, self.apart) if not apart)
        self.linear = Linear(width, linear, 1.0, rng) if linear else None
        own = [leaf for leaf, apart in zip(leaves, self.apart) if apart]
        self.own = nn.CellList([_own_decoder(leaf, width, model, rng) for leaf in own])
        self.mask = next((k for k, leaf in enumerate(own) if leaf.is_mask), None)

    def construct(self, x):
        x = self.torso(x)
        numbers: Any = None if self.linear is None else self.linear(x)
        if len(self.own) == 0:
            return numbers
        parts: Any = ()
        start = own = 0
        for k in range(len(self.sizes)):
            if self.apart[k]:
                parts = (*parts, self.own[own](x))
                own = own + 1
            else:
                parts = (*parts, numbers[:, start : start + self.sizes[k]])
                start = start + self.sizes[k]
        return arrays.concat(parts)

    def legality(self, x):
        """Logits (B, A) of the entries of the action mask, positive where the action is probably legal."""
        return self.own[self.mask](self.torso(x))

    def loss(self, predicted, leaves):
        """The loss, float32 (B,), of a prediction (B, n) of the leaves of an observation, (B, ...) each."""
        total = 0.0
        start = 0
        for k in range(len(self.sizes)):
            target = self.targets[k](primitives.item(leaves, k))
            made = predicted[:, start : start + self.sizes[k]]
            start = start + self.sizes[k]
            if self.is_mask[k]:
                total = total + ops.ReduceSum()(ops.Softplus()(made) - target * made, -1)
            elif len(self.choices[k]) == 0:
                total = total + ops.ReduceSum()(ops.Square()(made - target), -1)
            else:
                total = total + _cross_entropies(made, target, self.choices[k])
        return total


def _own_decoder(leaf: Leaf, features: int, model: Any, rng: np.random.Generator) -> Linear | ImageDecoder:
    if leaf.is_mask:
        return Linear(features, math.prod(leaf.field.shape), 1.0, rng)
    shape = leaf.space["shape"]
    return ImageDecoder(features, shape, layers_of(shape, model), rng)


class Predictions(nn.Cell):
    """All predictions of a world model: the next latents from h alone; the observation, the reward and the continuation
    of the episode from states."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.latents = Latents(model)
        self.prior_torso = hidden_layers(model.deter, model.hidden[-1:], model, rng)
        self.prior_logits = Linear(self.prior_torso.out_features, self.latents.size, 1.0, rng)
        features = model.deter + self.latents.size
        self.observation = Decoder(spec, features, model, rng)
        self.reward = TwoHotNumber(features, model, rng)
        self.continuation = Continuation(features, model, rng)

    def prior(self, h):
        """Probabilities (B S, C) of the latents, predicted from h (B, D)."""
        return self.latents.probability(self.prior_logits(self.prior_torso(h)))


def _cross_entropies(logits, target, sizes):
    """The sum of the cross-entropies of joined choices with these sizes, float32 (B,), from logits and one-hots, each
    (B, n)."""
    total = 0.0
    start = 0
    for size in sizes:
        log_p = ops.LogSoftmax(-1)(logits[:, start : start + size])
        total = total - ops.ReduceSum()(target[:, start : start + size] * log_p, -1)
        start = start + size
    return total
