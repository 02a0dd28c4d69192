"""PPO as a chain: evaluate, collect, estimate advantages, learn from this rollout, save.

python examples/on_policy.py --env Pendulum-v1 --seed 1 --max-env-step 200000
"""

from __future__ import annotations

import argparse

import minding
from minding.configs import compile_run
from minding.engine import OnlineRLContext, RunDir, task
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    CkptSaver,
    StepCollector,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    online_logger,
    termination_checker,
)
from minding.policies import PPO


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains PPO; for Discrete, MultiDiscrete and Box action spaces.")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=100_000, help="environment steps (%(default)s)")
    parser.add_argument(
        "--async", dest="async_", action="store_true", help="collect and evaluate in separate processes"
    )
    parser.add_argument("--collectors", type=int, help="processes that collect, with --async")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    overrides = [
        "exp_name=on_policy",
        f"seed={args.seed}",
        f"env.env_id={args.env}",
        f"run.max_env_step={args.max_env_step}",
        f"policy.eval.freq={max(1, args.max_env_step // 20)}",
        f"lanes.collectors={args.collectors or 'null'}",
    ]
    cfg = compile_run("cartpole_ppo", overrides)
    run_dir = RunDir.open_or_create(cfg)  # started again with the same arguments, the program continues its run
    collector_env, evaluator_env = make_collector_env(cfg), make_evaluator_env(cfg)
    policy = PPO(cfg)

    with task.start(async_mode=args.async_, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=run_dir.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(termination_checker(cfg.run.max_env_step))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
        task.use(online_logger(cfg, run_dir))  # progress and metrics.csv
        task.run()

    print(f"{minding.load(run_dir.path).evaluate()}, {task.ctx.env_step:,} environment steps")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
