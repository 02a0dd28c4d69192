"""A film of the final policy: in the run folder, and in TensorBoard."""

from collections.abc import Callable
from pathlib import Path

from minding.engine.config.config import Config
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError, EnvError, MissingExtraError
from minding.engine.run.lock import lost
from minding.engine.run.loggers import TensorBoardWriter
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Policy
from minding.envs.video import record_episodes

MOST_STEPS = 1000
"""Longer episodes are cut off, because each step is an image."""


def film_episode(file: Path, cfg: Config, policy: Policy, stop: Callable[[], bool] = lambda: False) -> str | None:
    """Films an episode without exploration."""
    most = min(cfg.policy.eval.max_episode_steps, MOST_STEPS)
    try:
        ends = record_episodes(cfg.env, policy.eval_mode, file, cfg.seed, max_steps=most, stop=stop)
    except (ConfigError, EnvError, MissingExtraError) as error:
        return str(error)
    except Exception as error:  # a renderer without a screen may raise anything, and a film costs nothing else
        return f"{type(error).__name__}: {error}"
    return None if ends else "it was stopped"


def film_run(cfg: Config, run_dir: RunDir, policy: Policy, step: int, stop: Callable[[], bool]) -> None:
    """Films the policy of a run for its folder and for TensorBoard; a failure is logged and does not end the run."""
    if lost(run_dir.path):
        return
    reason = film_episode(run_dir.video, cfg, policy, stop)
    if reason is not None:
        console_logger().warning("run.video: no film: %s", " ".join(reason.split()))
        return
    if "tensorboard" in cfg.run.loggers:
        from PIL import Image

        with Image.open(run_dir.video) as picture:
            size = picture.size
        writer = TensorBoardWriter(run_dir.tensorboard)
        writer.show_video(run_dir.video, size, step)
        writer.close()
