"""MAPPO in one PyTorch file, in the manner of its authors' code (https://github.com/marlbenchmark/on-policy).

``python -m benchmarks.peers.mappo_style CASE`` prints one line of JSON. Same structure as there: agents that share an
actor, a critic that sees the observations of all agents, values normalized by running moments of the returns, a Huber
loss, GAE, shuffled minibatches, Adam with eps 1e-5. Faster than there: one process steps the environments, values of a
rollout are one forward pass, and actor and critic share one optimizer. No logging.
"""

from __future__ import annotations

import importlib
import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cases import MAPPOCase
from benchmarks.window import RunOptions, measure, parse_options


def mlp(sizes: list[int], head_gain: float) -> nn.Sequential:
    """Tanh network; `sizes` runs from the input to the output width."""
    layers: list[nn.Module] = []
    for place, (width_in, width_out) in enumerate(itertools.pairwise(sizes)):
        last = place == len(sizes) - 2
        layer = nn.Linear(width_in, width_out)
        nn.init.orthogonal_(layer.weight, head_gain if last else math.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh()]
    return nn.Sequential(*layers)


class Moments:
    """Running mean and deviation of the returns, without the bias of their start."""

    def __init__(self, decay: float) -> None:
        self.decay, self.weight, self.sums = decay, 0.0, torch.zeros(2)

    def update(self, values: Tensor) -> None:
        seen = torch.stack([values.mean(), values.square().mean()])
        self.sums = self.decay * self.sums + (1.0 - self.decay) * seen
        self.weight = self.decay * self.weight + (1.0 - self.decay)

    def read(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation; 0 and 1 at the start."""
        if not self.weight:
            return torch.zeros(()), torch.ones(())
        mean, square = self.sums / self.weight
        return mean, (square - mean.square()).clamp(min=1e-2).sqrt()


class Trainer:
    """Holds what lives on from one iteration to the next.

    Args:
      case: sizes and hyper-parameters.
      seed: seed of the networks and environments.
      total_steps: env steps until the learning rate reaches zero.
    """

    def __init__(self, case: MAPPOCase, seed: int, total_steps: int) -> None:
        self.case, self.total_steps, self.env_steps = case, total_steps, 0
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        package, _, name = case.env_id.partition("/")
        make = importlib.import_module(f"{package}.{name}").parallel_env
        self.envs = [make(max_cycles=case.episode_length) for _ in range(case.num_envs)]
        self.names = self.envs[0].possible_agents
        self.agents = len(self.names)
        self.features = self.envs[0].observation_space(self.names[0]).shape[0]
        actions = int(self.envs[0].action_space(self.names[0]).n)
        # The critic sees the agent's own observation, those of all, and which agent it is.
        seen = self.features * (1 + self.agents) + self.agents
        self.actor = mlp([self.features, *case.hidden, actions], head_gain=0.01)
        self.critic = mlp([seen, *case.hidden, 1], head_gain=1.0)
        self.params = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.params, case.learning_rate, eps=1e-5)
        self.moments = Moments(case.value_decay)
        episodes = case.rollout_length // case.episode_length * case.num_envs
        rows = (case.episode_length, episodes, self.agents)
        # Whole episodes, with what is seen at their end.
        self.obs = torch.zeros(case.episode_length + 1, *rows[1:], self.features)
        self.action = torch.zeros(rows, dtype=torch.int64)
        self.log_prob, self.reward = torch.zeros(rows), torch.zeros(rows)

    def train_for(self, env_steps: int) -> int:
        """See `benchmarks.window.TrainFor`."""
        start = self.env_steps
        while self.env_steps - start < env_steps:
            remaining = 1.0 - self.env_steps / self.total_steps
            self.optimizer.param_groups[0]["lr"] = remaining * self.case.learning_rate
            self.collect()
            self.learn(*self.advantages())
        return self.env_steps - start

    @torch.no_grad()
    def collect(self) -> None:
        """Fills the rollout."""
        case, envs = self.case, len(self.envs)
        for first in range(0, self.obs.shape[1], envs):
            part = slice(first, first + envs)
            # Written through NumPy, whose assignments of short rows take less time.
            obs, reward = self.obs[:, part].numpy(), self.reward[:, part].numpy()
            for n, env in enumerate(self.envs):
                seen, _ = env.reset(seed=int(self.rng.integers(2**31)))
                obs[0, n] = [seen[name] for name in self.names]
            for t in range(case.episode_length):
                log_probs = self.actor(self.obs[t, part]).log_softmax(-1)
                action = torch.multinomial(log_probs.exp().flatten(0, 1), 1).view(envs, self.agents, 1)
                self.action[t, part], self.log_prob[t, part] = action[..., 0], log_probs.gather(-1, action)[..., 0]
                for n, (env, chosen) in enumerate(zip(self.envs, action[..., 0].tolist())):
                    seen, rewards, _, _, _ = env.step(dict(zip(self.names, chosen)))
                    obs[t + 1, n] = [seen[name] for name in self.names]
                    reward[t, n] = [rewards[name] for name in self.names]
        self.env_steps += case.iteration_steps

    def central(self) -> Tensor:
        """What the critic sees, ``(T + 1, E, M, F)``."""
        state = self.obs.flatten(2)[:, :, None].expand(-1, -1, self.agents, -1)
        who = torch.eye(self.agents).expand(*self.obs.shape[:2], -1, -1)
        return torch.cat([self.obs, state, who], -1)

    @torch.no_grad()
    def advantages(self) -> tuple[Tensor, Tensor, Tensor]:
        """Generalized advantage estimation and returns, ``(T, E, M)``, and the inputs of the critic for these rows.

        All episodes are cut off by their limit, so that the value of what is seen at their end stands in for the rest.
        """
        case, central = self.case, self.central()
        mean, deviation = self.moments.read()
        value = self.critic(central)[..., 0] * deviation + mean
        delta = self.reward + case.gamma * value[1:] - value[:-1]
        advantage, last = torch.empty_like(delta), torch.zeros_like(delta[0])
        for t in reversed(range(case.episode_length)):
            advantage[t] = last = delta[t] + case.gamma * case.gae_lambda * last
        return advantage, advantage + value[:-1], central[:-1]

    def learn(self, advantage: Tensor, returns: Tensor, central: Tensor) -> None:
        """Makes epochs x minibatches gradient steps; see `advantages`."""
        case = self.case
        self.moments.update(returns)
        mean, deviation = self.moments.read()
        normalized = (returns - mean) / deviation
        flat = [x.flatten() for x in (self.action, self.log_prob, advantage, normalized)]
        obs, central = self.obs[:-1].flatten(0, 2), central.flatten(0, 2)
        for _ in range(case.epochs):
            for rows in torch.randperm(len(obs)).split(case.batch_size):
                loss = self.loss(obs[rows], central[rows], *(x[rows] for x in flat))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.params, case.grad_norm)
                self.optimizer.step()

    def loss(self, obs: Tensor, central: Tensor, *columns: Tensor) -> Tensor:
        """Clipped policy loss - entropy bonus + Huber value loss of one minibatch.

        Args:
          obs, central: inputs of both networks, float32 ``(B, F)``.
          columns: action, old log probability, advantage and normalized return, each ``(B,)``.
        """
        case = self.case
        action, old_log_prob, advantage, target = columns
        log_probs = self.actor(obs).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (log_probs.gather(-1, action[:, None])[:, 0] - old_log_prob).exp()
        clipped = ratio.clamp(1 - case.clip_ratio, 1 + case.clip_ratio)
        policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
        value_loss = nn.functional.huber_loss(self.critic(central)[:, 0], target, delta=case.huber_delta)
        return policy_loss - case.entropy_weight * entropy + case.value_weight * value_loss


def main() -> None:
    options: RunOptions = parse_options()
    case = options.case
    if not isinstance(case, MAPPOCase):
        raise SystemExit(f"expected a MAPPOCase, got {type(case).__name__} ({case.name})")
    torch.set_num_threads(case.threads)
    trainer = Trainer(case, options.seed, case.warmup_steps + case.window(options.scale))
    print(measure(options, "mappo_style", trainer.train_for).to_json())


if __name__ == "__main__":
    main()
