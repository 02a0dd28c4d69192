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
from minding.engine import OfflineRLContext, task
from minding.engine.buffers import DatasetTables
from minding.engine.data.dataset import check_fits, load_dataset
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager
from minding.middleware import (
    CkptSaver,
    interaction_evaluator,
    offline_data_fetcher,
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
    parser.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
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
    # A new run folder with the configuration in it: `minding eval` finds both.
    run_dir = RunDir.open(args.resume) if args.resume else RunDir.create(cfg)
    cfg.run.out_dir, cfg.exp_name = str(run_dir.path.parent), run_dir.path.name
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
    policy = BC(cfg)
    tables = DatasetTables(dataset, policy.learn_mode.fields)

    with task.start(ctx=OfflineRLContext(), resume=args.resume) as offline:
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(offline_data_fetcher(cfg, tables))
        task.use(trainer(cfg, policy.learn_mode))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=500))
        task.use(termination_checker(max_train_iter=args.max_train_iter))
        # An iteration makes policy.learn.steps_per_call gradient steps.
        task.run()

    ctx = offline.ctx
    value = ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {ctx.train_iter:,} gradient steps, {ctx.train_epoch} passes over {len(dataset):,} steps")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
