"""A custom context and two custom middleware in PPO's chain: a stopwatch, and a stop at a given return.

python examples/custom_middleware.py
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from easydict import EasyDict

from minding.configs import compile_run
from minding.engine import OnlineRLContext, task
from minding.envs import make_env_manager
from minding.middleware import StepCollector, gae_estimator, interaction_evaluator, multistep_trainer
from minding.policies import PPO


@dataclasses.dataclass
class MyContext(OnlineRLContext):
    """Two numbers that outlive the iteration, and a flag that is fresh in each."""

    busy_seconds: float = 0.0
    best_value: float = float("-inf")
    improved: bool = False

    def __post_init__(self) -> None:
        self.keep("busy_seconds", "best_value")


def stopwatch(ctx: MyContext) -> Iterator[None]:
    """Code before the yield runs first in the iteration, code after it runs last."""
    start = time.perf_counter()
    yield
    ctx.busy_seconds += time.perf_counter() - start


def stop_at(value: float) -> Callable[[MyContext], None]:
    """A plain function is a middleware too; the closure holds settings, the context holds counters."""

    def check(ctx: MyContext) -> None:
        if ctx.eval_value is None:
            return
        ctx.improved = ctx.eval_value > ctx.best_value
        ctx.best_value = max(ctx.best_value, ctx.eval_value)
        print(f"{ctx.env_step:>7,} steps: return {ctx.eval_value:.1f}{' (best)' if ctx.improved else ''}")
        task.finish = ctx.eval_value >= value

    return check


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains PPO on CartPole-v1 until a return is reached.")
    parser.add_argument("--stop-at", type=float, default=475.0, help="evaluation mean (%(default)s)")
    parser.add_argument("--max-env-step", type=int, default=100_000, help="environment steps (%(default)s)")
    args = parser.parse_args()
    main_config = EasyDict(
        run=dict(max_env_step=args.max_env_step),
        env=dict(env_id="CartPole-v1"),
        policy=dict(type="ppo", learn=dict(learning_rate=1e-3), eval=dict(freq=max(1, args.max_env_step // 20))),
    )
    cfg = compile_run(main_config)
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, seed=0)
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, seed=1, training=False)
    policy = PPO(cfg)

    with task.start(ctx=MyContext()) as started:
        task.use(stopwatch)
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(stop_at(args.stop_at))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.run(max_step=math.ceil(args.max_env_step / cfg.policy.collect.n_sample))
        print(task)

    value = started.ctx.best_value
    best = f"best return {value:.1f}" if math.isfinite(value) else "ended before an evaluation"
    print(f"{best}, {started.ctx.busy_seconds:.1f} s in the chain")


if __name__ == "__main__":
    main()
