"""Videos of episodes."""

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


def test_several_episodes_follow_one_another_in_one_film(tmp_path):
    env = {"env_id": "test_video:Painted", "info_keys": ["action_mask"], "wrappers": [{"frame_stack": {"size": 2}}]}
    (first,) = video.record_episodes(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=50)
    ends = video.record_episodes(env, FirstLegal(), tmp_path / "b.gif", seed=3, max_steps=50, episodes=3)
    assert (len(ends), ends[0]) == (3, first)
    assert shades(tmp_path / "b.gif")[0] == [40 * step for end in ends for step in range(end.episode_length + 1)]
    cut = video.record_episodes(env, FirstLegal(), tmp_path / "c.gif", seed=3, max_steps=1, episodes=2)
    assert [end.episode_length for end in cut] == [1, 1]
    assert shades(tmp_path / "c.gif")[0] == [0, 40, 0, 40]


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


class Growing(Painted):
    """Its images grow with each step."""

    def render(self):
        return np.zeros((8, 8 + self.steps, 3), np.uint8)


class Unrendered(Blank):
    def __init__(self):
        super().__init__()
