"""Videos of episodes."""

import ctypes
import re
import types

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence
from worlds import Permit

from minding.engine.errors import ConfigError, UnfilmableError
from minding.envs import video
from minding.envs.config import env_settings
from minding.envs.single import env_objects, rendering
from minding.envs.single.factory import env_factory


class Painted(Permit):
    """Renders its step as the gray of one pixel."""

    metadata = {"render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None, **kwargs):
        super().__init__(**kwargs)
        self.render_mode = render_mode

    def render(self):
        return np.full((8, 8, 3), 40 * self.steps, np.uint8)


class Blank(Painted):
    """Renders nothing."""

    def render(self):
        return None


class Unseen(Painted):
    """Has no `render` of its own."""

    render = gymnasium.Env.render


class FirstLegal:
    def reset(self): ...

    def forward(self, obs):
        # Two frames of two numbers: the wrapper was applied once.
        assert obs.observation.shape == (1, 4)
        # In the environment's units, which begin at 2.
        return 2 + obs.action_mask.argmax(axis=1)


def shades(path):
    """The gray of each picture of a GIF in tens, which 256 colors leave, and how long it is shown, ms."""
    with Image.open(path) as film:
        frames = [10 * round(np.asarray(frame.convert("RGB"))[0, 0, 0] / 10) for frame in ImageSequence.Iterator(film)]
        return frames, film.info["duration"]


CAPTIONED = video.captioned


def test_a_caption_is_readable_below_an_image_of_any_size():
    for side, shown, strip in ((8, 240, 15), (330, 330, 22)):
        image = video.captioned(np.zeros((side, side, 3), np.uint8), "step 12   return 3.50")
        assert image.shape == (shown + strip, shown, 3)
        assert not image[:shown].any()
        assert (image[shown:].max(axis=(0, 2)) > 180).sum() > 20


def test_every_step_is_a_picture_with_its_return(tmp_path, monkeypatch):
    env = {
        "env_id": "test_video:Painted",
        "wrappers": [{"frame_stack": {"size": 2}}],
        "info_keys": ["action_mask", "success"],
    }
    told = []
    monkeypatch.setattr(video, "captioned", lambda image, text: told.append(text) or CAPTIONED(image, text))
    (end,) = video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=50)
    returns = np.cumsum(range(end.episode_length + 1))
    assert told == [f"step {step}   return {total:.2f}" for step, total in enumerate(returns)]
    frames, duration = shades(tmp_path / "a.gif")
    assert duration == 200
    # The first observation, and the true last one.
    assert frames == [40 * step for step in range(end.episode_length + 1)]
    assert end.episode_return == pytest.approx(sum(range(1, end.episode_length + 1)))
    assert end.info == {"success": 1.0}


def test_a_film_ends_where_its_images_fill_the_memory(tmp_path, monkeypatch, caplog):
    # Two images of 8 x 8 x 3 bytes.
    monkeypatch.setattr(video, "_MOST_BYTES", 300)
    env = {"env_id": "test_video:Painted", "info_keys": ["action_mask"], "wrappers": [{"frame_stack": {"size": 2}}]}
    (end,) = video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=50)
    assert end.episode_length > 1
    assert shades(tmp_path / "a.gif")[0] == [0, 40]
    assert "a.gif ends after 2 images, which take 0.0 GB of memory" in caplog.text


def test_a_gif_is_narrow_and_keeps_its_duration(tmp_path):
    # A white bar that moves over black, a green field that appears late, and red in a single image.
    frames = [np.zeros((300, 480, 3), np.uint8) for _ in range(8)]
    for number, frame in enumerate(frames):
        frame[:, 60 * number : 60 * number + 30] = 255
        frame[200:, :60] = (0, 200 * (number > 4), 0)
    frames[4][100:130, 390:420] = (200, 0, 0)
    video.video_writer("a.gif")(tmp_path / "a.gif", frames, 50)
    with Image.open(tmp_path / "a.gif") as film:
        found = [(np.array(each.convert("RGB"), float), each.info["duration"]) for each in ImageSequence.Iterator(film)]
    images, durations = zip(*found)
    assert durations == (40, 40, 40, 20, 20)
    # The last image is among them.
    assert [int(image[10].sum(axis=1).argmax()) // 40 for image in images] == [0, 2, 4, 6, 7]
    assert all(image.shape == (200, 320, 3) for image in images)
    assert np.abs(images[-1][170, 10] - (0, 200, 0)).max() < 10
    assert np.abs(images[2][77, 270] - (200, 0, 0)).max() < 10


def test_several_episodes_follow_one_another_in_one_film(tmp_path):
    env = {"env_id": "test_video:Painted", "info_keys": ["action_mask"], "wrappers": [{"frame_stack": {"size": 2}}]}
    (first,) = video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=50)
    ends = video.record_episodes(env, FirstLegal(), tmp_path / "b.gif", seed=3, max_steps=50, episodes=3)
    assert (len(ends), ends[0]) == (3, first)
    assert shades(tmp_path / "b.gif")[0] == [40 * step for end in ends for step in range(end.episode_length + 1)]
    cut = video.record_episodes(env, FirstLegal(), tmp_path / "c.gif", seed=3, max_steps=1, episodes=2)
    assert [end.episode_length for end in cut] == [1, 1]
    assert shades(tmp_path / "c.gif")[0] == [0, 40, 0, 40]


def test_filming_is_decided_without_an_environment():
    ids = ("CartPole-v1", "test_video:Painted", "minding/Battle-v0", "test_video:Unseen", "worlds:Permit")
    answers = [env_factory(env_settings({"env_id": env_id})).renders for env_id in ids]
    assert answers == [True, True, True, False, False]


class Shooter:
    def reset(self): ...

    def forward(self, obs):
        return obs.action_mask.shape[-1] - 1 - np.flip(np.asarray(obs.action_mask), -1).argmax(axis=-1)


def test_a_battle_of_a_whole_team_is_filmed(tmp_path):
    env = {"env_id": "minding/Battle-v0", "info_keys": ["battle_won"], "backend": "native", "global_state": True}
    (end,) = video.record_episodes(env, Shooter(), tmp_path / "a.gif", seed=0, max_steps=100)
    with Image.open(tmp_path / "a.gif") as film:
        # Below the map is a strip with a caption.
        assert film.size == (320, round(320 / (16 * 24) * (12 * 24 + 25)))
        assert film.n_frames == end.episode_length + 1
    assert set(end.info) == {"battle_won"}


@pytest.mark.parametrize("name", ["Blank", "Unseen"])
def test_what_renders_no_pictures_is_refused(name, tmp_path):
    env = {"env_id": f"test_video:{name}", "info_keys": ["action_mask"]}
    with pytest.raises(
        ConfigError, match=rf"'test_video:{name}' cannot be filmed: after 0 steps its render\(\), .* returned None"
    ):
        video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=5)


@pytest.mark.parametrize("devices", [None, 0, 1])
def test_a_library_of_egl_draws_only_with_a_device(devices):
    @ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    def query(most, found, count):
        count[0] = devices
        return 1

    address = None if devices is None else ctypes.cast(query, ctypes.c_void_p).value
    assert rendering._draws(types.SimpleNamespace(eglGetProcAddress=lambda name: address)) == bool(devices)


@pytest.mark.parametrize("vector", [False, True])
def test_where_mujoco_cannot_draw_a_film_is_refused(vector, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    kwargs = {"render_mode": "rgb_array"}
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rendering, "_LIBRARIES", {"egl": "libnowhere.so"})
    rendering.choose_renderer.__wrapped__()
    made = gymnasium.make_vec("Hopper-v5", num_envs=2, vectorization_mode="sync") if vector else "Hopper-v5"
    for _ in range(2):
        with pytest.raises(UnfilmableError, match=r"cannot be filmed: MuJoCo .* without a display.*install libegl1"):
            video.record_episodes(
                env_objects.env_settings_of(made), FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=5
            )
    with pytest.raises(ConfigError, match=r"env.wrappers: pixels: MuJoCo .* install libegl1"):
        env_factory(env_settings({"env_id": "Hopper-v5", "env_kwargs": kwargs, "wrappers": ["pixels"]}))()


class Left:
    def reset(self): ...

    def forward(self, obs):
        return np.zeros(len(obs), np.int64)


def test_a_vector_environment_is_filmed(tmp_path):
    env = env_objects.env_settings_of(gymnasium.make_vec("CartPole-v1", num_envs=2))
    (end,) = video.record_episodes(env, Left(), tmp_path / "a.gif", seed=3, max_steps=5)
    assert end.episode_length == 5
    assert len(shades(tmp_path / "a.gif")) > 1


GRAY = np.full((2, 5), 51)
COLORS = np.stack([GRAY, 2 * GRAY, 3 * GRAY], axis=-1)
RGB = COLORS.tolist()


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (COLORS.astype(np.uint8), RGB),
        (RGB, RGB),
        (COLORS / 255, RGB),
        (np.moveaxis(COLORS, 2, 0), RGB),
        (np.concatenate([COLORS, COLORS[..., :1]], axis=2), RGB),
        ([np.zeros((2, 5, 3), np.uint8), COLORS.astype(np.uint8)], RGB),
        (GRAY, [[[51] * 3] * 5] * 2),
        (GRAY[None] / 255, [[[51] * 3] * 5] * 2),
        (GRAY > 0, [[[255] * 3] * 5] * 2),
    ],
)
def test_images_of_other_forms_are_converted(picture, expected):
    image = video.as_image(picture)
    assert (image.dtype, image.tolist()) == (np.uint8, expected)
    assert not np.shares_memory(image, picture)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (None, "None"),
        ("a window", "'a window'"),
        (np.zeros((5, 7, 6)), "an array (5, 7, 6) of float64"),
        (np.zeros((0, 4, 3), np.uint8), "an array (0, 4, 3) of uint8"),
        (np.full((2, 2, 3), np.nan), "an image with numbers from nan to nan"),
        (np.full((2, 2, 3), 300), "an image with numbers from 300 to 300"),
    ],
)
def test_what_is_no_image_is_described(picture, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        video.as_image(picture)


class Growing(Painted):
    """Its images grow with each step."""

    def render(self):
        return np.zeros((8, 8 + self.steps, 3), np.uint8)


def test_images_of_different_sizes_are_refused(tmp_path):
    env = {"env_id": "test_video:Growing", "info_keys": ["action_mask"], "wrappers": [{"frame_stack": {"size": 2}}]}
    with pytest.raises(ConfigError, match=r"different sizes, \(H, W\) = \(8, 8\) and \(8, 9\)"):
        video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=5)
    assert not (tmp_path / "a.gif").exists()


class Unrendered(Blank):
    def __init__(self):
        super().__init__()


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("Unrendered", "a.gif", "Unrendered cannot render images: its __init__ has no argument render_mode"),
        ("Unrendered", "new/folder/a.gif", "Unrendered cannot render images"),
        ("Blank", "/proc/nowhere/a.gif", "cannot write: No such file or directory; give another --out"),
    ],
)
def test_a_film_that_cannot_be_made_is_refused_before_an_episode(name, file, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        video.record_episodes({"env_id": f"test_video:{name}"}, FirstLegal(), tmp_path / file, seed=3, max_steps=5)
    assert list(tmp_path.iterdir()) == []
