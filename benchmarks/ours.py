"""minding on a case: ``python -m benchmarks.ours CASE [KEY=VALUE ...]``; prints one line of JSON.

Keys of the configuration that follow change what a case sets, such as ``env.backend=sync``.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import (
    A2CCase,
    Case,
    DQNCase,
    MAPPOCase,
    OfflineCase,
    PPOCase,
    QMIXCase,
    QRDQNCase,
    RecurrentPPOCase,
    ReplayCase,
    SACCase,
    TD3Case,
)
from benchmarks.recorded import episodes
from benchmarks.window import Measurement, RunOptions, keep_to_cores, measure, parse_options

PRESETS = {
    "ppo_cartpole_8": "cartpole_ppo",
    "ppo_cartpole_64": "cartpole_ppo",
    "ppo_cartpole_64_envpool": "cartpole_ppo",
    "ppo_pong_envpool": "pong_ppo",
    "ppo_halfcheetah_envpool": "hopper_ppo",
    "ppo_cartpole_256": "cartpole_ppo",
    "ppo_cartpole_1024": "cartpole_ppo",
    "recurrent_ppo_cartpole": "cartpole_ppo",
    "a2c_cartpole": "cartpole_a2c",
    "dqn_cartpole": "cartpole_dqn",
    "ppo_pixels": "pong_ppo",
    "dqn_pixels": "pong_dqn",
    "ppo_minatar": "pong_ppo",
    "ppo_minigrid": "pong_ppo",
    "dqn_minatar": "pong_dqn",
    "qrdqn_cartpole": "cartpole_qrdqn",
    "sac_pendulum": "pendulum_sac",
    "sac_pendulum_64": "pendulum_sac",
    "sac_pendulum_1024": "pendulum_sac",
    "sac_halfcheetah": "halfcheetah_sac",
    "sac_pendulum_two_threads": "pendulum_sac",
    "sac_halfcheetah_two_threads": "halfcheetah_sac",
    "td3_pendulum": "pendulum_td3",
    "qmix_simple_spread": "simple_spread_qmix",
    "mappo_simple_spread": "simple_spread_mappo",
    "qmix_smax_3m": "simple_spread_qmix",
    "mappo_smax_3m": "simple_spread_mappo",
    "iql_recorded": "halfcheetah_iql",
    "awac_recorded": "pendulum_awac",
    "td3_bc_recorded": "halfcheetah_td3_bc",
    "bc_recorded": "pendulum_bc",
    "cql_recorded": "pendulum_cql",
}


def overrides(case: Case) -> list[str]:
    """The command-line overrides that make the preset of a case do the case's work.

    Raises:
      TypeError: the case is of no known kind.
    """
    if isinstance(case, OfflineCase):
        return [f"{key}={value}" for key, value in _offline_keys(case).items()]
    keys: dict[str, Any] = {
        "env.env_id": case.env_id,
        "env.collector_env_num": case.num_envs,
        "policy.model.hidden": list(case.hidden),
        "policy.learn.learning_rate": case.learning_rate,
        "policy.learn.gamma": case.gamma,
        "policy.collect.n_sample": case.iteration_steps,
        "run.jit_threads": case.threads,
    }
    if case.envpool or case.image:
        keys |= {
            "env.env_kwargs": {} if case.envpool else {"shape": list(case.image)},
            "env.wrappers": [],
            "env.backend": "envpool" if case.envpool else "auto",
            "env.normalize_reward": False,
            "env.reward_clip": "null",
        }
    if case.image:
        keys |= {
            "policy.model.cnn": [list(each) for each in case.convolutions],
            "policy.model.cnn_dim": case.image_features,
        }
    match case:
        case PPOCase():
            keys |= _ppo_keys(case)
        case A2CCase():
            keys |= _gradient_keys(case) | {
                "policy.learn.optimizer": "adam",
                "policy.learn.normalize_advantage": False,
                "env.normalize_reward": False,
            }
        case DQNCase():
            keys |= _replay_keys(case) | _dqn_keys(case)
        case SACCase():
            keys |= _replay_keys(case) | {
                "policy.model.normalize_obs": False,
                "policy.learn.tau": case.tau,
                "policy.learn.auto_alpha": True,
                "policy.learn.alpha": 1.0,
            }
        case TD3Case():
            keys |= _replay_keys(case) | {
                "policy.model.normalize_obs": False,
                "policy.learn.tau": case.tau,
                "policy.learn.policy_delay": case.policy_delay,
                "policy.learn.target_noise": case.target_noise,
                "policy.learn.noise_clip": case.noise_clip,
                "policy.collect.noise.sigma": case.sigma,
            }
        case QMIXCase():
            keys |= _replay_keys(case) | _qmix_keys(case)
        case MAPPOCase():
            keys |= _mappo_keys(case)
        case _:
            raise TypeError(f"expected a case of a known kind, got {type(case).__name__} ({case.name})")
    return [f"{key}={value}" for key, value in keys.items()]


def _ppo_keys(case: PPOCase) -> dict[str, Any]:
    memory = {}
    if isinstance(case, RecurrentPPOCase):
        memory = {"policy.model.memory": "lstm", "policy.model.memory_dim": case.memory_size}
    return {
        **_gradient_keys(case),
        **memory,
        "policy.learn.n_epoch": case.epochs,
        "policy.learn.n_minibatch": case.minibatches,
        "policy.learn.clip_ratio": case.clip_ratio,
        "policy.learn.value_clip": True,
        # All passes, as the peers make them.
        "policy.learn.target_kl": "null",
    }


def _dqn_keys(case: DQNCase) -> dict[str, Any]:
    if isinstance(case, QRDQNCase):
        own = {"policy.model.n_quantiles": case.quantiles, "policy.model.normalize_obs": False}
    else:
        own = {"policy.learn.double": False}
    return {
        **own,
        # Stable-Baselines3 has neither double Q-learning nor returns of several steps.
        "policy.learn.nstep": 1,
        "policy.learn.target.kind": "periodic",
        # Our target counts gradient steps, the case counts env steps.
        "policy.learn.target.freq": case.target_update_freq // case.iteration_steps,
        "policy.learn.grad_norm": case.grad_norm,
        "policy.other.eps.start": case.eps,
        "policy.other.eps.end": case.eps,
    }


def _qmix_keys(case: QMIXCase) -> dict[str, Any]:
    return {
        **_episode_keys(case),
        "policy.model.memory": "gru",
        "policy.model.memory_dim": case.memory_size,
        "policy.model.mixer_dim": case.mixer_size,
        "policy.model.hypernet_dim": case.hypernet_size,
        "policy.model.normalize_obs": False,
        "policy.learn.update_per_collect": case.updates,
        "policy.learn.anneal_lr": False,
        "policy.learn.td_lambda": 0.0,
        "policy.learn.double": True,
        "policy.learn.target.kind": "periodic",
        "policy.learn.target.freq": case.target_update_freq,
        "policy.learn.grad_norm": case.grad_norm,
        "policy.other.eps.start": case.eps,
        "policy.other.eps.end": case.eps,
    }


def _mappo_keys(case: MAPPOCase) -> dict[str, Any]:
    return {
        **_gradient_keys(case),
        **_episode_keys(case),
        "policy.learn.n_epoch": case.epochs,
        "policy.learn.n_minibatch": case.minibatches,
        "policy.learn.clip_ratio": case.clip_ratio,
        "policy.learn.value_clip": False,
        "policy.learn.value_norm_decay": case.value_decay,
        "policy.learn.huber_delta": case.huber_delta,
        "policy.learn.target_kl": "null",
    }


def _episode_keys(case: QMIXCase | MAPPOCase) -> dict[str, Any]:
    limit = {"env.max_episode_steps": case.episode_length, "env.env_kwargs": {}}
    if not case.env_id.startswith("smax/"):
        limit = {"env.env_kwargs.max_cycles": case.episode_length}
    return {**limit, "env.normalize_reward": False}


def _offline_keys(case: OfflineCase) -> dict[str, Any]:
    discounted = {} if case.algorithm == "bc" else {"policy.learn.gamma": case.gamma}
    return {
        "env.env_id": case.env_id,
        "policy.model.hidden": list(case.hidden),
        "policy.model.normalize_obs": False,
        "policy.learn.learning_rate": case.learning_rate,
        **discounted,
        "policy.learn.anneal_lr": False,
        "policy.learn.batch_size": case.batch_size,
        "policy.learn.steps_per_call": case.iteration_steps,
        "run.jit_threads": case.threads,
        # The clock decides when a run ends.
        "run.max_train_iter": 1_000_000_000,
    }


def _gradient_keys(case: PPOCase | A2CCase | MAPPOCase) -> dict[str, Any]:
    return {
        "policy.model.activation": "tanh",
        "policy.model.normalize_obs": False,
        "policy.learn.gae_lambda": case.gae_lambda,
        "policy.learn.entropy_weight": case.entropy_weight,
        "policy.learn.value_weight": case.value_weight,
        "policy.learn.grad_norm": case.grad_norm,
    }


def _replay_keys(case: ReplayCase) -> dict[str, Any]:
    return {
        "policy.model.activation": "relu",
        "policy.learn.batch_size": case.batch_size,
        "policy.learn.update_per_collect": 1,
        "policy.learn.warmup": case.learning_starts,
        "policy.other.buffer_size": case.buffer_size,
    }


def run_case(options: RunOptions, changes: Sequence[str] = ()) -> Measurement:
    """Builds the preset with `overrides`, then `changes`, and times it with `benchmarks.window.measure`.

    The chain is the preset's, without checkpoints and loggers; no evaluation falls due.
    """
    from minding.configs import compile_run, load_preset
    from minding.configs.chains import get_chain
    from minding.engine import Task
    from minding.training import build

    case = options.case
    if case.env_id.startswith("smax/"):
        keep_to_cores(case.threads)
    quiet = ["policy.eval.freq=1000000000", f"seed={options.seed}"]
    with recorded_data(case) as data:
        cfg = compile_run(load_preset(PRESETS[case.name]), [*overrides(case), *quiet, *data, *changes])
        task = Task()
        with task.start(ctx=get_chain(cfg.chain).context()):
            build(task, cfg)

            def clock() -> int:
                steps: int = task.ctx.train_iter if isinstance(case, OfflineCase) else task.ctx.env_step
                return steps

            def train_for(steps: int) -> int:
                start = clock()
                while clock() < start + steps:
                    task.run(max_step=task.ctx.total_step + -(-steps // case.iteration_steps))
                    if task.interrupted_by:
                        # From now on every run ends at once.
                        raise SystemExit(f"interrupted by {task.interrupted_by}")
                return clock() - start

            return measure(options, "minding", train_for)


@contextlib.contextmanager
def recorded_data(case: Case) -> Iterator[list[str]]:
    """Writes the data of a case that learns from some; yields the override that names them."""
    if not isinstance(case, OfflineCase):
        yield []
        return
    from minding.configs import compile_run
    from minding.engine.data.dataset import Dataset
    from minding.engine.data.dataset_writer import save_dataset
    from minding.engine.data.description import describe

    env = describe(compile_run({"env": {"env_id": case.env_id}, "policy": {"type": "sac"}}).env)
    with tempfile.TemporaryDirectory() as folder:
        save_dataset(Path(folder) / "data", Dataset.of_episodes(episodes(case), env))
        yield [f"policy.other.data={folder}/data"]


def main() -> None:
    changes = [argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith("-")]
    options = parse_options([argument for argument in sys.argv[1:] if argument not in changes])
    print(run_case(options, changes).to_json())


if __name__ == "__main__":
    main()
