"""A world model of a recurrent state and categorical latents, and an actor on its states.

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104; latents drawn from the observation alone: Samsami et
al., 2024 (R2I), https://arxiv.org/abs/2403.04253, section 3.2.

    h_t = GRU(mix(z_{t-1}, a_{t-1}), h_{t-1}),   z_t ~ q(z | o_t)  or with `full`  q(z | o_t, h_t),   prior p(z | h_t)

A state is (h, z), where z is a row of S one-hots of C classes. The memory of an environment is (h, z, a).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_world_model as numpy_forms
from minding.policies.acting.sampling import BoundedNormal, Categorical
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.recurrent import GRU
from minding.policies.ops import latents as maths
from minding.policies.ops import lean
from minding.policies.ops.distributions import categorical_log_prob_entropy, normal_log_prob_entropy
from minding.policies.ops.symlog import symlog

_SMALL = 0.01
"""Gain of the actor's last layer, so small that the initial policy is almost the same in all states."""


class SymlogEncoder(nn.Cell):
    """Features (B, F) of observation leaves: encoder, then hidden layers. `symlog` is applied to vectors first, unless
    they are normalized or the encoder is user-defined."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        leaves, as_given = observation_leaves(spec["observation"]), bool(model.encoder or model.normalize_obs)
        self.squeezed = tuple(is_vector(leaf) and not as_given for leaf in leaves)
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng)
        self.out_features = self.torso.out_features

    def construct(self, leaves):
        seen: Any = ()
        for k in range(len(self.squeezed)):
            x = lean.item(leaves, k)
            seen = (*seen, symlog(ops.Cast()(x, ms.float32)) if self.squeezed[k] else x)
        return self.torso(self.encoder(seen))

    def host(self) -> numpy_forms.SymlogEncoder:
        return numpy_forms.SymlogEncoder(self.squeezed, self.encoder.host(), self.torso.host())


def is_vector(leaf: Any) -> bool:
    """Whether a leaf holds numbers other than images and choices."""
    return not leaf.is_image and leaf.space["kind"] not in ("discrete", "multi_discrete")


class Latents(nn.Cell):
    """S choices of C classes each, from logits (B, S C); probabilities are rows (B S, C)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.choices, self.classes, self.uniform = model.latents, model.classes, model.unimix
        self.size = self.choices * self.classes
        self.table = ms.Tensor(np.eye(self.classes, dtype=np.float32))
        self.before = ms.Tensor(np.triu(np.ones((self.classes, self.classes), np.float32), 1))

    def probability(self, logits):
        return maths.mixed(ops.Reshape()(logits, (-1, self.classes)), self.uniform)

    def draw(self, probability, number):
        """Latents (B, S C), drawn with uniform numbers (B, S); gradients flow through them."""
        hot = maths.drawn(probability, ops.Reshape()(number, (-1,)), self.before, self.table)
        return ops.Reshape()(hot, (-1, self.size))

    def likeliest(self, probability):
        return ops.Reshape()(maths.likeliest(probability, self.table), (-1, self.size))

    def host(self) -> numpy_forms.Latents:
        return numpy_forms.Latents(self.choices, self.classes, self.uniform)


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

    def construct(self, x):
        return (ops.Log()(maths.mixed(self.linear(x), self.uniform)),)

    def draw(self, params, number):
        """Samples as rows (B, n) for the model, drawn with uniform numbers (B,)."""
        return maths.drawn(ops.Exp()(params[0]), number, self.before, self.table)

    def decided(self, params):
        """The actions without exploration, as rows (B, n)."""
        return maths.likeliest(params[0], self.table)

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
        return rng.random(shape, dtype=np.float32)

    def host(self) -> numpy_forms.MixedCategoricalHead:
        return numpy_forms.MixedCategoricalHead(self.linear.host(), self.uniform)


class BoundedNormalHead(nn.Cell):
    """Box actions in [-1, 1]; parameters: mean and standard deviation, each (B, A), of independent normals.

        mean = tanh(m),   deviation = low + (high - low) sigmoid(s + 2)

    A draw may lie outside the box: its likelihood is computed before clipping, and environment and model get the
    clipped action.
    """

    distribution = BoundedNormal()
    decision = Decision(0, "mean")
    LIMITS, SHIFT = (0.1, 1.0), 2.0

    def __init__(self, features: int, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        super().__init__()
        self.size = math.prod(shape)
        self.mean, self.deviation = (Linear(features, self.size, _SMALL, rng) for _ in range(2))
        self.sigmoid = ops.Sigmoid()

    def construct(self, x):
        low, high = self.LIMITS
        share = self.sigmoid(self.deviation(x) + self.SHIFT)
        return 2.0 * self.sigmoid(2.0 * self.mean(x)) - 1.0, low + (high - low) * share

    def draw(self, params, noise):
        """Samples, see `MixedCategoricalHead.draw`; the noise is standard normal, (B, A)."""
        return params[0] + params[1] * noise

    def decided(self, params):
        return params[0]

    def rows(self, action):
        return self.model_rows(ops.Reshape()(action, (-1, self.size)))

    def model_rows(self, drawn):
        return ops.clamp(drawn, -1.0, 1.0)

    def log_prob_entropy(self, params, drawn):
        return normal_log_prob_entropy(params[0], params[1], drawn)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.standard_normal((*shape, self.size), dtype=np.float32)

    def host(self) -> numpy_forms.BoundedNormalHead:
        return numpy_forms.BoundedNormalHead(self.mean.host(), self.deviation.host(), self.LIMITS, self.SHIFT)


class WorldActor(nn.Cell):
    """The acting network: the part of the world model that follows the environment, and the actor on its states.

    Takes the observation leaves, uniform numbers (B, S) in order to explore, and the memory rows, (h, z, a) of the
    previous step, float32 (B, D + S C + A). Returns the parameters of the head's distribution and the new memory rows,
    which contain the action without exploration; an actor that takes another action overwrites it.
    """

    shared_outputs = ()

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        action, wide = spec["action"], model.hidden[-1:]
        discrete = action["kind"] == "discrete"
        self.latents = Latents(model)
        acts = action["n"] if discrete else math.prod(action["shape"])
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
        self.head = (
            MixedCategoricalHead(features, action["n"], model.unimix, rng)
            if discrete
            else BoundedNormalHead(features, tuple(action["shape"]), rng)
        )
        self.memory_size = self.state_size + acts
        self.nothing = ms.Tensor(np.zeros((1, self.memory_size), np.float32))

    @property
    def noise_size(self) -> int:
        """Number of uniform numbers that the network takes to explore."""
        return self.latents.choices

    @property
    def decision(self) -> Decision:
        return self.head.decision

    def actor_cells(self) -> list[nn.Cell]:
        """The cells of the actor; the others belong to the world model."""
        return [self.policy, self.head]

    def construct(self, leaves):
        rows = leaves[-1]
        deter = self.memory.size
        h = self.step(rows[:, deter:], rows[:, :deter])
        probability = self.posterior(self.seen(leaves[: self.num_leaves]), h)
        if len(leaves) > self.num_leaves + 1:
            z = self.latents.draw(probability, leaves[self.num_leaves])
        else:
            z = self.latents.likeliest(probability)
        params = self.act(ops.Concat(-1)((h, z)))
        return (*params, ops.Concat(-1)((h, z, self.head.decided(params))))

    def step(self, before, h):
        """The next h (B, D), from the previous latent and action, joined (B, S C + A), and the previous h."""
        if self.memory.fused is None:
            return self.memory(self.mix(before), h)[0]
        # A sequence of one step takes one kernel.
        return self.memory.unroll(self.mix(before), h, ops.ZerosLike()(h[:, 0]))

    def posterior(self, seen, h):
        """Probabilities (B S, C) of the latents, from features of the observation (B, F) and h (B, D)."""
        x = ops.Concat(-1)((seen, h)) if self.is_full else seen
        return self.latents.probability(self.posterior_logits(self.posterior_torso(x)))

    def act(self, state):
        """Parameters of the head's distribution in states (B, D + S C)."""
        return self.head(self.policy(state))

    def unroll(self, seen, action, first, number):
        """The states of sequences.

        Args:
          seen: features of T + 1 observations of B sequences, (T B + B, F), ordered by time.
          action: actions taken after all observations but the last, as rows (T B, A).
          first: memory (B, D + S C + A) before the first observations.
          number: uniform numbers (T B + B, S).
        Returns:
          (h, z, probabilities of the latents) of T B + B states.
        """
        if self.is_full:
            return self.unroll_by_steps(seen, action, first, number)
        count, deter = first.shape[0], self.memory.size
        probability = self.posterior(seen, first)
        z = self.latents.draw(probability, number)
        before = ops.Concat(-1)((lean.part(z, 0, z.shape[0] - count), action))
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
            h = self.step(ops.Concat(-1)((z, lean.entry(action, t))), h)
            probability = self.posterior(lean.entry(seen, t), h)
            z = self.latents.draw(probability, lean.entry(number, t))
            hs, zs = lean.with_entry(hs, t, h), lean.with_entry(zs, t, z)
            ps = lean.with_entry(ps, t, ops.Reshape()(probability, (count, size)))
            t = t + 1
        rows = ops.Reshape()(ps, (-1, self.latents.classes))
        return ops.Reshape()(hs, (-1, deter)), ops.Reshape()(zs, (-1, size)), rows

    def no_states(self, steps, rows):
        """Zeros for `steps` steps of arrays like `rows`."""
        return ops.Tile()(ops.ExpandDims()(ops.ZerosLike()(rows), 0), (steps, 1, 1))

    def host(self) -> numpy_forms.WorldActor:
        posterior = (self.posterior_torso.host(), self.posterior_logits.host(), self.latents.host(), self.is_full)
        transition, policy = (self.mix.host(), self.memory.host()), (self.policy.host(), self.head.host())
        return numpy_forms.WorldActor(self.seen.host(), transition, posterior, policy)


def hidden_layers(features: int, sizes: list[int], model: Any, rng: np.random.Generator) -> MLP:
    """Hidden layers of these sizes, with activation and normalization from the section `policy.model`."""
    return MLP(features, sizes, model.activation, None, rng, model.norm)
