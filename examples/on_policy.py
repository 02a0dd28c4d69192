"""PPO as a chain: evaluate, collect, estimate advantages, learn from this rollout, save.

python examples/on_policy.py --env Pendulum-v1 --seed 1 --max-env-step 200000
"""

from __future__ import annotations

import argparse
import math

from easydict import EasyDict

from minding.configs import compile_run
from minding.engine import OnlineRLContext, task
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager
from minding.middleware import (
    CkptSaver,
    StepCollector,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
)
from minding.policies import PPO


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains PPO; for Discrete, MultiDiscrete and Box action spaces.")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=100_000, help="environment steps (%(default)s)")
    parser.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
    parser.add_argument(
        "--async", dest="async_", action="store_true", help="collect and evaluate in separate processes"
    )
    parser.add_argument("--collectors", type=int, help="processes that collect, with --async")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    main_config = EasyDict(
        exp_name="on_policy",
        seed=args.seed,
        run=dict(max_env_step=args.max_env_step),
        lanes=dict(collectors=args.collectors),
        env=dict(env_id=args.env),
        policy=dict(
            type="ppo",
            learn=dict(learning_rate=1e-3),
            collect=dict(n_sample=1024),
            eval=dict(freq=max(1, args.max_env_step // 10)),
        ),
    )
    cfg = compile_run(main_config)
    # A new run folder with the configuration in it: `minding eval` finds both.
    run_dir = RunDir.open(args.resume) if args.resume else RunDir.create(cfg)
    cfg.run.out_dir, cfg.exp_name = str(run_dir.path.parent), run_dir.path.name
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, cfg.seed)
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
    policy = PPO(cfg)
    # Whole iterations: the last one may pass the limit by a part of a rollout.
    max_step = math.ceil(args.max_env_step / cfg.policy.collect.n_sample)

    with task.start(async_mode=args.async_, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=args.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
        task.run(max_step=max_step)

    value = task.ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {task.ctx.env_step:,} environment steps")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
