"""Films one episode (extra `video`)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.errors import ConfigError, MissingExtraError
from minding.engine.types import EpisodeEnd, EvalMode
from minding.envs.config import env_settings
from minding.envs.making import make_env_manager
from minding.envs.single.factory import env_factory

_FORMATS = (".gif", ".mp4", ".mkv", ".mov", ".avi", ".webm")


def check_video(path: str | Path) -> Any:
    """Returns the `imageio` module, if it can write such a file.

    Raises:
      ConfigError: if the name's ending is not that of a known format.
      MissingExtraError: if imageio or, except for .gif, ffmpeg is not there.
    """
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise ConfigError(f"video file {str(path)!r}: expected a name that ends with one of {', '.join(_FORMATS)}")
    try:
        imageio: Any = importlib.import_module("imageio.v2")
    except ImportError:
        raise MissingExtraError("imageio", "video", "a video of an episode") from None
    if ending != ".gif":
        try:
            importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        except (ImportError, RuntimeError):
            purpose = f"a video in {ending} (.gif needs no ffmpeg)"
            raise MissingExtraError("imageio-ffmpeg", "video", purpose) from None
    return imageio


def record_episode(
    env_cfg: Mapping[str, Any], policy: EvalMode, path: str | Path, seed: int, *, max_steps: int
) -> EpisodeEnd:
    """Plays one episode without exploration and writes it as a video.

    Args:
      env_cfg: the `env` section of the configuration.
      policy: ``policy.eval_mode``.
      path: file to write; its extension selects the format (.mp4, .gif).
      seed: of the episode.
      max_steps: length at which the episode is cut off.

    Returns:
      The episode's return and length.

    Raises:
      MissingExtraError: if imageio or ffmpeg is not installed.
      ConfigError: if the environment cannot render pictures, or there is no such format.
    """
    imageio = check_video(path)
    kwargs = {**env_cfg.get("env_kwargs", {}), "render_mode": "rgb_array"}
    settings = {**env_cfg, "backend": "sync", "env_kwargs": kwargs}
    env = env_factory(env_settings(settings))()
    # The environment is made here and lent to the manager, because managers do not render.
    lent = {**settings, "env_kwargs": {}, "wrappers": [], "info_keys": [], "max_episode_steps": None}
    manager = make_env_manager(lent, 1, seed, training=False, env_fn=lambda: env)
    frames: list[Any] = []
    episodes: list[EpisodeEnd] = []
    episode_return = 0.0
    try:
        obs = manager.reset()
        policy.reset()
        while not episodes and len(frames) < max_steps:
            picture = env.render()
            if picture is None:
                raise ConfigError(f"env.env_id={env_cfg['env_id']!r} renders no pictures (render_mode 'rgb_array')")
            frames.append(picture)
            step = manager.play(policy.forward(obs))
            obs, episodes = step.obs, list(step.episodes)
            episode_return += float(step.reward[0])
    finally:
        manager.close()
    imageio.mimsave(str(path), frames, fps=env.metadata.get("render_fps", 30))
    return episodes[0] if episodes else EpisodeEnd(0, episode_return, len(frames))
