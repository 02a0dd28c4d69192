"""Films episodes: GIF files by Pillow, which MindSpore installs, other formats by imageio (extra `video`)."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from minding.engine.console import console_logger
from minding.engine.errors import ConfigError, MissingExtraError, UnfilmableError
from minding.engine.files import Folder, hidden, replace
from minding.engine.paths import anchored
from minding.engine.process.packages import import_installed
from minding.engine.types import Array, EnvManager, EpisodeEnd, EvalMode, TakesReward
from minding.envs.config import env_settings
from minding.envs.guards.answers import brief
from minding.envs.making import make_env_manager
from minding.envs.single.factory import env_factory
from minding.envs.single.rendering import reason_against

_FORMATS = (".gif", ".mp4", ".mkv", ".mov", ".avi", ".webm")
_FPS = 30
_MOST_BYTES = 4 << 30
"""Memory of the images of a film; there may be no limit to an episode's length."""
_LEAST_WIDTH = 240
"""Minimum width of a film in pixels, for its caption: smaller images are enlarged by a whole factor."""
_LINE = 22
"""Width of an image divided by the size of the caption's letters, which can still be read in a smaller copy."""
_MOST_WIDTH, _LEAST_TIME, _SAMPLE = 320, 3, 256
"""Of a GIF: greatest width in pixels, least time of an image in hundredths of a second, and the number of images that
determine the colors of all."""
_CHANNELS = (1, 3, 4)
_ONE = 1.001
"""Floats up to this number are taken as fractions of the full brightness; rounding may exceed 1."""
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
Writer = Callable[[str | Path, Sequence[Array], float], None]
"""Function that writes images ``(H, W, 3)`` to a video file, at a given number of images per second."""


def video_writer(path: str | Path) -> Writer:
    """The function that writes a video file in the format of its extension."""
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise ConfigError(f"video file {str(path)!r}: expected a name that ends with one of {', '.join(_FORMATS)}")
    if ending == ".gif":
        return _write_gif
    try:
        imageio: Any = import_installed("imageio.v2")
        ffmpeg: Any = import_installed("imageio_ffmpeg")
        ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        purpose = f"a video in {ending} (.gif needs nothing)"
        raise MissingExtraError("imageio-ffmpeg", "video", purpose) from None
    return lambda path, frames, fps: imageio.mimsave(str(path), frames, fps=fps)


@anchored()
def record_episodes(
    env_cfg: Mapping[str, Any],
    policy: EvalMode,
    path: str | Path,
    seed: int,
    *,
    max_steps: int,
    episodes: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> list[EpisodeEnd]:
    """Plays episodes without exploration and writes them as one video, one after the other. A strip below each image
    tells the step and the return so far, and with several episodes the episode."""
    _use_no_screen()
    write = video_writer(path)
    _check_writable(Path(path))
    given = {**env_cfg.get("env_kwargs", {}), **env_cfg.get("evaluator_kwargs", {})}
    kwargs = {**given, "render_mode": "rgb_array"}
    settings = {**env_cfg, "backend": "sync", "env_kwargs": kwargs, "evaluator_kwargs": {}}
    factory = env_factory(env_settings(settings))
    try:
        film = Film(factory())
    except ConfigError as error:
        if "'render_mode'" not in str(error):
            raise
        raise UnfilmableError(
            f"{factory.name} cannot render images: its __init__ has no argument render_mode; add it, and a render() "
            "that returns an array (H, W, 3) for 'rgb_array'"
        ) from error
    unable = reason_against(film.env)
    if unable:
        factory.close(film.env)
        raise UnfilmableError(f"env.env_id={env_cfg['env_id']!r} cannot be filmed: {unable}")
    # The environment is made here and lent to the manager, because managers do not render.
    made: dict[str, Any] = {
        "wrappers": [],
        "info_keys": [],
        "max_episode_steps": None,
        "global_state": False,
        "team_reward": False,
    }
    manager = make_env_manager({**settings, "env_kwargs": {}, **made}, 1, seed, training=False, env_fn=_Lender(film))
    try:
        ends = []
        for number in range(episodes):
            film.begin(f"episode {number + 1}   " if episodes > 1 else "")
            ends.append(_play_episode(manager, policy, film, env_cfg["env_id"], max_steps, stop))
    finally:
        manager.close()
        factory.close(film.env)
    if stop():
        return []
    if film.size >= _MOST_BYTES:
        console_logger().warning(
            "the film %s ends after %s images, which take %.1f GB of memory",
            path,
            f"{len(film.frames):,}",
            film.size / 1e9,
        )
    sizes = sorted({frame.shape[:2] for frame in film.frames})
    if len(sizes) > 1:
        raise ConfigError(
            f"env.env_id={env_cfg['env_id']!r} renders images of different sizes, (H, W) = {sizes[0]} and {sizes[1]}: "
            "a film needs one size"
        )
    for place, caption in enumerate(film.captions):
        film.frames[place] = captioned(film.frames[place], caption)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / f"draft{Path(path).suffix}"
        write(draft, film.frames, film.metadata.get("render_fps") or _FPS)
        replace(path, draft.read_bytes(), make=True)
    return ends


def _play_episode(
    manager: EnvManager, policy: EvalMode, film: Film, env_id: str, max_steps: int, stop: Callable[[], bool]
) -> EpisodeEnd:
    """Plays an episode from a reset to its end, or until it is cut off or stopped."""
    obs = manager.reset()
    film.tell(0, 0.0)
    policy.reset()
    episode_return = 0.0
    for steps in range(max_steps):
        if film.fault:
            raise UnfilmableError(
                f"env.env_id={env_id!r} cannot be filmed: after {steps} steps its render(), with "
                f"render_mode='rgb_array', returned {film.fault}; expected an image, an array (H, W, 3) of uint8"
            )
        if stop():
            break
        step = manager.play(policy.forward(obs))
        obs = step.obs
        if isinstance(policy, TakesReward):
            policy.take_reward(step.team_reward)
        episode_return += float(step.team_reward[0])
        film.tell(steps + 1, episode_return)
        for end in step.episodes:
            return end
    return EpisodeEnd(0, episode_return, max_steps)


def _use_no_screen() -> None:
    """Tells SDL, which pygame uses, not to look for a screen if there is none: it would print an error."""
    if sys.platform == "linux" and not any(os.environ.get(each) for each in _SCREENS):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _check_writable(path: Path) -> None:
    """Refuses a file that cannot be written, before an episode is played; leaves no file or folder."""
    missing, draft = [folder for folder in path.parents if not folder.exists()], hidden(path).name
    try:
        with Folder(path.parent, make=True, follow=True) as folder:
            folder.replace(draft, b"", durable=False)
            folder.discard(draft)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise ConfigError(f"video file {str(path)!r}: cannot write: {error.strerror}; give another --out") from None
    finally:
        with contextlib.suppress(OSError):
            for each in missing:
                each.rmdir()


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Renders the first state of an episode and the state after each step, from `begin` to the episode's end.

    Attributes:
      frames: the images, uint8 ``(H, W, 3)`` each.
      size: bytes of the images; from `_MOST_BYTES` on, no more are added.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.frames: list[Array] = []
        self.captions: list[str] = []
        self.fault, self.size = "", 0
        self._resets, self._title = 0, ""

    def begin(self, title: str = "") -> None:
        """Lets the next reset begin a filmed episode; a later one, such as the manager's at its end, is not
        filmed."""
        self._resets, self._title = 0, title

    def tell(self, step: int, episode_return: float) -> None:
        """Gives the images that have no caption yet the step and the return after it."""
        text = f"{self._title}step {step:,}   return {episode_return:,.2f}"
        self.captions += [text] * (len(self.frames) - len(self.captions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(seed=seed, options=options)
        self._resets += 1
        self._keep()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        try:
            self._keep(over=bool(answer[2] or answer[3]))
        except Exception:
            if not (self.frames and (answer[2] or answer[3])):
                raise
        return answer

    def close(self) -> None:
        """Does nothing: a manager closes a lent environment after probing it, and the owner closes it in the end."""

    def _keep(self, *, over: bool = False) -> None:
        """Renders an image. Some environments cannot once an episode is `over`: the film ends with the one before."""
        if self._resets > 1 or self.fault or self.size >= _MOST_BYTES:
            return
        try:
            picture = self.env.render()
        except NotImplementedError:
            # Gymnasium's base class raises this if a class does not define `render`.
            picture = None
        try:
            self.frames.append(as_image(picture))
            self.size += self.frames[-1].nbytes
        except ValueError as error:
            if not over:
                self.fault = str(error)


def as_image(picture: Any) -> Array:
    """The picture that an environment rendered, uint8 ``(H, W, 3)``; always a copy.

    Channels may be first or last, one (gray), three, or four (the opacity is dropped), and gray images may lack their
    axis. Numbers may be bools, integers from 0 to 255, or floats up to 1 or up to 255. Of several images, such as
    Gymnasium's ``rgb_array_list`` returns, the last is taken.
    """
    try:
        image = np.asarray(picture)
    except ValueError:  # lists of different lengths
        image = np.asarray(None)
    if image.ndim == 4 and len(image):
        image = image[-1]
    if image.ndim == 3 and image.shape[2] not in _CHANNELS and image.shape[0] in _CHANNELS:
        image = np.moveaxis(image, 0, 2)
    image = image[..., None] if image.ndim == 2 else image
    if image.dtype.kind not in "biuf" or image.ndim != 3 or image.shape[2] not in _CHANNELS or not image.size:
        described = f"an array {image.shape} of {image.dtype}" if isinstance(picture, np.ndarray) else brief(picture)
        raise ValueError(described)
    low, high = image.min(), image.max()
    if image.dtype.kind == "b" or (image.dtype.kind == "f" and high <= _ONE):
        image, low, high = image * 255.0, low * 255.0, min(high, 1) * 255.0
    if not (low > -1 and high < 256):
        raise ValueError(f"an image with numbers from {low:g} to {high:g}")
    image = np.clip(image, 0, 255).astype(np.uint8)[..., :3]
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else np.ascontiguousarray(image)


def captioned(image: Array, caption: str) -> Array:
    """An image ``(H, W, 3)``, enlarged if it is small, with a dark strip below it that has the caption."""
    from PIL import Image, ImageDraw, ImageFont

    factor = math.ceil(_LEAST_WIDTH / image.shape[1])
    image = image.repeat(factor, axis=0).repeat(factor, axis=1)
    size = image.shape[1] // _LINE
    strip = Image.new("RGB", (image.shape[1], 3 * size // 2), (32, 32, 32))
    ImageDraw.Draw(strip).text((size // 2, size // 8), caption, (255, 255, 255), ImageFont.load_default(size))
    return np.concatenate([image, np.asarray(strip)])


class _Lender:
    """A factory that lends an existing environment to a manager."""

    lends = True

    def __init__(self, film: Film) -> None:
        self._film = film

    def __call__(self) -> Film:
        return self._film


def _write_gif(path: str | Path, frames: Sequence[Array], fps: float) -> None:
    """Writes a small file: narrow images, no more of them than one sees, and one palette for all."""
    from PIL import Image

    # The format counts in hundredths of a second.
    each = max(round(100 / fps), 1)
    shown = [*range(0, len(frames) - 1, math.ceil(_LEAST_TIME / each)), len(frames) - 1]
    durations = (np.diff([*shown, len(frames)]) * each * 10).tolist()
    height, width = frames[0].shape[:2]
    size = (min(width, _MOST_WIDTH), max(round(height * min(1, _MOST_WIDTH / width)), 1))
    images = [Image.fromarray(frames[place]) for place in shown]
    images = [image if image.size == size else image.resize(size, Image.Resampling.LANCZOS) for image in images]
    # With one palette and no dithering, what does not move is the same in all images, and takes no room.
    method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
    sample = np.concatenate([np.asarray(image) for image in images[:: math.ceil(len(images) / _SAMPLE)]])
    palette = Image.fromarray(sample).quantize(256, method=method, dither=dither)
    first, *others = [image.quantize(palette=palette, dither=dither) for image in images]
    first.save(path, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
