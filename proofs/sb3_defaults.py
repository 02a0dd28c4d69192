"""Stable-Baselines3 with no setting given: ``python -m proofs.sb3_defaults ALGORITHM ENVIRONMENT SEED STEPS ...``.

Prints one line of JSON for each number of steps, the last of which ends the training: the returns of 100 episodes of
the deterministic policy in an environment of its own, and the seconds of training until there. With ``--episodes N``
it plays N episodes. Runs where Stable-Baselines3 is installed, in one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor


def make(env_id: str) -> gym.Env[Any, Any]:
    """The environment of an id, or of `module:Class`."""
    if env_id.startswith("MinAtar/"):
        importlib.import_module("minatar.gym").register_envs()
    module, _, name = env_id.partition(":")
    return getattr(importlib.import_module(module), name)() if name else gym.make(env_id)


class Evaluations(BaseCallback):
    """Evaluates after some numbers of steps, outside the time of training."""

    def __init__(self, env_id: str, seed: int, steps: list[int], episodes: int) -> None:
        super().__init__()
        self.env_id, self.seed, self.steps, self.episodes = env_id, seed, steps, episodes
        self.started = time.perf_counter()
        self.paused = 0.0

    def evaluate(self, step: int) -> None:
        now = time.perf_counter()
        env = Monitor(make(self.env_id))
        env.reset(seed=1_000_000 + self.seed)
        returns, _ = evaluate_policy(self.model, env, n_eval_episodes=self.episodes, return_episode_rewards=True)
        print(
            json.dumps(
                {
                    "step": step,
                    "mean": round(float(np.mean(returns)), 3),
                    "std": round(float(np.std(returns)), 3),
                    "seconds": round(now - self.started - self.paused, 2),
                }
            ),
            flush=True,
        )
        self.paused += time.perf_counter() - now

    def _on_step(self) -> bool:
        # An update that is due at this step comes after it: the next step evaluates.
        if self.steps and self.num_timesteps > self.steps[0]:
            self.evaluate(self.steps.pop(0))
        return True


def main(algorithm: str, env_id: str, seed: int, steps: list[int], episodes: int) -> None:
    torch.set_num_threads(1)
    env = make(env_id)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, gym.spaces.Dict) else "MlpPolicy"
    model = getattr(stable_baselines3, algorithm)(policy, env, seed=seed, device="cpu")
    evaluations = Evaluations(env_id, seed, steps[:-1], episodes)
    model.learn(steps[-1], callback=evaluations)
    evaluations.evaluate(steps[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm")
    parser.add_argument("env_id")
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int, nargs="+")
    parser.add_argument("--episodes", type=int, default=100)
    main(**vars(parser.parse_args()))
