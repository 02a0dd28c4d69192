"""XuanCe on MindSpore on a case: ``python -m benchmarks.peers.xuance CASE``; prints one line of JSON.

Networks have no part that policy and value share (`Basic_Identical`), as ours have none. What a case does not name
stays as in the library's own configuration of the environment. Records for TensorBoard are not written, as the other
sides write none.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import types
from typing import Any

from benchmarks.cases import Case, DQNCase, PPOCase, ReplayCase, SACCase
from benchmarks.window import Measurement, RunOptions, measure, parse_options


def settings(case: Case) -> tuple[str, dict[str, Any]]:
    """Name of the algorithm, and the settings that make it do the work of the case.

    Raises:
      TypeError: no algorithm is known for this kind of case.
    """
    hidden = list(case.hidden)
    match case:
        case PPOCase():
            return "PPO", {
                "actor_hidden_size": hidden,
                "critic_hidden_size": hidden,
                "activation": "tanh",
                "horizon_size": case.rollout_length,
                "n_epochs": case.epochs,
                "n_minibatch": case.minibatches,
                "learning_rate": case.learning_rate,
                "vf_coef": case.value_weight,
                "ent_coef": case.entropy_weight,
                "clip_range": case.clip_ratio,
                "gae_lambda": case.gae_lambda,
                "use_grad_clip": True,
                "grad_clip_norm": case.grad_norm,
            }
        case DQNCase():
            return "DQN", {
                **_replay(case),
                "q_hidden_size": hidden,
                "learning_rate": case.learning_rate,
                "start_greedy": case.eps,
                "end_greedy": case.eps,
                "sync_frequency": case.target_update_freq // case.iteration_steps,
                "use_grad_clip": True,
                "grad_clip_norm": case.grad_norm,
            }
        case SACCase():
            return "SAC", {
                **_replay(case),
                "actor_hidden_size": hidden,
                "critic_hidden_size": hidden,
                "learning_rate_actor": case.learning_rate,
                "learning_rate_critic": case.learning_rate,
                "tau": case.tau,
            }
    raise TypeError(f"expected a case of a known kind, got {type(case).__name__} ({case.name})")


def _replay(case: ReplayCase) -> dict[str, Any]:
    return {
        "activation": "relu",
        "buffer_size": case.buffer_size,
        "batch_size": case.batch_size,
        "start_training": case.learning_starts,
        "training_frequency": case.iteration_steps,
    }


def run_case(options: RunOptions) -> Measurement:
    """Builds the agent of the case and times it."""
    # The library imports wandb, whether it is used or not.
    sys.modules.setdefault("wandb", types.ModuleType("wandb"))
    from xuance.common import get_arguments
    from xuance.environment import make_envs
    from xuance.mindspore import REGISTRY_Agents

    case = options.case
    algorithm, own = settings(case)
    asked = {
        **own,
        "dl_toolbox": "mindspore",
        "device": "CPU",
        "representation": "Basic_Identical",
        "representation_hidden_size": [],
        "parallels": case.num_envs,
        "gamma": case.gamma,
        "seed": options.seed,
        "env_seed": options.seed,
        "render": False,
        "render_mode": None,
        "use_obsnorm": False,
        "use_rewnorm": False,
        "running_steps": 10**9,
    }
    with tempfile.TemporaryDirectory() as folder:
        # It writes into the current folder.
        os.chdir(folder)
        given = argparse.Namespace(**asked)
        config = get_arguments(algorithm.lower(), "classic_control", case.env_id, parser_args=given)
        agent = REGISTRY_Agents[algorithm](config, make_envs(config))
        agent.log_infos = lambda *args, **kwargs: None

        def train_for(env_steps: int) -> int:
            before = agent.current_step
            agent.train(-(-env_steps // case.num_envs))
            return int(agent.current_step - before)

        return measure(options, "xuance", train_for)


def main() -> None:
    print(run_case(parse_options()).to_json())


if __name__ == "__main__":
    main()
