"""Networks and parts of networks that are made of layers, each described once for MindSpore and NumPy.

MindSpore compiles a composition's methods as those of a cell (see `networks.layers.Composed`), and acting runs them on
the NumPy forms of the cell's layers. Arrays are therefore either tensors or NumPy arrays, and what is done with them
besides calling layers, slicing and arithmetic are functions of ``self.xp``: `acting.arrays` or `ops.arrays`.

Networks are functions of the leaves of an observation, ``(B, ...)`` each. The cells' docstrings say what they compute.
A network of action values whose `value` is a layer and not None is dueling; `memory` and `mask` are None for networks
without them.
"""

from typing import Any

from minding.policies.acting.numpy_layers import Activated, Composition, Hidden

# Layers


class BatchRenorm(Composition):
    """Normalization by moving averages, see `crossq`."""

    made_of = "weight bias mean variance epsilon"

    def __call__(self, x):
        return (x - self.mean) / self.xp.sqrt(self.variance + self.epsilon) * self.weight + self.bias


class RenormedMLP(Activated, Hidden):
    """`MLP` whose input and activations are normalized by moving averages."""

    made_of = "layers norms renorms"

    def __call__(self, x, seed=None):
        x = self.renorms[0](x)
        for k in range(len(self.layers)):
            x = self.renorms[k + 1](self.activated(x, k))
        return x

    def activated(self, x, k):
        x = self.layers[k](x)
        if len(self.norms) > 0:
            x = self.norms[k](x)
        return self.activate(x)


class ResidualMLP(Composition, Hidden):
    """Residual blocks after a linear layer, then a normalization; see `networks.layers`."""

    made_of = "first norms wide narrow"

    def __call__(self, x, seed=None):
        x = self.first(x)
        for k in range(len(self.wide)):
            x = x + self.wide[k].into(self.narrow[k], self.norms[k](x))
        return self.norms[len(self.wide)](x)


class NoisyLinear(Composition):
    """y = mean(x) + f (deviation(e x)), where (e, f) are the layer's part of the noise, see
    `networks.return_distribution`."""

    made_of = "mean deviation in_features noise_size start"

    def __call__(self, x, noise=None):
        """y ``(B, out)`` for x ``(B, in)`` and the noise of the whole network; None: y for the means of the weights."""
        mean = self.mean(x)
        if noise is None:
            return mean
        middle = self.start + self.in_features
        inputs, outputs = noise[:, self.start : middle], noise[:, middle : self.start + self.noise_size]
        return mean + outputs * self.deviation(x * inputs)


class NoisyMLP(Activated):
    """Noisy linear layers with an activation after each."""

    made_of = "layers norms"

    def __call__(self, x, noise=None):
        for k in range(len(self.layers)):
            x = self.layers[k](x, noise)
            if len(self.norms) > 0:
                x = self.norms[k](x)
            x = self.activate(x)
        return x


# Memories


class Gated(Composition):
    made_of = "inputs recurrent out_features size"

    def __call__(self, x, rows):
        rows = self.step(self.inputs(x), rows)
        return self.features(rows), rows


class GRU(Gated):
    def step(self, given, rows):
        size = self.out_features
        kept = self.recurrent(rows)
        gates = self.xp.sigmoid(given[:, : 2 * size] + kept[:, : 2 * size])
        candidate = self.xp.tanh(given[:, 2 * size :] + gates[:, :size] * kept[:, 2 * size :])
        return candidate + gates[:, size:] * (rows - candidate)

    def features(self, rows):
        return rows

    def once(self, x, rows):
        """The rows after one step."""
        return self.step(self.inputs(x), rows)


class LSTM(Gated):
    def step(self, given, rows):
        size = self.out_features
        total = given + self.recurrent(rows[:, :size])
        gates = self.xp.sigmoid(total[:, : 3 * size])
        cell = gates[:, size : 2 * size] * rows[:, size:] + gates[:, :size] * self.xp.tanh(total[:, 3 * size :])
        return self.xp.concat((gates[:, 2 * size :] * self.xp.tanh(cell), cell))

    def features(self, rows):
        return rows[:, : self.out_features]


# Encoders


class Normalizer(Composition):
    made_of = "center scale"

    def __call__(self, x):
        return self.xp.clip((x - self.center) * self.scale, -10.0, 10.0)


class Vector(Composition):
    made_of = "out_features normalizer"

    def __call__(self, x):
        # In acting, integer and boolean observations arrive unconverted.
        if x.ndim != 2:
            x = x.reshape((-1, self.out_features))
        x = self.xp.floats(x)
        return x if self.normalizer is None else self.normalizer(x)


class OneHot(Composition):
    made_of = "tables"

    def __call__(self, x):
        x = x.reshape((-1, len(self.tables)))
        parts: Any = ()
        for k in range(len(self.tables)):
            parts = (*parts, self.xp.take(self.tables[k], x[:, k]))
        return self.xp.concat(parts)


class ObsEncoder(Activated):
    made_of = "encoders projections layers places"

    def __call__(self, leaves):
        if len(self.encoders) == 1:
            return self.encoders[0](leaves[self.places[0]])
        parts: Any = ()
        for k in range(len(self.encoders)):
            x = self.encoders[k](leaves[self.places[k]])
            if self.layers[k] is not None:
                x = self.activate(self.projections[self.layers[k]](x))
            parts = (*parts, x)
        return self.xp.concat(parts)


class AgentEncoder(Composition):
    made_of = "encoder place table"

    def __call__(self, leaves):
        own = (*leaves[: self.place], *leaves[self.place + 1 :])
        return self.xp.concat((self.encoder(own), self.xp.take(self.table, self.xp.reshape(leaves[self.place], (-1,)))))


class OwnEncoder(Composition):
    made_of = "cell places"

    def __call__(self, leaves):
        own: Any = ()
        for k in self.places:
            own = (*own, leaves[k])
        return self.cell(own)


class SymlogEncoder(Composition):
    made_of = "squeezed encoder torso"

    def __call__(self, leaves):
        seen: Any = ()
        for k in range(len(self.squeezed)):
            x = leaves[k]
            seen = (*seen, self.xp.symlog(self.xp.floats(x)) if self.squeezed[k] else x)
        return self.torso(self.encoder(seen))


# Heads


class LayerHead(Composition):
    made_of = "linear"

    def __call__(self, x):
        return (self.linear(x),)


class GaussianHead(LayerHead):
    made_of = "log_std"

    def __call__(self, x):
        return self.linear(x), self.log_std


class CompositeHead(Composition):
    made_of = "choices numbers"

    def __call__(self, x):
        return (*self.choices(x), *self.numbers(x))


class SquashedGaussianHead(Composition):
    made_of = "mean log_std clip"

    def __call__(self, x):
        return self.mean(x), self.clip(self.log_std(x))


class MixedChoicesHead(Composition):
    made_of = "parts starts stops"

    def __call__(self, x):
        made: Any = ()
        for part in self.parts:
            made = (*made, part(x)[0])
        return (self.xp.concat(made),)

    def of(self, joined, k):
        """The entries of choice k."""
        return joined[:, self.starts[k] : self.stops[k]]

    def decided(self, params):
        made: Any = ()
        for k in range(len(self.starts)):
            made = (*made, self.parts[k].decided((self.of(params[0], k),)))
        return self.xp.concat(made)


class BoundedNormalHead(Composition):
    made_of = "mean deviation"
    LIMITS, SHIFT = (0.1, 1.0), 2.0

    def __call__(self, x):
        low, high = self.LIMITS
        share = self.xp.sigmoid(self.deviation(x) + self.SHIFT)
        return self.xp.tanh(self.mean(x)), low + (high - low) * share

    def decided(self, params):
        """The actions without exploration, as rows (B, n)."""
        return params[0]


# Networks of a policy


class Masked(Composition):
    made_of = "mask"

    def legal(self, scores, leaves):
        """Scores (B, n), `ILLEGAL` where the observation's mask forbids the choice."""
        return scores if self.mask is None else self.mask(scores, leaves)


class Stochastic(Masked):
    made_of = "head"

    def params(self, x, obs):
        """The parameters of the distribution, from the last hidden layer."""
        params = self.head(x)
        return params if self.mask is None else (self.mask(params[0], obs), *params[1:])


class ActorCritic(Stochastic):
    made_of = "encoder memory actor critic value"

    def __call__(self, obs):
        if self.memory is None:
            return self.heads(self.encoder(obs), obs)
        features, rows = self.memory(self.encoder(obs[:-1]), obs[-1])
        return (*self.heads(features, obs), rows)

    def heads(self, features, obs):
        params = self.params(self.actor(features), obs)
        return (self.value(self.critic(features)), *params)


class Actor(Stochastic):
    made_of = "encoder torso"

    def __call__(self, obs):
        return self.params(self.torso(self.encoder(obs)), obs)


class DeterministicActor(Actor):
    made_of = "head"

    def __call__(self, obs):
        return (self.torso.into(self.head.linear, self.encoder(obs)),)


class StateValue(Composition):
    made_of = "encoder torso value"

    def __call__(self, obs):
        return self.torso.into(self.value, self.encoder(obs))


class SeparateActorCritic(Composition):
    made_of = "policy critic"

    def __call__(self, obs):
        return (self.critic(obs), *self.policy(obs))


class PolicyValue(Masked):
    made_of = "encoder torso policy critic value"

    def __call__(self, obs):
        features = self.torso(self.encoder(obs))
        logits, value = self.policy(features), self.value(self.critic(features))
        return self.legal(logits, obs), self.xp.reshape(value, (-1,))


class ReturnNetwork(Stochastic):
    made_of = "target scale choices table encoder memory torso"

    def __call__(self, obs):
        leaves, rows = obs[:-1], obs[-1]
        end = 1 + self.memory.size
        x = self.tokens(leaves, self.target - rows[:, :1], rows[:, end:])
        h, kept = self.memory(x, rows[:, 1:end])
        params = self.params(self.torso(h), leaves)
        return (*params, self.xp.concat((rows[:, :1], kept, self.decided(params))))

    def tokens(self, leaves, to_go, last):
        """Inputs of the transformer (B, F), from observations, returns to go (B, 1) and last actions (B, A)."""
        return self.xp.concat((self.encoder(leaves), to_go / self.divisor(), last))

    def divisor(self):
        """c, (1,); 1 before the first gradient step."""
        return self.scale + self.xp.floats(self.xp.equal(self.scale, 0.0))

    def decided(self, params):
        """The actions without exploration, as rows (B, A)."""
        if self.choices:
            return self.xp.take(self.table, self.xp.argmax(params[0]))
        return self.xp.clip(params[0], -1.0, 1.0)


# Networks of action values


class Dueling(Masked):
    made_of = "advantage value"

    def outputs(self, features):
        """The values (B, A) of features (B, F)."""
        q = self.advantage(features)
        return q if self.value is None else self.value(features) + q - self.xp.mean(q)


class QNetwork(Dueling):
    made_of = "encoder memory torso"

    def __call__(self, obs):
        if self.memory is None:
            return (self.values(self.encoder(obs), obs),)
        features, rows = self.memory(self.encoder(obs[:-1]), obs[-1])
        return self.values(features, obs), rows

    def values(self, features, obs):
        q = self.outputs(self.torso(features))
        return q if self.mask is None else self.mask(q, obs)


class QuantileMean(Composition):
    def __call__(self, atoms):
        return self.xp.mean(atoms, -1, False)


class ReturnDistribution(Masked):
    made_of = "shape encoder torso advantage value mean"

    def __call__(self, obs):
        return (self.action_values(obs),)

    def action_values(self, obs, noise=None):
        """Action values, float32 (B, A); for `noise` see `atoms`."""
        return self.values(self.atoms(obs, noise), obs)

    def atoms(self, obs, noise=None):
        """Distribution of each action's return, float32 (B, A, N): quantiles or logits."""
        advantage, value = self.streams(obs, noise)
        atoms = self.xp.reshape(advantage, self.shape)
        return atoms if value is None else self.xp.expand(value, 1) + atoms - self.xp.mean(atoms, 1)

    def streams(self, obs, noise):
        """Advantages, float32 (B, A N), and with `dueling` values (B, N), else None; for `noise` see `atoms`."""
        features = self.torso(self.encoder(obs))
        return self.advantage(features), None if self.value is None else self.value(features)

    def values(self, atoms, obs):
        """Action values (B, A) of these atoms."""
        return self.legal(self.mean(atoms), obs)


class NoisyReturnDistribution(ReturnDistribution):
    made_of = "num_leaves"

    def __call__(self, obs):
        if len(obs) > self.num_leaves:
            return (self.action_values(obs[: self.num_leaves], obs[-1]),)
        return (self.action_values(obs),)

    def streams(self, obs, noise):
        features = self.torso(self.encoder(obs), noise)
        return self.advantage(features, noise), None if self.value is None else self.value(features, noise)


class ImplicitQuantiles(Dueling):
    made_of = "cosines frequencies encoder torso embedding"

    def __call__(self, obs):
        # No input of the embedding depends on the observation; without `after`, its weights could be read too early.
        mean = self.xp.mean(self.embedding(self.xp.after(self.cosines, obs)), 0)
        return (self.legal(self.outputs(self.torso(self.encoder(obs)) * mean), obs),)

    def values_at(self, features, shares, fractions, obs):
        """Action values, float32 (B, A): means of quantiles at fractions (B, N), weighted by shares (B, N), for the
        features psi(s), float32 (B, F)."""
        mean = self.xp.total(self.embedded(fractions) * self.xp.expand(shares, -1), 1)
        return self.legal(self.outputs(features * mean), obs)

    def embedded(self, fractions):
        """phi, float32 (B, N, F), of fractions (B, N)."""
        rows, number = fractions.shape
        cosines = self.xp.cos(self.xp.expand(fractions, -1) * self.frequencies)
        embedded = self.embedding(self.xp.reshape(cosines, (rows * number, self.frequencies.shape[0])))
        return self.xp.reshape(embedded, (rows, number, embedded.shape[-1]))


class ProposedQuantiles(ImplicitQuantiles):
    made_of = "proposal until"

    def __call__(self, obs):
        features = self.torso(self.encoder(obs))
        shares, _, middles = self.proposed(features)
        return (self.values_at(features, shares, middles, obs),)

    def proposed(self, features):
        """q, tau and tau^, float32 (B, N) each, for the features psi(s), float32 (B, F)."""
        shares = self.xp.softmax(self.proposal(self.xp.still(features)))
        ends = self.xp.running_sum(shares, self.until)
        return shares, ends, ends - 0.5 * shares


class ParametrisedNetwork(Masked):
    made_of = "actor critic"

    def __call__(self, obs):
        numbers = self.actor(obs)[0]
        return self.legal(self.critic(numbers, obs), obs), numbers


# Networks of teams


class PopArt(Composition):
    made_of = "linear mean deviation"

    def __call__(self, x):
        """The normalized value, float32 (B,), for x (B, in)."""
        return self.linear(x)

    def raw(self, value):
        """Converts normalized values to units of the returns."""
        return value * self.deviation + self.mean


class CentralValue(Composition):
    made_of = "state agents torso value"

    def __call__(self, features, leaves):
        """The normalized value, see `PopArt`, from features and the leaves of `central_view`."""
        there = self.xp.expand(self.xp.floats(leaves[1]), -1)
        who = self.xp.take(self.agents, leaves[0])
        return self.value(self.torso(self.xp.concat((features * there, self.state(leaves[2:]) * there, who))))


class CentralActorCritic(Stochastic):
    made_of = "num_leaves encoder memory actor critic"

    def __call__(self, leaves):
        own, central = leaves[: self.num_leaves], leaves[self.num_leaves :]
        if self.memory is None:
            return self.outputs(self.encoder(own), own, central)
        features, rows = self.memory(self.encoder(own), leaves[-1])
        return (*self.outputs(features, own, central[:-1]), rows)

    def outputs(self, features, own, central):
        params = self.params(self.actor(features), own)
        if len(central) == 0:
            return params
        return (*params, self.critic.value.raw(self.critic(features, central)))


class CentralAgentActors(Composition):
    made_of = "actors place num_leaves encoder critic"

    def __call__(self, leaves):
        given, central = leaves[: self.num_leaves], leaves[self.num_leaves :]
        params = self.actors(given)
        if len(central) == 0:
            return params
        own = (*given[: self.place], *given[self.place + 1 :])
        return (*params, self.critic.value.raw(self.value(own, central)))

    def value(self, own, central):
        """The normalized value, float32 (B,), from leaves of the observation without `IDENTITY`, and of
        `central_view`."""
        return self.critic(self.encoder(own), central)


class AgentQNetwork(Masked):
    made_of = "kept action_table encoder torso memory values"

    def __call__(self, obs):
        leaves, rows = obs[:-1], obs[-1]
        kept: Any = ()
        h = self.features(leaves, rows[:, self.kept :])
        if self.memory is not None:
            h, rows = self.memory(h, rows[:, : self.kept])
            kept = (rows,)
        q = self.decided(h, leaves)
        return q, self.xp.concat((*kept, self.xp.take(self.action_table, self.xp.argmax(q))))

    def features(self, leaves, action):
        """The last hidden layer (B, F); `action` (B, A) as one-hot."""
        return self.torso(self.xp.concat((self.encoder(leaves), action)))

    def decided(self, h, leaves):
        return self.legal(self.values(h), leaves)


# Networks of models


class TwoHotNumber(Composition):
    made_of = "torso logits bins"

    def __call__(self, x):
        return self.logits(self.torso(x))

    def number(self, logits):
        """The number that the logits encode: float32 (B,)."""
        return self.xp.symexp(self.xp.product(self.xp.softmax(logits), self.bins))


class WorldActor(Composition):
    made_of = "num_leaves is_full seen mix memory posterior_torso posterior_logits latents policy head mask"

    def __call__(self, leaves):
        rows, deter = leaves[-1], self.memory.size
        h = self.step(rows[:, deter:], rows[:, :deter])
        logits = self.latent_logits(self.seen(leaves[: self.num_leaves]), h)
        z = self.latents(logits, leaves[self.num_leaves] if len(leaves) > self.num_leaves + 1 else None)
        params = self.act(self.xp.concat((h, z)))
        if self.mask is not None:
            params = (self.mask(params[0], leaves),)
        return (*params, self.xp.concat((h, z, self.head.decided(params))))

    def step(self, before, h):
        """The next h (B, D), from the previous latent and action, joined (B, S C + A), and the previous h."""
        return self.memory.once(self.mix(before), h)

    def latent_logits(self, seen, h):
        """Logits (B, S C) of the latents, from features of the observation (B, F) and h (B, D)."""
        x = self.xp.concat((seen, h)) if self.is_full else seen
        return self.posterior_logits(self.posterior_torso(x))

    def act(self, state):
        """Parameters of the head's distribution in states (B, D + S C)."""
        return self.head(self.policy(state))


class PlanningNetwork(Masked):
    made_of = "num_leaves seen first transition later reward value policy logits"

    def __call__(self, leaves):
        if len(leaves) > self.num_leaves:
            latent = self.follow(leaves[-1])
            logits, reward = self.policy_logits(latent), self.reward.number(self.reward(latent))
        else:
            latent = self.represent(leaves)
            logits = self.policy_logits(latent)
            reward = self.xp.zeros_like(logits[:, 0])
            logits = self.legal(logits, leaves)
        return logits, self.state_value(latent), latent, reward

    def represent(self, leaves):
        """Latents (B, D) of observations."""
        return self.scaled(self.first(self.seen(leaves)))

    def follow(self, rows):
        """The latents (B, D) that follow rows (latent, action), (B, D + A)."""
        return self.scaled(self.later(self.transition(rows)))

    def policy_logits(self, latent):
        return self.logits(self.policy(latent))

    def state_value(self, latent):
        """Values of latents, float32 (B,)."""
        return self.value.number(self.value(latent))

    def scaled(self, x):
        """Rows (B, D), each moved to [0, 1] by its minimum and maximum (appendix G)."""
        low = self.xp.least(x)
        return (x - low) / (self.xp.largest(x) - low + 1e-5)
