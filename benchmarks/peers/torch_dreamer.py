"""Dreamer in eager PyTorch: ``python -m benchmarks.peers.torch_dreamer POSTERIOR UPDATES``; prints milliseconds per
update as JSON.

POSTERIOR is `observation`, where one call of `nn.GRU` goes through a whole sequence, or `full`, the paper's, which goes
through it step by step. What is computed is what `policies/dreamer.py` says, draws of minibatches included; the sizes
are those of `benchmarks.dreamer_work`.
"""

from __future__ import annotations

import copy
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.dreamer_work import (
    ACTION,
    BATCH,
    BINS,
    CLASSES,
    CLIP,
    DECAY,
    DETER,
    ENTROPY,
    EPISODE,
    FREE_NATS,
    GAMMA,
    HORIZON,
    LAMBDA,
    LATENTS,
    LENGTH,
    LIMIT,
    MODEL_RATE,
    OBSERVATION,
    POSTERIOR_WEIGHT,
    PRIOR_WEIGHT,
    RATE,
    ROWS,
    SLOW,
    STARTS,
    UNIFORM,
    UNITS,
    rows,
    timed,
)

STATE = DETER + LATENTS * CLASSES


def mlp(inputs, layers, outputs=None):
    """Hidden layers with layer norm and ReLU, and a linear layer after them if `outputs` are given."""
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(inputs, UNITS), nn.LayerNorm(UNITS), nn.ReLU()]
        inputs = UNITS
    return nn.Sequential(*parts, *([] if outputs is None else [nn.Linear(inputs, outputs)]))


def symlog(x):
    return torch.sign(x) * torch.log1p(torch.abs(x))


def symexp(x):
    return torch.sign(x) * torch.expm1(torch.abs(x))


def probabilities(logits):
    """Of latents, (..., S, C), of which a share is uniform."""
    p = F.softmax(logits.unflatten(-1, (LATENTS, CLASSES)), -1)
    return (1.0 - UNIFORM) * p + UNIFORM / CLASSES


def draw(p):
    """One-hot latents (..., S C); gradients flow through them to the probabilities."""
    index = torch.multinomial(p.detach().reshape(-1, CLASSES), 1).view(p.shape[:-1])
    hot = F.one_hot(index, CLASSES).to(p.dtype)
    return (hot + p - p.detach()).flatten(-2)


def divergence(p, q):
    return (p * (p.log() - q.log())).sum((-2, -1))


class TwoHot(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(STATE, 2, BINS)
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.register_buffer("bins", torch.linspace(-LIMIT, LIMIT, BINS))

    def forward(self, state):
        return self.net(state)

    def number(self, logits):
        return symexp(F.softmax(logits, -1) @ self.bins)

    def target(self, number):
        place = (symlog(number).clamp(-LIMIT, LIMIT) + LIMIT) * ((BINS - 1) / (2.0 * LIMIT))
        return (1.0 - (place[..., None] - torch.arange(BINS)).abs()).clamp_min(0.0)


class World(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.full = full
        self.encoder = mlp(OBSERVATION, 2)
        self.posterior = mlp(UNITS + (DETER if full else 0), 1, LATENTS * CLASSES)
        self.mix = mlp(LATENTS * CLASSES + ACTION, 1)
        self.gru = nn.GRU(UNITS, DETER)
        self.prior = mlp(DETER, 1, LATENTS * CLASSES)
        self.decoder, self.continuation, self.reward = mlp(STATE, 2, OBSERVATION), mlp(STATE, 2, 1), TwoHot()

    def step(self, z, action, h):
        """The next h of (B, ...) rows: the GRU's cell, which one call of `nn.GRU` has more work around."""
        gru = self.gru
        given = self.mix(torch.cat([z, action], -1))
        return torch.gru_cell(given, h, gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)

    def unroll(self, obs, action, memory):
        """(h, z, probabilities of the latents), (T + 1, B, ...)."""
        seen = self.encoder(symlog(obs))
        h, z, done = memory.split([DETER, LATENTS * CLASSES, ACTION], -1)
        action = torch.cat([done[None], action])
        if not self.full:
            p = probabilities(self.posterior(seen))
            drawn = draw(p)
            given = self.mix(torch.cat([torch.cat([z[None], drawn[:-1]]), action], -1))
            return self.gru(given, h[None].contiguous())[0], drawn, p
        found = []
        for t in range(len(seen)):
            h = self.step(z, action[t], h)
            p = probabilities(self.posterior(torch.cat([seen[t], h], -1)))
            z = draw(p)
            found.append((h, z, p))
        return tuple(map(torch.stack, zip(*found)))

    def loss(self, batch):
        """The loss, and the states (T + 1, B, F). No sequence of this work is filled up."""
        obs = torch.cat([batch["obs"][:1], batch["next_obs"]])
        h, z, posterior = self.unroll(obs, batch["action"], batch["memory"][0])
        prior, state = probabilities(self.prior(h)), torch.cat([h, z], -1)
        to_prior = divergence(posterior.detach(), prior).clamp_min(FREE_NATS)
        to_posterior = divergence(posterior, prior.detach()).clamp_min(FREE_NATS)
        observation = (self.decoder(state) - symlog(obs)).square().sum(-1)
        later = state[1:]
        reward = -(self.reward.target(batch["reward"]) * F.log_softmax(self.reward(later), -1)).sum(-1)
        going = F.binary_cross_entropy_with_logits(self.continuation(later)[..., 0], batch["going"], reduction="none")
        trained = observation + PRIOR_WEIGHT * to_prior + POSTERIOR_WEIGHT * to_posterior
        return trained.mean() + (reward + going).mean(), state


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(STATE, 2, 2 * ACTION)

    def forward(self, state):
        mean, deviation = self.net(state).chunk(2, -1)
        return torch.tanh(mean), 0.1 + 0.9 * torch.sigmoid(deviation + 2.0)


class Dreamer:
    def __init__(self, full):
        self.world, self.actor, self.critic = World(full), Actor(), TwoHot()
        self.slow = copy.deepcopy(self.critic).requires_grad_(False)
        # Running sums of percentiles, and of their weights.
        self.range, self.seen = torch.zeros(2), 0.0
        self.optimizers = [
            (net, torch.optim.Adam(net.parameters(), lr=rate, eps=eps))
            for net, rate, eps in ((self.world, MODEL_RATE, 1e-8), (self.actor, RATE, 1e-5), (self.critic, RATE, 1e-5))
        ]
        self.data = rows()
        self.rng = np.random.default_rng(1)

    def draw_batch(self):
        """B windows of T rows, each within an episode, in the order of time."""
        episode = self.rng.integers(ROWS // EPISODE, size=BATCH)
        start = episode * EPISODE + self.rng.integers(EPISODE - LENGTH + 1, size=BATCH)
        index = start + np.arange(LENGTH)[:, None]
        names = ("obs", "next_obs", "action", "reward", "memory")
        batch = {name: torch.from_numpy(self.data[name][index]) for name in names}
        return {**batch, "going": 1.0 - torch.from_numpy(self.data["terminated"][index]).float()}

    @torch.no_grad()
    def imagine(self, state):
        """States (H + 1, N, F) and drawn actions (H, N, A)."""
        states, actions = [state], []
        for _ in range(HORIZON):
            mean, deviation = self.actor(state)
            drawn = mean + deviation * torch.randn_like(mean)
            h, z = state.split([DETER, LATENTS * CLASSES], -1)
            h = self.world.step(z, drawn.clamp(-1.0, 1.0), h)
            state = torch.cat([h, draw(probabilities(self.world.prior(h)))], -1)
            states.append(state)
            actions.append(drawn)
        return torch.stack(states), torch.stack(actions)

    @torch.no_grad()
    def judge(self, states, logits, going):
        """Returns, advantages over their scale, and weights, (H, N)."""
        reward = self.world.reward.number(self.world.reward(states[1:]))
        decay = GAMMA * torch.sigmoid(self.world.continuation(states[1:])[..., 0])
        value = self.critic.number(logits)
        found, returns = value[-1], []
        for t in reversed(range(HORIZON)):
            found = reward[t] + decay[t] * ((1.0 - LAMBDA) * value[t + 1] + LAMBDA * found)
            returns.append(found)
        returns = torch.stack(returns[::-1])
        ends = torch.quantile(returns.flatten(), torch.tensor([0.05, 0.95]))
        self.range, self.seen = DECAY * self.range + (1.0 - DECAY) * ends, DECAY * self.seen + (1.0 - DECAY)
        scale = ((self.range[1] - self.range[0]) / self.seen).clamp_min(1.0)
        weight = torch.cumprod(torch.cat([going[None], decay[:-1]]), 0)
        return returns, (returns - value[:-1]) / scale, weight

    def update(self):
        batch = self.draw_batch()
        model_loss, state = self.world.loss(batch)
        state, going = state.detach().flatten(0, 1), torch.cat([torch.ones(1, BATCH), batch["going"]]).flatten()
        start = torch.from_numpy(self.rng.permutation(len(state))[:STARTS])
        states, drawn = self.imagine(state[start])
        logits = self.critic(states)
        returns, advantage, weight = self.judge(states, logits, going[start])
        # Critic
        with torch.no_grad():
            target = self.critic.target(returns) + F.softmax(self.slow(states[:-1]), -1)
        critic_loss = -(weight * (target * F.log_softmax(logits[:-1], -1)).sum(-1)).mean()
        # Actor
        mean, deviation = self.actor(states[:-1])
        normal = torch.distributions.Normal(mean, deviation, validate_args=False)
        log_prob, entropy = normal.log_prob(drawn).sum(-1), normal.entropy().sum(-1)
        actor_loss = -(weight * (log_prob * advantage + ENTROPY * entropy)).mean()
        # Update
        for (net, optimizer), loss in zip(self.optimizers, (model_loss, actor_loss, critic_loss), strict=True):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.slow.parameters()), list(self.critic.parameters()), SLOW)
        return [float(loss.detach()) for loss in (model_loss, actor_loss, critic_loss)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dreamer, losses = Dreamer(sys.argv[1] == "full"), []
    figures = timed(lambda: losses.append(dreamer.update()), int(sys.argv[2]))
    print(json.dumps({**figures, "first_losses": losses[0], "last_losses": losses[-1]}))
