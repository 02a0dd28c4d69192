"""Behavioral cloning as a chain: evaluate, draw recorded data, learn from them, save.

minding train cartpole_ppo
minding data record runs/cartpole_ppo --steps 20000
python examples/offline.py --env CartPole-v1 --data runs/cartpole_ppo/data
"""

from __future__ import annotations

import argparse
import math

from easydict import EasyDict

from minding.configs import compile_run
from minding.engine import OfflineRLContext, RunDir, task
from minding.engine.buffers import DatasetTables
from minding.engine.data.dataset import check_fits, load_dataset
from minding.envs import make_evaluator_env
from minding.middleware import (
    CkptSaver,
    interaction_evaluator,
    offline_data_fetcher,
    online_logger,
    termination_checker,
    trainer,
)
from minding.policies import BC


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learns to do what was recorded by `minding data record`.")
    parser.add_argument("--data", required=True, help="folder of the recorded data")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-train-iter", type=int, default=2_000, help="gradient steps (%(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    main_config = EasyDict(
        exp_name="offline",
        seed=args.seed,
        run=dict(max_train_iter=args.max_train_iter),
        env=dict(env_id=args.env),
        policy=dict(type="bc", eval=dict(freq=max(1, args.max_train_iter // 4)), other=dict(data=args.data)),
    )
    cfg = compile_run(main_config)
    dataset = load_dataset(args.data)
    check_fits(dataset, cfg.env, args.data)
    run_dir = RunDir.open_or_create(cfg)  # started again with the same arguments, the program continues its run
    evaluator_env = make_evaluator_env(cfg)
    policy = BC(cfg)
    tables = DatasetTables(dataset, policy.learn_mode.fields)

    with task.start(ctx=OfflineRLContext(), resume=run_dir.resume) as offline:
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(offline_data_fetcher(cfg, tables))
        task.use(trainer(cfg, policy.learn_mode))
        task.use(termination_checker(max_train_iter=cfg.run.max_train_iter))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=500))
        task.use(online_logger(cfg, run_dir))  # progress and metrics.csv
        task.run()

    ctx = offline.ctx
    value = ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {ctx.train_iter:,} gradient steps, {ctx.train_epoch} passes over {len(dataset):,} steps")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
