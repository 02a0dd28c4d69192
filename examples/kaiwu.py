"""The processes of KaiWu as one run: four aisrv, an actor that predicts for all of them, a learner and a model pool.

python examples/kaiwu.py --max-env-step 60000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from easydict import EasyDict
from gymnasium import spaces

from minding.configs import compile_run
from minding.engine import OnlineRLContext, RunDir, task
from minding.engine.run.pool import ModelPool
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    CkptSaver,
    StepCollector,
    gae_estimator,
    interaction_evaluator,
    model_pool,
    multistep_trainer,
    online_logger,
    termination_checker,
)

SIZE, LIMIT = 5, 40
DUMP_FREQ = 100  # gradient steps, as dump_model_freq
MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


class Realm(gymnasium.Env[Any, Any]):
    """A square realm: take the two treasures, 1 each, then leave by the far corner, 1 more; each step costs 0.02.

    `info` says which moves stay within the realm, as `legal_action` does in KaiWu.
    """

    observation_space = spaces.Box(0.0, 1.0, (6,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.array([0, 0])
        self.treasures = [(SIZE - 1, 0), (0, SIZE - 1)]
        return self.observation_process(), {"action_mask": self.legal_action()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + MOVES[action], 0, SIZE - 1)
        here, reward = (int(self.place[0]), int(self.place[1])), -0.02
        if here in self.treasures:
            self.treasures.remove(here)
            reward += 1.0
        left = here == (SIZE - 1, SIZE - 1) and not self.treasures
        return self.observation_process(), reward + left, left, False, {"action_mask": self.legal_action()}

    def observation_process(self) -> Any:
        taken = [float(chest not in self.treasures) for chest in ((SIZE - 1, 0), (0, SIZE - 1))]
        x, y = self.place / (SIZE - 1)
        return np.array([x, y, 1 - x, 1 - y, *taken], np.float32)

    def legal_action(self) -> Any:
        there = self.place + MOVES
        return ((there >= 0) & (there < SIZE)).all(axis=1)


BEST = 3 - 0.02 * 4 * (SIZE - 1)


def main() -> None:
    # Collectors import this file for Realm, and need no MindSpore.
    from minding.policies import PPO

    parser = argparse.ArgumentParser(description="Trains PPO with the processes of KaiWu.")
    parser.add_argument("--max-env-step", type=int, default=60_000, help="environment steps (%(default)s)")
    args = parser.parse_args()
    main_config = EasyDict(
        exp_name="kaiwu",
        run=dict(max_env_step=args.max_env_step),
        # aisrv: four collectors that share each iteration. actor: the inference server. buffer: the queue of rollouts
        # between them and the learner, which is this process.
        lanes=dict(collectors=4, shards=4, inference="server", max_staleness=1),
        env=dict(env_id="kaiwu:Realm", max_episode_steps=LIMIT, info_keys=["action_mask"], collector_env_num=8),
        policy=dict(
            type="ppo",
            learn=dict(learning_rate=1e-3, entropy_weight=0.01),
            collect=dict(n_sample=1024),
            eval=dict(freq=5_000),
        ),
        # `last` is modelpool_max_save_model_count.
        pool=dict(freq=DUMP_FREQ, unit="train_iter", last=5),
    )
    cfg = compile_run(main_config)
    run_dir = RunDir.open_or_create(cfg)  # started again, the program continues its run
    collector_env, evaluator_env = make_collector_env(cfg), make_evaluator_env(cfg)
    policy = PPO(cfg)
    pool = ModelPool(run_dir.models, last=cfg.pool.last)

    with task.start(async_mode=True, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=run_dir.resume):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(model_pool(policy, pool, DUMP_FREQ, unit="train_iter"))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode), role="learn")
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(termination_checker(cfg.run.max_env_step))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=500))
        task.use(online_logger(cfg, run_dir))  # progress and metrics.csv
        task.run()

    print(f"return {task.ctx.last_eval_value:.2f} at the last evaluation; {BEST:.2f} is the best")
    print(f"{len(pool.versions)} versions in {run_dir.models}: minding pool {run_dir.path}")


if __name__ == "__main__":
    main()
