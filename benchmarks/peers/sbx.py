"""SBX, Stable-Baselines3 in JAX, on a case: ``python -m benchmarks.peers.sbx CASE``; prints one line of JSON.

What a case does not name stays at the library's default. SBX clips neither the value change of PPO nor the gradients
of DQN: where a case asks for it, this side does a little less work than the others.
"""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Case, DQNCase, PPOCase, QRDQNCase, RecurrentPPOCase, SACCase, TD3Case
from benchmarks.window import Measurement, RunOptions, keep_to_cores, parse_options

OPTIONS = parse_options() if __name__ == "__main__" else None
if OPTIONS is not None:
    keep_to_cores(OPTIONS.case.threads)

import flax.linen as nn  # noqa: E402
from sbx import DQN, PPO, SAC, TD3  # noqa: E402
from stable_baselines3.common.base_class import BaseAlgorithm  # noqa: E402

from benchmarks.peers import sb3  # noqa: E402


def ppo(case: PPOCase, common: dict[str, Any]) -> PPO:
    networks = {**sb3.tanh_networks(case), "activation_fn": nn.tanh}
    options = {key: value for key, value in sb3.ppo_options(case).items() if key != "clip_range_vf"}
    return PPO(**common, **options, policy_kwargs=networks)


def dqn(case: DQNCase, common: dict[str, Any]) -> DQN:
    options = {key: value for key, value in sb3.dqn_options(case).items() if key != "max_grad_norm"}
    return DQN(**common, **options)


def build(case: Case, common: dict[str, Any]) -> BaseAlgorithm:
    """Returns the model that does the work of `case`.

    Raises:
      TypeError: no model is known for this kind of case.
    """
    match case:
        case RecurrentPPOCase() | QRDQNCase():
            pass
        case PPOCase():
            return ppo(case, common)
        case DQNCase():
            return dqn(case, common)
        case SACCase():
            return SAC(**common, **sb3.sac_options(case))
        case TD3Case():
            return TD3(**common, **sb3.td3_options(case, common["env"].action_space.shape))
    raise TypeError(f"expected a case of PPO, DQN, SAC or TD3, got {type(case).__name__} ({case.name})")


def run_case(options: RunOptions) -> Measurement:
    """Builds the model of the case and times it."""
    return sb3.run_case(options, "sbx", build)


if __name__ == "__main__":
    assert OPTIONS is not None
    print(run_case(OPTIONS).to_json())
