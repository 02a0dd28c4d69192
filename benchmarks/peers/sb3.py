"""Stable-Baselines3 on a case: ``python -m benchmarks.peers.sb3 CASE``; prints one line of JSON.

Environments come from `make_vec_env` (DummyVecEnv with a Monitor each), as its documentation shows. What a
case does not name stays at the library's default.
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

from benchmarks.cases import A2CCase, Case, DQNCase, PPOCase, ReplayCase, SACCase
from benchmarks.window import Measurement, RunOptions, measure, parse_options


def ppo(case: PPOCase, common: dict[str, Any]) -> PPO:
    return PPO(
        **common,
        n_steps=case.rollout_length,
        batch_size=case.batch_size,
        n_epochs=case.epochs,
        gae_lambda=case.gae_lambda,
        clip_range=case.clip_ratio,
        clip_range_vf=case.clip_ratio,
        ent_coef=case.entropy_weight,
        vf_coef=case.value_weight,
        max_grad_norm=case.grad_norm,
        policy_kwargs=tanh_networks(case),
    )


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
    return {
        "net_arch": {"pi": list(case.hidden), "vf": list(case.hidden)},
        "activation_fn": nn.Tanh,
    }


def replay_options(case: ReplayCase) -> dict[str, Any]:
    return {
        "batch_size": case.batch_size,
        "buffer_size": case.buffer_size,
        "learning_starts": case.learning_starts,
        "train_freq": case.iteration_steps,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(case.hidden)},
    }


def dqn(case: DQNCase, common: dict[str, Any]) -> DQN:
    return DQN(
        **common,
        **replay_options(case),
        target_update_interval=case.target_update_freq,
        exploration_initial_eps=case.eps,
        exploration_final_eps=case.eps,
        max_grad_norm=case.grad_norm,
    )


def sac(case: SACCase, common: dict[str, Any]) -> SAC:
    return SAC(**common, **replay_options(case), tau=case.tau)


def build(case: Case, seed: int) -> BaseAlgorithm:
    """Returns the model that does the work of `case`.

    Raises:
      TypeError: no model is known for this kind of case.
    """
    common: dict[str, Any] = {
        "policy": "MlpPolicy",
        "env": make_vec_env(case.env_id, n_envs=case.num_envs, seed=seed),
        "learning_rate": case.learning_rate,
        "gamma": case.gamma,
        "seed": seed,
        "device": "cpu",
    }
    match case:
        case PPOCase():
            return ppo(case, common)
        case A2CCase():
            return a2c(case, common)
        case DQNCase():
            return dqn(case, common)
        case SACCase():
            return sac(case, common)
    raise TypeError(f"expected a PPOCase, A2CCase, DQNCase or SACCase, got {type(case).__name__} ({case.name})")


def run_case(options: RunOptions) -> Measurement:
    """Builds the model of the case and times it."""
    torch.set_num_threads(options.case.threads)
    model = build(options.case, options.seed)

    def train_for(env_steps: int) -> int:
        before = model.num_timesteps
        model.learn(env_steps, reset_num_timesteps=False)
        return model.num_timesteps - before

    return measure(options, "sb3", train_for)


def main() -> None:
    print(run_case(parse_options()).to_json())


if __name__ == "__main__":
    main()
