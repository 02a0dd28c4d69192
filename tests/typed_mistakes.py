"""Mistakes that a type checker finds before a run. Of one that is not found, mypy reports the comment as unused."""

import minding
from minding.engine import Config, OnlineRLContext, task


def mistakes(cfg: Config, agent: minding.Agent, ctx: OnlineRLContext) -> None:
    print(cfg.run.max_env_stp)  # type: ignore[attr-defined]
    print(cfg.polcy)  # type: ignore[attr-defined]
    cfg.env.backend = 3  # type: ignore[assignment]
    cfg.policy.learn.learning_rate.upper()  # type: ignore[attr-defined]
    cfg.policy.learn.my_own_key + 1  # type: ignore[operator]
    ctx.env_stp = 1  # type: ignore[attr-defined]
    print(ctx.trajectories.shape)  # type: ignore[union-attr]
    task.use(3)  # type: ignore[arg-type]
    task.use(print, befor="learner")  # type: ignore[call-arg]
    task.start(traec=True)  # type: ignore[call-overload]
    task.wait_for("tick", timout=3)  # type: ignore[call-arg]
    agent.learn("100")  # type: ignore[arg-type]
    print(agent.policy.evl_mode)  # type: ignore[attr-defined]
    minding.Agnet("ppo", "CartPole-v1")  # type: ignore[attr-defined]
