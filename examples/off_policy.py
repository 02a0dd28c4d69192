"""DQN as a chain: evaluate, explore, collect, store, learn from replay, save.

python examples/off_policy.py --env CartPole-v1 --seed 1
"""

from __future__ import annotations

import argparse
import math

from easydict import EasyDict

from minding.configs import compile_run
from minding.engine import OnlineRLContext, task
from minding.engine.buffers import ReplayBuffer
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
)
from minding.policies import DQN


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains DQN; the environment needs a Discrete action space.")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id or module:Class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=15_000, help="environment steps (%(default)s)")
    parser.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
    parser.add_argument(
        "--async", dest="async_", action="store_true", help="collect and evaluate in separate processes"
    )
    parser.add_argument("--collectors", type=int, help="processes that collect, with --async")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    main_config = EasyDict(
        exp_name="off_policy",
        seed=args.seed,
        run=dict(max_env_step=args.max_env_step),
        lanes=dict(collectors=args.collectors),
        env=dict(env_id=args.env),
        policy=dict(
            type="dqn",
            learn=dict(update_per_collect=2),
            collect=dict(n_sample=8),
            eval=dict(freq=max(1, args.max_env_step // 10)),
            other=dict(eps=dict(decay=5_000)),
        ),
    )
    cfg = compile_run(main_config)
    # A new run folder with the configuration in it: `minding eval` finds both.
    run_dir = RunDir.open(args.resume) if args.resume else RunDir.create(cfg)
    cfg.run.out_dir, cfg.exp_name = str(run_dir.path.parent), run_dir.path.name
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, cfg.seed)
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
    policy = DQN(cfg)
    buffer_ = ReplayBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    # Whole iterations: the last one may pass the limit by a part of a collection.
    max_step = math.ceil(args.max_env_step / cfg.policy.collect.n_sample)

    with task.start(async_mode=args.async_, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=args.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(data_pusher(cfg, buffer_))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
        task.run(max_step=max_step)

    value = task.ctx.last_eval_value
    result = f"return {value:.1f} at the last evaluation" if math.isfinite(value) else "ended before an evaluation"
    print(f"{result}, {task.ctx.env_step:,} environment steps")
    print(f"play more episodes: minding eval {run_dir.path}")


if __name__ == "__main__":
    main()
