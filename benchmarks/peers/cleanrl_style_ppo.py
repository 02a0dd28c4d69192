"""PPO in one PyTorch file, in the manner of CleanRL's `ppo.py`.

``python -m benchmarks.peers.cleanrl_style_ppo CASE`` prints one line of JSON. Same structure and
hyper-parameters as that script: synchronous vector environment that resets in the step of an end,
preallocated rollout tensors, GAE by a backward loop, shuffled minibatches, clipped policy and value losses,
gradient norm clipping, Adam with eps 1e-5, learning rate annealed to zero. No logging.
In cases with `envpool`, EnvPool's environments replace the vector environment. Images have the network of
`ppo_atari_envpool.py`, continuous actions the distribution of `ppo_continuous_action.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from benchmarks.cases import PPOCase
from benchmarks.window import RunOptions, measure, parse_options


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(sizes: list[int], head_gain: float) -> nn.Sequential:
    """Tanh network; `sizes` runs from the input to the output width."""
    layers: list[nn.Module] = []
    for width_in, width_out in itertools.pairwise(sizes[:-1]):
        layers += [orthogonal(nn.Linear(width_in, width_out), math.sqrt(2)), nn.Tanh()]
    return nn.Sequential(*layers, orthogonal(nn.Linear(sizes[-2], sizes[-1]), head_gain))


def encoder(case: PPOCase) -> nn.Sequential:
    """The convolutions of a case and the layer after them; nothing for observations of numbers."""
    layers: list[nn.Module] = []
    if case.image:
        channels, gain = case.image[0], math.sqrt(2)
        for filters, kernel, stride in case.convolutions:
            layers += [orthogonal(nn.Conv2d(channels, filters, kernel, stride), gain), nn.ReLU()]
            channels = filters
        layers.append(nn.Flatten())
        flat = nn.Sequential(*layers)(torch.zeros(1, *case.image)).shape[1]
        layers += [orthogonal(nn.Linear(flat, case.image_features), gain), nn.ReLU()]
    return nn.Sequential(*layers)


class Agent(nn.Module):
    """Separate networks for policy and value, of images after a common encoder."""

    def __init__(self, case: PPOCase, observation: gym.spaces.Box, action: gym.Space) -> None:
        super().__init__()
        self.encoder = encoder(case)
        # Bytes become numbers up to 1.
        self.scale = 255.0 if case.image else 1.0
        self.discrete = isinstance(action, gym.spaces.Discrete)
        inputs = case.image_features or math.prod(observation.shape)
        outputs = int(action.n) if isinstance(action, gym.spaces.Discrete) else math.prod(action.shape or ())
        self.actor = mlp([inputs, *case.hidden, outputs], head_gain=0.01)
        self.critic = mlp([inputs, *case.hidden, 1], head_gain=1.0)
        self.log_std = None if self.discrete else nn.Parameter(torch.zeros(outputs))

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns a sampled action ``(N, ...)``, its log probability ``(N,)`` and the value ``(N,)``."""
        distribution, value = self(obs)
        action = distribution.sample()
        return action, distribution.log_prob(action), value

    def evaluate(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns log probability, entropy and value, each ``(B,)``, of actions that were taken."""
        distribution, value = self(obs)
        return distribution.log_prob(action), distribution.entropy(), value

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        features = self.encoder(obs / self.scale)
        params = self.actor(features)
        value = self.critic(features).squeeze(-1)
        if self.log_std is None:
            return Categorical(logits=params), value
        return Independent(Normal(params, self.log_std.exp().expand_as(params)), 1), value

    def value(self, obs: Tensor) -> Tensor:
        return self(obs)[1]


@dataclasses.dataclass
class Rollout:
    """T steps of N environments; `done` tells whether the observation is the first of an episode."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    done: Tensor
    value: Tensor

    @classmethod
    def empty(cls, steps: int, num_envs: int, obs_shape: tuple[int, ...], action: gym.Space) -> Rollout:
        rows = (steps, num_envs)
        kind = torch.int64 if isinstance(action, gym.spaces.Discrete) else torch.float32
        floats = [torch.zeros(rows) for _ in range(4)]
        return cls(torch.zeros(rows + obs_shape), torch.zeros(rows + (action.shape or ()), dtype=kind), *floats)


def environments(case: PPOCase, seed: int) -> tuple[Any, gym.Space, gym.Space]:
    """The environments of a case, with the spaces of one of them."""
    if case.envpool:
        import envpool

        envs = envpool.make_gymnasium(case.env_id, num_envs=case.num_envs, seed=seed)
        return envs, envs.observation_space, envs.action_space
    envs = SyncVectorEnv(
        [lambda: RecordEpisodeStatistics(gym.make(case.env_id))] * case.num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    return envs, envs.single_observation_space, envs.single_action_space


class Trainer:
    """Holds what lives on from one iteration to the next.

    Args:
      case: sizes and hyper-parameters.
      seed: seed of the networks and environments.
      total_steps: env steps until the learning rate reaches zero.
    """

    def __init__(self, case: PPOCase, seed: int, total_steps: int) -> None:
        self.case = case
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.envs, observation, action = environments(case, seed)
        obs_shape = observation.shape
        self.action_space = action
        self.agent = Agent(case, observation, action)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=case.learning_rate, eps=1e-5)
        self.rollout = Rollout.empty(case.rollout_length, case.num_envs, obs_shape, action)
        self.next_obs = torch.Tensor((self.envs.reset() if case.envpool else self.envs.reset(seed=seed))[0])
        self.next_done = torch.zeros(case.num_envs)
        self.env_steps, self.total_steps = 0, total_steps

    def train_for(self, env_steps: int) -> int:
        start = self.env_steps
        while self.env_steps - start < env_steps:
            remaining = 1.0 - self.env_steps / self.total_steps
            self.optimizer.param_groups[0]["lr"] = remaining * self.case.learning_rate
            self.collect()
            advantage = self.advantages()
            self.learn(advantage, advantage + self.rollout.value)
        return self.env_steps - start

    @torch.no_grad()
    def collect(self) -> None:
        """Fills the rollout."""
        rollout = self.rollout
        for t in range(self.case.rollout_length):
            rollout.obs[t], rollout.done[t] = self.next_obs, self.next_done
            rollout.action[t], rollout.log_prob[t], rollout.value[t] = self.agent.act(self.next_obs)
            obs, reward, terminated, truncated, _ = self.envs.step(self.as_taken(rollout.action[t].numpy()))
            rollout.reward[t] = torch.as_tensor(reward)
            # EnvPool resets an environment in the step after its end, which does not count.
            resets = int(self.next_done.sum()) if self.case.envpool else 0
            self.next_obs = torch.Tensor(obs)
            self.next_done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
            self.env_steps += self.case.num_envs - resets

    def as_taken(self, action: np.ndarray) -> np.ndarray:
        """Actions as the environments take them: numbers inside their limits."""
        space = self.action_space
        return action.clip(space.low, space.high) if isinstance(space, gym.spaces.Box) else action

    @torch.no_grad()
    def advantages(self) -> Tensor:
        """Generalized advantage estimation, float32 ``(T, N)``."""
        rollout, gamma = self.rollout, self.case.gamma
        advantage = torch.zeros_like(rollout.reward)
        following, last = self.agent.value(self.next_obs), torch.zeros(self.case.num_envs)
        alive = 1.0 - self.next_done
        for t in reversed(range(self.case.rollout_length)):
            delta = rollout.reward[t] + gamma * following * alive - rollout.value[t]
            advantage[t] = last = delta + gamma * self.case.gae_lambda * alive * last
            following, alive = rollout.value[t], 1.0 - rollout.done[t]
        return advantage

    def learn(self, advantage: Tensor, returns: Tensor) -> None:
        """Makes epochs x minibatches gradient steps; both arguments are ``(T, N)``."""
        case, rollout = self.case, self.rollout
        obs = rollout.obs.flatten(0, 1)
        columns = (rollout.action, rollout.log_prob, rollout.value, advantage, returns)
        flat = [x.flatten(0, 1) for x in columns]
        rows = np.arange(len(obs))
        for _ in range(case.epochs):
            self.rng.shuffle(rows)
            for start in range(0, len(rows), case.batch_size):
                picked = rows[start : start + case.batch_size]
                loss = self.loss(obs[picked], *(x[picked] for x in flat))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), case.grad_norm)
                self.optimizer.step()

    def loss(self, obs: Tensor, *columns: Tensor) -> Tensor:
        """Clipped policy loss - entropy bonus + clipped value loss of one minibatch.

        Args:
          obs: float32 ``(B, ...)``.
          columns: action ``(B, ...)``, old log probability, old value, advantage and return, each ``(B,)``.
        """
        case = self.case
        action, old_log_prob, old_value, advantage, returns = columns
        log_prob, entropy, value = self.agent.evaluate(obs, action)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (log_prob - old_log_prob).exp()
        clipped_ratio = ratio.clamp(1 - case.clip_ratio, 1 + case.clip_ratio)
        policy_loss = -torch.min(advantage * ratio, advantage * clipped_ratio).mean()
        clipped_value = old_value + (value - old_value).clamp(-case.clip_ratio, case.clip_ratio)
        value_loss = 0.5 * torch.max((value - returns) ** 2, (clipped_value - returns) ** 2).mean()
        return policy_loss - case.entropy_weight * entropy.mean() + case.value_weight * value_loss


def build(options: RunOptions) -> Trainer:
    """Returns a trainer for the case.

    Raises:
      SystemExit: the case is not PPO.
    """
    case = options.case
    if not isinstance(case, PPOCase):
        raise SystemExit(f"cleanrl_style_ppo runs PPO cases only, got {case.name}; use benchmarks.peers.sb3")
    return Trainer(case, options.seed, case.warmup_steps + case.window(options.scale))


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.case.threads)
    print(measure(options, "cleanrl_style", build(options).train_for).to_json())


if __name__ == "__main__":
    main()
