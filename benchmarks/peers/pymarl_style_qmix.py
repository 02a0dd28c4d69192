"""QMIX in one PyTorch file, in the manner of PyMARL (https://github.com/oxwhirl/pymarl).

``python -m benchmarks.peers.pymarl_style_qmix CASE`` prints one line of JSON. Same structure as there: agents that
share a GRU cell, which the learner steps through whole episodes, hypernetworks of the state, double Q-learning, a
target that is copied now and then. Adam in place of RMSProp, and several environments that one process steps. No
logging.
"""

from __future__ import annotations

import copy
import importlib

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cases import QMIXCase
from benchmarks.window import RunOptions, measure, parse_options


class Agent(nn.Module):
    """Action values of one agent by its observation, last action and number."""

    def __init__(self, inputs: int, actions: int, case: QMIXCase) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, case.hidden[0])
        self.cell = nn.GRUCell(case.hidden[0], case.memory_size)
        self.last = nn.Linear(case.memory_size, actions)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = self.cell(torch.relu(self.first(x)), h)
        return self.last(h), h

    def unroll(self, x: Tensor) -> Tensor:
        """Values ``(T, B, A)`` for inputs ``(T, B, F)``."""
        h, found = x.new_zeros(x.shape[1], self.cell.hidden_size), []
        for each in x:
            q, h = self(each, h)
            found.append(q)
        return torch.stack(found)


class Mixer(nn.Module):
    """The value of a team by those of its agents, with weights that come from the state."""

    def __init__(self, agents: int, state: int, case: QMIXCase) -> None:
        super().__init__()
        size, hidden = case.mixer_size, case.hypernet_size
        self.agents, self.size = agents, size
        self.weight1 = nn.Sequential(nn.Linear(state, hidden), nn.ReLU(), nn.Linear(hidden, agents * size))
        self.weight2 = nn.Sequential(nn.Linear(state, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.bias1 = nn.Linear(state, size)
        self.bias2 = nn.Sequential(nn.Linear(state, size), nn.ReLU(), nn.Linear(size, 1))

    def forward(self, q: Tensor, state: Tensor) -> Tensor:
        """Values ``(B,)`` for ``(B, M)`` and ``(B, S)``."""
        weight1 = self.weight1(state).abs().view(-1, self.agents, self.size)
        mixed = nn.functional.elu(torch.bmm(q[:, None], weight1)[:, 0] + self.bias1(state))
        return (mixed * self.weight2(state).abs()).sum(-1) + self.bias2(state)[:, 0]


class Episodes:
    """Whole episodes, the oldest overwritten first; `sizes`: of an agent's observation and of the state."""

    def __init__(
        self, capacity: int, length: int, agents: int, sizes: tuple[int, int], rng: np.random.Generator
    ) -> None:
        features, state = sizes
        self.obs = np.zeros((capacity, length + 1, agents, features), np.float32)
        self.state = np.zeros((capacity, length + 1, state), np.float32)
        self.action = np.zeros((capacity, length, agents), np.int64)
        self.reward, self.terminated, self.filled = np.zeros((3, capacity, length), np.float32)
        self.count, self.capacity, self.rng = 0, capacity, rng

    def add(self, **values: np.ndarray) -> None:
        """Adds as many episodes as there are environments."""
        places = (self.count + np.arange(len(values["action"]))) % self.capacity
        for name, value in values.items():
            getattr(self, name)[places] = value
        self.count += len(places)

    def draw(self, size: int) -> list[Tensor]:
        """The fields of random episodes, with time first."""
        rows = self.rng.integers(0, min(self.count, self.capacity), size)
        fields = (self.obs, self.state, self.action, self.reward, self.terminated, self.filled)
        return [torch.from_numpy(field[rows]).transpose(0, 1) for field in fields]


class Trainer:
    """Holds what lives on from one iteration to the next."""

    def __init__(self, case: QMIXCase, seed: int) -> None:
        self.case = case
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        package, _, name = case.env_id.partition("/")
        make = importlib.import_module(f"{package}.{name}").parallel_env
        self.envs = [make(max_cycles=case.episode_length) for _ in range(case.num_envs)]
        self.names = self.envs[0].possible_agents
        self.agents, self.actions = len(self.names), int(self.envs[0].action_space(self.names[0]).n)
        features, state = self.envs[0].observation_space(self.names[0]).shape[0], self.envs[0].state_space.shape[0]
        self.agent = Agent(features + self.actions + self.agents, self.actions, case)
        self.mixer = Mixer(self.agents, state, case)
        self.target = copy.deepcopy(nn.ModuleList([self.agent, self.mixer]))
        self.params = [*self.agent.parameters(), *self.mixer.parameters()]
        self.optimizer = torch.optim.Adam(self.params, case.learning_rate)
        self.episodes = Episodes(
            case.buffer_size // case.episode_length, case.episode_length, self.agents, (features, state), self.rng
        )
        self.steps = 0

    def collect(self) -> None:
        """One episode in every environment."""
        case, envs = self.case, len(self.envs)
        seen = [env.reset(seed=int(self.rng.integers(2**31)))[0] for env in self.envs]
        rows = self.episodes
        obs = np.zeros((envs, *rows.obs.shape[1:]), np.float32)
        state = np.zeros((envs, *rows.state.shape[1:]), np.float32)
        action = np.zeros((envs, case.episode_length, self.agents), np.int64)
        reward, terminated = np.zeros((2, envs, case.episode_length), np.float32)
        h, last = torch.zeros(envs * self.agents, case.memory_size), torch.zeros(envs, self.agents, self.actions)
        who = torch.eye(self.agents).expand(envs, -1, -1)
        for t in range(case.episode_length + 1):
            for n in range(envs):
                obs[n, t] = [seen[n][name] for name in self.names]
                state[n, t] = obs[n, t].ravel()
            if t == case.episode_length:
                break
            x = torch.cat([torch.from_numpy(obs[:, t]), last, who], -1).flatten(0, 1)
            with torch.no_grad():
                q, h = self.agent(x, h)
            greedy = q.argmax(-1).numpy().reshape(envs, self.agents)
            drawn = self.rng.integers(0, self.actions, greedy.shape)
            action[:, t] = np.where(self.rng.random(greedy.shape) < case.eps, drawn, greedy)
            last = nn.functional.one_hot(torch.from_numpy(action[:, t]), self.actions).float()
            for n, env in enumerate(self.envs):
                seen[n], rewards, ends, _, _ = env.step(dict(zip(self.names, action[n, t].tolist())))
                reward[n, t], terminated[n, t] = sum(rewards.values()), all(ends.values())
        filled = np.ones_like(reward)
        rows.add(obs=obs, state=state, action=action, reward=reward, terminated=terminated, filled=filled)

    def inputs(self, obs: Tensor, action: Tensor) -> Tensor:
        """What agents take in, ``(T + 1, B M, F)``."""
        last = nn.functional.one_hot(action, self.actions).float()
        last = torch.cat([torch.zeros_like(last[:1]), last])
        who = torch.eye(self.agents).expand(*obs.shape[:2], -1, -1)
        return torch.cat([obs, last, who], -1).flatten(1, 2)

    def learn(self) -> None:
        """One gradient step."""
        case = self.case
        obs, state, action, reward, terminated, filled = self.episodes.draw(case.batch_size)
        x, shape = self.inputs(obs, action), (-1, case.batch_size, self.agents, self.actions)
        # Target
        q = self.agent.unroll(x).view(shape)
        target_agent, target_mixer = self.target
        with torch.no_grad():
            best = q[1:].argmax(-1, keepdim=True)
            following = target_agent.unroll(x).view(shape)[1:].gather(-1, best)[..., 0]
            total = target_mixer(following.flatten(0, 1), state[1:].flatten(0, 1)).view_as(reward)
            backup = reward + case.gamma * (1.0 - terminated) * total
        # Loss
        chosen = q[:-1].gather(-1, action[..., None])[..., 0]
        value = self.mixer(chosen.flatten(0, 1), state[:-1].flatten(0, 1)).view_as(reward)
        loss = ((value - backup).square() * filled).sum() / filled.sum()
        # Update
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, case.grad_norm)
        self.optimizer.step()
        self.steps += 1
        if self.steps % case.target_update_freq == 0:
            self.target.load_state_dict(nn.ModuleList([self.agent, self.mixer]).state_dict())

    def train_for(self, steps: int) -> int:
        """See `benchmarks.window.TrainFor`."""
        done = 0
        while done < steps:
            self.collect()
            done += self.case.iteration_steps
            if self.episodes.count * self.case.episode_length >= self.case.learning_starts:
                for _ in range(self.case.updates):
                    self.learn()
        return done


def main() -> None:
    options: RunOptions = parse_options()
    case = options.case
    if not isinstance(case, QMIXCase):
        raise SystemExit(f"expected a QMIXCase, got {type(case).__name__} ({case.name})")
    torch.set_num_threads(case.threads)
    print(measure(options, "pymarl_style", Trainer(case, options.seed).train_for).to_json())


if __name__ == "__main__":
    main()
