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
from minding.engine import OnlineRLContext, task
from minding.engine.buffers import MixedBuffer
from minding.engine.data.dataset import check_fits, load_dataset
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    interaction_evaluator,
    recorded_data_pusher,
    sqil_data_pusher,
)
from minding.policies import DiscreteSAC


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learns from recorded data and from play without rewards.")
    parser.add_argument("--data", required=True, help="folder of the recorded data")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=10_000, help="environment steps (%(default)s)")
    parser.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
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
    # A new run folder with the configuration in it: `minding eval` finds both.
    run_dir = RunDir.open(args.resume) if args.resume else RunDir.create(cfg)
    cfg.run.out_dir, cfg.exp_name = str(run_dir.path.parent), run_dir.path.name
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, cfg.seed)
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
    policy = DiscreteSAC(cfg)
    parts = [(cfg.policy.other.buffer_size, 0.5), (len(dataset), 0.5)]
    buffer_ = MixedBuffer(parts, policy.learn_mode.fields, seed=cfg.seed)
    agent_buffer, expert_buffer = buffer_.parts

    with task.start(ctx=OnlineRLContext(), resume=args.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(sqil_data_pusher(cfg, agent_buffer, expert=False))
        task.use(recorded_data_pusher(expert_buffer, dataset, reward=1.0))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=2_000))
        task.run(max_step=math.ceil(args.max_env_step / cfg.policy.collect.n_sample))

    value = task.ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {task.ctx.env_step:,} environment steps, {len(dataset):,} steps of the expert")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
