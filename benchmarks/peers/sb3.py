"""Stable-Baselines3 on a case: ``python -m benchmarks.peers.sb3 CASE``; prints one line of JSON.

Environments come from `make_vec_env` (DummyVecEnv with a Monitor each), as its documentation shows. What a
case does not name stays at the library's default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecTransposeImage
from torch import nn

from benchmarks.cases import A2CCase, Case, DQNCase, PPOCase, ReplayCase, SACCase, TD3Case
from benchmarks.frames import Frames
from benchmarks.window import Measurement, RunOptions, measure, parse_options


def ppo(case: PPOCase, common: dict[str, Any]) -> PPO:
    return PPO(**common, **ppo_options(case), policy_kwargs=tanh_networks(case))


def ppo_options(case: PPOCase) -> dict[str, Any]:
    return {
        "n_steps": case.rollout_length,
        "batch_size": case.batch_size,
        "n_epochs": case.epochs,
        "gae_lambda": case.gae_lambda,
        "clip_range": case.clip_ratio,
        "clip_range_vf": case.clip_ratio,
        "ent_coef": case.entropy_weight,
        "vf_coef": case.value_weight,
        "max_grad_norm": case.grad_norm,
    }


def a2c(case: A2CCase, common: dict[str, Any]) -> A2C:
    return A2C(
        **common,
        n_steps=case.rollout_length,
        gae_lambda=case.gae_lambda,
        ent_coef=case.entropy_weight,
        vf_coef=case.value_weight,
        max_grad_norm=case.grad_norm,
        use_rms_prop=False,
        policy_kwargs=tanh_networks(case),
    )


def tanh_networks(case: Case) -> dict[str, Any]:
    return {**images(case), "net_arch": {"pi": list(case.hidden), "vf": list(case.hidden)}, "activation_fn": nn.Tanh}


def replay_options(case: ReplayCase) -> dict[str, Any]:
    return {
        "batch_size": case.batch_size,
        "buffer_size": case.buffer_size,
        "learning_starts": case.learning_starts,
        "train_freq": case.iteration_steps,
        "gradient_steps": 1,
        "policy_kwargs": {**images(case), "net_arch": list(case.hidden)},
    }


class Convolutions(BaseFeaturesExtractor):
    """The convolutions of a case and the layer after them, in the manner of the library's `NatureCNN`."""

    def __init__(self, space: gym.spaces.Box, case: Case) -> None:
        super().__init__(space, case.image_features)
        channels, layers = case.image[0], []
        for filters, kernel, stride in case.convolutions:
            layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
            channels = filters
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, *case.image)).shape[1]
        self.linear = nn.Sequential(nn.Linear(flat, case.image_features), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.linear(self.convolutions(observations))


def images(case: Case) -> dict[str, Any]:
    """What the policy of a case with images is given; empty for one without."""
    if not case.image:
        return {}
    return {"features_extractor_class": Convolutions, "features_extractor_kwargs": {"case": case}}


def dqn(case: DQNCase, common: dict[str, Any]) -> DQN:
    return DQN(**common, **dqn_options(case))


def dqn_options(case: DQNCase) -> dict[str, Any]:
    return {
        **replay_options(case),
        "target_update_interval": case.target_update_freq,
        "exploration_initial_eps": case.eps,
        "exploration_final_eps": case.eps,
        "max_grad_norm": case.grad_norm,
    }


def sac(case: SACCase, common: dict[str, Any]) -> SAC:
    return SAC(**common, **sac_options(case))


def sac_options(case: SACCase) -> dict[str, Any]:
    return {**replay_options(case), "tau": case.tau}


def td3(case: TD3Case, common: dict[str, Any]) -> TD3:
    return TD3(**common, **td3_options(case, common["env"].action_space.shape))


def td3_options(case: TD3Case, action_shape: tuple[int, ...]) -> dict[str, Any]:
    return {
        **replay_options(case),
        "tau": case.tau,
        "policy_delay": case.policy_delay,
        "target_policy_noise": case.target_noise,
        "target_noise_clip": case.noise_clip,
        "action_noise": NormalActionNoise(np.zeros(action_shape), np.full(action_shape, case.sigma)),
    }


def build(case: Case, common: dict[str, Any]) -> BaseAlgorithm:
    """Returns the model that does the work of `case`.

    Raises:
      TypeError: no model is known for this kind of case.
    """
    match case:
        case PPOCase():
            return ppo(case, common)
        case A2CCase():
            return a2c(case, common)
        case DQNCase():
            return dqn(case, common)
        case SACCase():
            return sac(case, common)
        case TD3Case():
            return td3(case, common)
    raise TypeError(f"expected a case of a known kind, got {type(case).__name__} ({case.name})")


def environments(case: Case, seed: int) -> VecEnv:
    """The environments of a case."""
    make = functools.partial(Frames, case.image) if case.image else case.env_id
    made = make_vec_env(make, n_envs=case.num_envs, seed=seed)
    # The library guesses which axis of an image has the channels, and guesses wrong where there are more than rows.
    return VecTransposeImage(made, skip=True) if case.image else made


def run_case(
    options: RunOptions, name: str = "sb3", build: Callable[[Case, dict[str, Any]], BaseAlgorithm] = build
) -> Measurement:
    """Builds the model of the case and times it.

    Args:
      options: of the run.
      name: under which the result is reported.
      build: returns the model, given the case and what all models take.
    """
    case = options.case
    torch.set_num_threads(case.threads)
    common = {
        "policy": "CnnPolicy" if case.image else "MlpPolicy",
        "env": environments(case, options.seed),
        "learning_rate": case.learning_rate,
        "gamma": case.gamma,
        "seed": options.seed,
        "device": "cpu",
    }
    model = build(case, common)

    def train_for(env_steps: int) -> int:
        before = model.num_timesteps
        model.learn(env_steps, reset_num_timesteps=False)
        return model.num_timesteps - before

    return measure(options, name, train_for)


def main() -> None:
    print(run_case(parse_options()).to_json())


if __name__ == "__main__":
    main()
