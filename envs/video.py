"""Films one episode: GIF files by Pillow, which MindSpore brings, other formats by imageio (extra `video`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from minding.engine.errors import ConfigError, MissingExtraError
from minding.engine.types import Array, EpisodeEnd, EvalMode
from minding.envs.config import env_settings
from minding.envs.making import make_env_manager
from minding.envs.single.factory import env_factory

_FORMATS = (".gif", ".mp4", ".mkv", ".mov", ".avi", ".webm")
_FPS = 30
Writer = Callable[[str | Path, Sequence[Array], float], None]
"""Writes pictures ``(H, W, 3)``, so many per second, to a file."""


def video_writer(path: str | Path) -> Writer:
    """What writes such a file.

    Raises:
      ConfigError: if the name's ending is not that of a known format.
      MissingExtraError: if imageio or ffmpeg is not there, for all formats but .gif.
    """
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise ConfigError(f"video file {str(path)!r}: expected a name that ends with one of {', '.join(_FORMATS)}")
    if ending == ".gif":
        return _write_gif
    try:
        imageio: Any = importlib.import_module("imageio.v2")
        importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        purpose = f"a video in {ending} (.gif needs nothing)"
        raise MissingExtraError("imageio-ffmpeg", "video", purpose) from None
    return lambda path, frames, fps: imageio.mimsave(str(path), frames, fps=fps)


def record_episode(
    env_cfg: Mapping[str, Any], policy: EvalMode, path: str | Path, seed: int, *, max_steps: int
) -> EpisodeEnd:
    """Plays one episode without exploration and writes it as a video.

    Args:
      env_cfg: the `env` section of the configuration.
      policy: ``policy.eval_mode``.
      path: file to write; its extension selects the format (.gif, .mp4).
      seed: of the episode.
      max_steps: length at which the episode is cut off.

    Returns:
      The episode's return and length.

    Raises:
      MissingExtraError: if a package that the format needs is not installed.
      ConfigError: if the environment cannot render pictures, or there is no such format.
    """
    write = video_writer(path)
    kwargs = {**env_cfg.get("env_kwargs", {}), "render_mode": "rgb_array"}
    settings = {**env_cfg, "backend": "sync", "env_kwargs": kwargs}
    film = Film(env_factory(env_settings(settings))())
    # The environment is made here and lent to the manager, because managers do not render.
    made: dict[str, Any] = {
        "wrappers": [],
        "info_keys": [],
        "max_episode_steps": None,
        "global_state": False,
        "team_reward": False,
    }
    manager = make_env_manager({**settings, "env_kwargs": {}, **made}, 1, seed, training=False, env_fn=lambda: film)
    end, episode_return, length = None, 0.0, 0
    try:
        obs = manager.reset()
        if film.frames[0] is None:
            raise ConfigError(
                f"env.env_id={env_cfg['env_id']!r} renders no pictures (render_mode 'rgb_array'): its render() has to "
                "return an array (H, W, 3)"
            )
        policy.reset()
        while end is None and length < max_steps:
            step = manager.play(policy.forward(obs))
            obs, end = step.obs, next(iter(step.episodes), None)
            episode_return += float(step.team_reward[0])
            length += 1
    finally:
        manager.close()
        film.env.close()
    write(path, film.frames, film.metadata.get("render_fps") or _FPS)
    return end or EpisodeEnd(0, episode_return, length)


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Keeps a picture of the first observation of the first episode, and one of each step.

    Args:
      env: made to render pictures.

    Attributes:
      frames: uint8 ``(H, W, 3)`` each; None where it renders nothing.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.frames: list[Any] = []
        self._resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(seed=seed, options=options)
        self._resets += 1
        self._keep()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        try:
            self._keep()
        except Exception:
            # Some have nothing to show once an episode is over; the film ends with the picture before.
            if not (self.frames and (answer[2] or answer[3])):
                raise
        return answer

    def close(self) -> None:
        """Left to who made it: a manager closes what it is lent after a first look."""

    def _keep(self) -> None:
        if self._resets > 1:
            return
        try:
            picture = self.env.render()
        except NotImplementedError:
            # What Gymnasium's base class says where a class has no `render` of its own.
            picture = None
        self.frames.append(None if picture is None else np.array(picture))


def _write_gif(path: str | Path, frames: Sequence[Array], fps: float) -> None:
    from PIL import Image

    first, *others = [Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames]
    # The format counts in hundredths of a second; viewers slow down what is faster than 50 pictures per second.
    duration = max(round(100 / fps), 2) * 10
    first.save(path, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
