"""Dreamer: an actor and a critic that learn in the imagination of a learned world model.

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, eq. 2 to 7; latents from the observation alone:
Samsami et al., 2024 (R2I), https://arxiv.org/abs/2403.04253.

    h_t = GRU(z_{t-1}, a_{t-1}, h_{t-1}),   z_t ~ q(z | o_t),   s_t = (h_t, z_t)
    L_model = -log p(o_t | s_t) - log p(r_t | s_{t+1}) - log p(c_{t+1} | s_{t+1})
              + w_p max(f, KL(sg(q) || p(z | h_t))) + w_q max(f, KL(q || sg(p(z | h_t))))
    R_t = r_{t+1} + gamma c_{t+1} ((1 - lambda) v(s_{t+1}) + lambda R_{t+1})            in imagination, H steps
    L_actor = -mean[ w_t (log pi(a_t|s_t) sg((R_t - v(s_t)) / S) + eta H(pi(s_t))) ],    S = max(1, P95(R) - P5(R))
    L_critic = mean[ w_t (CE(twohot(R_t), v(s_t)) + CE(v_slow(s_t), v(s_t))) ],    w_t = prod_{k<=t} gamma c_k / gamma

A sequence of T transitions has T + 1 states: one for each observation, and the state after the last transition. It
starts from the state that was recorded before it, or from zeros. Padding of sequences is left out of all losses. The
gradients of all three losses are computed at the same parameters, which are then updated.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.acting.actors import Actor, Network
from minding.policies.acting.sampling import uniform_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.world_model import Predictions, TwoHotNumber, WorldActor
from minding.policies.ops import primitives
from minding.policies.ops.imagination import (
    NO_RANGE,
    balanced,
    lambda_returns,
    mean_entropy,
    percentiles,
    reach_weights,
    running_range,
    width,
)
from minding.policies.ops.primitives import after
from minding.policies.settings.search_and_models import DreamerSettings

OF_MODEL = ("model_loss", "observation_loss", "reward_loss", "continuation_loss", "divergence", "prior_entropy")
OF_BEHAVIOR = ("actor_loss", "critic_loss", "entropy", "imagined_return", "value", "return_scale")
GROUPS = ("model", "actor", "critic")
EVALUATION = ("returns", "value", "weight", "scale")
"""Results of imagined steps: returns, the critic's values and weights, float32 (H, N) each; scale of returns, (1,)."""
PERCENTILES = (0.05, 0.95)


class DreamerCell(GradientStep):
    """Root cell: world model, actor, critic and its slow copy, the range of returns, and optimizer.

    Rows are sequences, (T, B). A state (h, z) is a row of F numbers.
    """

    metrics = (*OF_MODEL, *OF_BEHAVIOR, *(f"grad_norm_{name}" for name in GROUPS))

    def __init__(
        self, net: WorldActor, model: Predictions, critics: tuple[TwoHotNumber, TwoHotNumber], learn: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.net, self.model = net, model
        self.critic, self.slow = critics
        self.stored, self.masked = learn["context"] == "stored", net.mask is not None
        self.returns = ms.Parameter(ms.Tensor(NO_RANGE), name="returns", requires_grad=False)
        self.horizon, self.dynamics = learn["horizon"], learn["actor_gradient"] == "dynamics"
        self.gamma, self.td_lambda = learn["gamma"], learn["td_lambda"]
        self.free, self.prior_weight, self.posterior_weight = (
            learn[key] for key in ("free_nats", "prior_weight", "posterior_weight")
        )
        self.entropy_weight, self.return_decay = learn["entropy_weight"], learn["return_decay"]
        self.scales = bool(learn["return_scale"])
        acting = [*net.policy.trainable_params(), *net.head.trainable_params()]
        of_actor = {id(p) for p in acting}
        params = {
            "model": [p for p in (*net.trainable_params(), *model.trainable_params()) if id(p) not in of_actor],
            "actor": acting,
            "critic": self.critic.trainable_params(),
        }
        self.optim = Optimizer(**{name: _group(name, params[name], learn) for name in GROUPS})
        self.move_slow = SoftTarget(self.critic, self.slow, self.optim.block("critic"))
        self.model_gradient = self.optim.gradient(self.loss_of_model, "model")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")
        self.critic_gradient = self.optim.gradient(self.loss_of_critic, "critic")

    def construct(self, batch):
        # World model
        sequences = self.sequences(batch)
        (_, model), model_grads = self.model_gradient(sequences)
        # Imagination
        dream = {
            "state": ops.Gather()(ops.stop_gradient(model["state"]), batch["start"], 0),
            "going": ops.Gather()(sequences["going"], batch["start"], 0),
            "latent_number": batch["dream_latent"],
            "action_noise": batch["dream_action"],
        }
        if self.dynamics:
            (_, actor), actor_grads = self.actor_gradient(dream)
            dream["states"] = actor["states"]
            (_, critic), critic_grads = self.critic_gradient(dream)
        else:
            dream["states"], drawn = self.imagine(dream)
            (_, critic), critic_grads = self.critic_gradient(dream)
            evaluated = {"states": dream["states"], "drawn": drawn}
            for name in EVALUATION:
                evaluated[name] = critic[name]
            (_, actor), actor_grads = self.actor_gradient(evaluated)
        metrics: Any = {}
        for name in OF_MODEL:
            metrics[name] = model[name]
        metrics["actor_loss"], metrics["entropy"] = actor["actor_loss"], actor["entropy"]
        metrics["critic_loss"], metrics["value"] = critic["critic_loss"], _mean(critic["value"])
        metrics["imagined_return"] = _mean(critic["returns"])
        metrics["return_scale"] = after(primitives.mean(critic["scale"]), ops.assign(self.returns, critic["range"]))
        # Update
        grads = {"model": model_grads, "actor": actor_grads, "critic": critic_grads}
        norms = self.optim(grads, batch, (metrics, grads))
        for name in GROUPS:
            metrics[f"grad_norm_{name}"] = norms[name]
        metrics["grad_norm_critic"] = after(norms["critic"], self.move_slow(batch["tau"], norms["critic"]))
        return metrics

    # World model

    def sequences(self, batch):
        """The training data of the world model, by name, for T + 1 observations of B sequences, ordered by time."""
        steps, count = batch["index"].shape
        seen: Any = ()
        for k in range(self.net.num_leaves):
            first = primitives.part(primitives.item(batch["obs"], k), 0, count)
            seen = (*seen, ops.Concat(0)((first, primitives.item(batch["next_obs"], k))))
        action, filled = self.net.head.rows(batch["action"]), ops.Reshape()(batch["filled"], (steps * count,))
        number = batch["latent_number"]
        there = ops.OnesLike()(primitives.part(filled, 0, count))
        going = 1.0 - batch["terminated"]
        if self.stored:
            first = primitives.part(batch["memory"], 0, count)
        else:
            first = ops.Tile()(self.net.nothing, (count, 1))
        return {
            "seen": seen,
            "action": action,
            "first": first,
            "number": number,
            "filled": filled,
            "there": ops.Concat(0)((there, filled)),
            "reward": batch["reward"],
            "going": ops.Concat(0)((there, going)),
        }

    def loss_of_model(self, batch):
        """The loss of the world model on `sequences`, and by name its parts and the states (T B + B, F)."""
        seen, first = batch["seen"], batch["first"]
        count, rows = first.shape[0], batch["filled"].shape[0]
        h, z, posterior = self.net.unroll(self.net.seen(seen), batch["action"], first, batch["number"])
        prior, state = self.model.prior(h), ops.Concat(-1)((h, z))
        to_prior, to_posterior, divergence = balanced(posterior, prior, self.net.latents.choices, self.free)
        observation = self.model.observation.loss(self.model.observation(state), seen)
        # Reward and continuation of a transition are predicted from the state to which it led.
        later, going = primitives.part(state, count, rows), primitives.part(batch["going"], count, rows)
        reward = self.model.reward.loss(self.model.reward(later), self.model.reward.target(batch["reward"]))
        ending = self.model.continuation.loss(self.model.continuation(later), going)
        there = batch["there"] / primitives.mean(batch["there"])
        filled = batch["filled"] / primitives.mean(batch["filled"])
        trained = observation + self.prior_weight * to_prior + self.posterior_weight * to_posterior
        loss = primitives.mean(there * trained) + primitives.mean(filled * (reward + ending))
        return loss, {
            "model_loss": loss,
            "observation_loss": primitives.mean(there * observation),
            "reward_loss": primitives.mean(filled * reward),
            "continuation_loss": primitives.mean(filled * ending),
            "divergence": primitives.mean(there * divergence),
            "prior_entropy": mean_entropy(prior, self.net.latents.choices),
            "state": state,
        }

    # Behavior

    def act(self, state):
        """Parameters of the actor's distribution in imagined states; the model predicts which actions are legal."""
        params = self.net.act(state)
        if not self.masked:
            return params
        return self.net.head.allowed(params, ops.stop_gradient(self.model.observation.legality(state)))

    def imagine(self, dream):
        """Imagines H steps from N states, by `dream`: the states `state` (N, F), and the random numbers of all draws,
        `latent_number` and `action_noise`. Returns states ((H + 1) N, F) and draws from the actor (H N, A), ordered by
        time."""
        state, number, noise = dream["state"], dream["latent_number"], dream["action_noise"]
        count, deter = state.shape[0], self.net.memory.size
        states: Any = (state,)
        actions: Any = ()
        for t in range(self.horizon):
            drawn = self.net.head.draw(self.act(state), primitives.part(noise, t * count, count))
            before = ops.Concat(-1)((state[:, deter:], self.net.head.model_rows(drawn)))
            h = self.net.step(before, state[:, :deter])
            z = self.net.latents.draw(self.model.prior(h), primitives.part(number, t * count, count))
            state = ops.Concat(-1)((h, z))
            states, actions = (*states, state), (*actions, drawn)
        return ops.Concat(0)(states), actions[0] if self.horizon == 1 else ops.Concat(0)(actions)

    def evaluated(self, states, logits, going):
        """`EVALUATION` of imagined states by name, and `range` (3,), the updated range of the returns; `going`: float32
        (N,), 0 if the first state ended its episode, else 1."""
        count = going.shape[0]
        later, shape = primitives.part(states, count, self.horizon * count), (self.horizon, count)
        reward = ops.Reshape()(self.model.reward.number(self.model.reward(later)), shape)
        decay = self.gamma * ops.Reshape()(ops.Sigmoid()(self.model.continuation(later)), shape)
        value = ops.Reshape()(self.critic.number(logits), (self.horizon + 1, count))
        returns = lambda_returns(reward, decay, primitives.part(value, 1, self.horizon), self.td_lambda)
        found = percentiles(ops.Reshape()(ops.stop_gradient(returns), (-1,)), PERCENTILES)
        running = running_range(self.returns, found, self.return_decay)
        return {
            "returns": returns,
            "value": ops.stop_gradient(primitives.part(value, 0, self.horizon)),
            "weight": ops.stop_gradient(reach_weights(going, decay)),
            "scale": width(running, 1.0) if self.scales else ops.OnesLike()(primitives.part(running, 0, 1)),
            "range": running,
        }

    def loss_of_critic(self, dream):
        """The loss of the critic, which learns the returns and is regularized towards its slow copy; and by name the
        results of `evaluated` without gradient."""
        states = ops.stop_gradient(dream["states"])
        logits = self.critic(states)
        evaluated = self.evaluated(states, ops.stop_gradient(logits), dream["going"])
        returns = ops.stop_gradient(evaluated["returns"])
        rows = returns.shape[0] * returns.shape[1]
        slow = ops.Softmax(-1)(self.slow(primitives.part(states, 0, rows)))
        target = self.critic.target(ops.Reshape()(returns, (-1,))) + slow
        loss = primitives.mean(
            ops.Reshape()(evaluated["weight"], (-1,)) * self.critic.loss(primitives.part(logits, 0, rows), target)
        )
        made = {"critic_loss": loss, "returns": returns}
        for name in ("value", "weight", "scale", "range"):
            made[name] = evaluated[name]
        return loss, made

    def loss_of_actor(self, dream):
        """The loss of the actor on imagined states and the results of `evaluated`. If gradients flow through the world
        model (`dynamics`), the states are imagined here and returned as `states`."""
        made: Any = {}
        if self.dynamics:
            states, drawn = self.imagine(dream)
            evaluated = self.evaluated(states, self.critic(states), dream["going"])
            made["states"] = ops.stop_gradient(states)
        else:
            states, drawn, evaluated = dream["states"], dream["drawn"], dream
        returns = evaluated["returns"]
        rows = returns.shape[0] * returns.shape[1]
        params = self.act(ops.stop_gradient(primitives.part(states, 0, rows)))
        log_prob, entropy = self.net.head.log_prob_entropy(params, ops.stop_gradient(drawn))
        if self.dynamics:
            gain = ops.Reshape()(returns / evaluated["scale"], (-1,))
        else:
            gain = log_prob * ops.Reshape()((returns - evaluated["value"]) / evaluated["scale"], (-1,))
        loss = -primitives.mean(ops.Reshape()(evaluated["weight"], (-1,)) * (gain + self.entropy_weight * entropy))
        made["actor_loss"], made["entropy"] = loss, primitives.mean(ops.stop_gradient(entropy))
        return loss, made


def _mean(x):
    return primitives.mean(ops.Reshape()(x, (-1,)))


def _group(name: str, params: list[ms.Parameter], learn: Mapping[str, Any]) -> Group:
    rate = learn["learning_rate"] if name == "model" else learn[f"{name}_learning_rate"]
    eps = 1e-8 if name == "model" else 1e-5
    return Group.of(params, learn, rate=rate, eps=eps, max_grad_norm=learn["grad_norm"])


class Dreamer(BasePolicy):
    """Dreamer for Discrete and MultiDiscrete actions, also with masks, and for Box actions in [-1, 1]."""

    cfg: DreamerSettings
    name = "dreamer"
    sequences = True
    root: DreamerCell

    def make_network(self, rng: np.random.Generator) -> WorldActor:
        return WorldActor(self.spec, self.cfg.model, rng)

    def make_root(self, net: WorldActor, rng: np.random.Generator) -> DreamerCell:
        model = self.cfg.model
        predictions = Predictions(self.spec, model, rng)
        critic, slow = (TwoHotNumber(net.state_size, model, rng) for _ in range(2))
        root = DreamerCell(net, predictions, (critic, slow), self.cfg.learn)
        equalize(critic, slow)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> Actor:
        actor = super().make_actor(network, rng)
        actor.noise_size, actor.draw_noise, actor.remembers_action = self.net.noise_size, uniform_noise, True
        return actor

    @property
    def row_fields(self) -> dict[str, Field]:
        rows = {name: field for name, field in self.transition_fields.items() if name != "discount"}
        return {**rows, "memory": Field((self.net.memory_size,))} if self.root.stored else rows

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, rng, horizon = self.cfg.learn, self.learn_rng, self.cfg.learn.horizon
        steps, length, count = batch.index.shape
        filled = batch.filled if isinstance(batch, SequenceBatch) else np.ones(batch.index.shape, np.bool_)
        starts, choices = min(learn.starts, (length + 1) * count), self.net.noise_size
        dreams = (steps, horizon * starts)
        named = {
            "filled": filled.astype(np.float32),
            "latent_number": uniform_noise((steps, (length + 1) * count, choices), rng),
            "start": np.stack([start_states(each, starts, rng) for each in filled]),
            "dream_latent": uniform_noise((*dreams, choices), rng),
            "dream_action": self.net.head.noise(dreams, rng),
        }
        return Inputs(named, self.constants(progress))


def start_states(filled: Array, starts: int, rng: np.random.Generator) -> Array:
    """Indices of the states from which imagination starts, int32 (N,); none is drawn again before all were drawn.
    `filled`: bool (T, B), false for padding of sequences. Each row leads to a state, and the first one also starts from
    a state."""
    there = np.flatnonzero(np.concatenate([np.ones_like(filled[:1]), filled]))
    drawn = [rng.permutation(there) for _ in range(-(-starts // len(there)))]
    return np.concatenate(drawn)[:starts].astype(np.int32)
