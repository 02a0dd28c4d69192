"""Imitation (SQIL): an expert's transitions are worth 1, the agent's 0, and half of each minibatch are each.

minding train cartpole_ppo
minding data record runs/cartpole_ppo --steps 5000
python examples/sqil.py --env CartPole-v1 --data runs/cartpole_ppo/data
"""

from __future__ import annotations

import argparse
import math

from easydict import EasyDict

from minding.configs import compile_run
from minding.engine import OnlineRLContext, RunDir, task
from minding.engine.buffers import MixedBuffer
from minding.engine.data.dataset import check_fits, load_dataset
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    interaction_evaluator,
    online_logger,
    recorded_data_pusher,
    sqil_data_pusher,
    termination_checker,
)
from minding.policies import DiscreteSAC


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learns from recorded data and from play without rewards.")
    parser.add_argument("--data", required=True, help="folder of the recorded data")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=10_000, help="environment steps (%(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    main_config = EasyDict(
        exp_name="sqil",
        seed=args.seed,
        run=dict(max_env_step=args.max_env_step),
        env=dict(env_id=args.env),
        policy=dict(
            type="discrete_sac",
            model=dict(hidden=[64, 64], normalize_obs=True),
            learn=dict(learning_rate=1e-3, batch_size=128, alpha=0.1, auto_alpha=False, update_per_collect=4),
            eval=dict(freq=max(1, args.max_env_step // 10)),
            other=dict(buffer_size=20_000),
        ),
    )
    cfg = compile_run(main_config)
    dataset = load_dataset(args.data)
    check_fits(dataset, cfg.env, args.data)
    run_dir = RunDir.open_or_create(cfg)  # started again with the same arguments, the program continues its run
    collector_env, evaluator_env = make_collector_env(cfg), make_evaluator_env(cfg)
    policy = DiscreteSAC(cfg)
    parts = [(cfg.policy.other.buffer_size, 0.5), (len(dataset), 0.5)]
    buffer_ = MixedBuffer(parts, policy.learn_mode.fields, seed=cfg.seed)
    agent_buffer, expert_buffer = buffer_.parts

    with task.start(ctx=OnlineRLContext(), resume=run_dir.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(sqil_data_pusher(cfg, agent_buffer, expert=False))
        task.use(recorded_data_pusher(expert_buffer, dataset, reward=1.0))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(termination_checker(cfg.run.max_env_step))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=2_000))
        task.use(online_logger(cfg, run_dir))  # progress and metrics.csv
        task.run()

    value = task.ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {task.ctx.env_step:,} environment steps, {len(dataset):,} steps of the expert")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
