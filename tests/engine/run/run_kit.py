"""What the tests of finished runs share: run folders that nobody trained."""

import json

from minding.engine import Config, RunDir

FIGURES = {"unit": "env_step", "env_step": 2048, "wall_time": 3.0, "stop_reason": "max_env_step"}


def make_run(folder, name="a", *, metrics=None, figures=None, seed=0, env_id="CartPole-v1", run=(), policy=(), **top):
    """A run in `folder`, with this text as its metrics and, if given, these figures as its summary."""
    cfg = Config(
        exp_name=name,
        seed=seed,
        run={"out_dir": str(folder), **dict(run)},
        env={"env_id": env_id},
        policy={"type": "ppo", **dict(policy)},
        **top,
    )
    made = RunDir.create(cfg)
    if metrics is not None:
        made.metrics.write_text(metrics)
    if figures is not None:
        made.summary.write_text(json.dumps(figures))
    return made
