"""Wrappers by name."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from worlds import Recycler

from minding.engine.errors import SpaceError
from minding.envs import check_env, describe_env, make_env_manager
from minding.envs.single.wrappers import wrap


class Image(gymnasium.Env):
    """Color images (4, 6, 3) whose value is the step."""

    observation_space = spaces.Box(0, 255, (4, 6, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros((4, 6, 3), np.uint8), {}

    def step(self, action):
        self.steps += 1
        return np.full((4, 6, 3), self.steps, np.uint8), 0.0, False, False, {}


def test_frame_stack_joins_vectors_oldest_first():
    env = wrap(Recycler(), [{"frame_stack": {"size": 3}}])
    obs, _ = env.reset(seed=0)
    start = obs[0]
    assert obs.tolist() == [start, 0] * 3
    env.step(0)
    assert env.step(0)[0].tolist() == [start, 0, start, 1, start, 2]
    assert env.observation_space.shape == (6,)


@pytest.mark.parametrize(
    ("wrappers", "shape"),
    [
        ([], (4, 6, 3)),
        (["channel_first"], (3, 4, 6)),
        (["channel_first", {"frame_stack": {"size": 2}}], (6, 4, 6)),
        (["grayscale"], (4, 6)),
        (["grayscale", {"frame_stack": {"size": 4}}], (4, 4, 6)),
        (["grayscale", "channel_first"], (1, 4, 6)),
        (["flatten"], (72,)),
    ],
)
def test_shapes_of_image_wrappers(wrappers, shape):
    env = wrap(Image(), wrappers)
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape == shape
    assert obs.dtype == np.uint8
    assert env.step(0)[0].max() == 1


def test_wrappers_apply_to_managers_and_descriptions():
    cfg = {"wrappers": ["channel_first", {"time_limit": {"steps": 2}}]}
    assert describe_env(cfg, env_fn=Image)["max_episode_steps"] == 2
    manager = make_env_manager(cfg, 2, 0, env_fn=Image)
    assert manager.reset().shape == (2, 3, 4, 6)
    assert [manager.step(np.zeros(2, int)).truncated.tolist() for _ in range(2)] == [[False] * 2, [True] * 2]
    manager.close()


def test_resize_makes_small_images():
    pytest.importorskip("cv2")
    env = wrap(Image(), [{"resize": {"shape": [2, 3]}}])
    assert env.reset()[0].shape == (2, 3, 3)


class Camera(gymnasium.Env):
    """A Dict of an image with its channels last, one with its channels first, a gray one, and a vector."""

    def __init__(self):
        shapes = {"last": (8, 9, 3), "first": (3, 8, 9), "gray": (8, 9)}
        images = {key: spaces.Box(0, 255, shape, np.uint8) for key, shape in shapes.items()}
        self.observation_space = spaces.Dict(images, arm=spaces.Box(-1, 1, (2, 3)))
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_images_with_channels_last_name_the_wrapper():
    with pytest.raises(SpaceError, match=r"observation last \(8, 9, 3\) .* channels last.*add channel_first"):
        describe_env({}, env_fn=Camera)
    (found,) = check_env({}, 10, env_fn=Camera)
    assert found.level == "error"
    assert "channel_first" in found.text


def test_channel_first_turns_the_images_of_a_dict():
    cfg = {"wrappers": ["channel_first"]}
    described = describe_env(cfg, env_fn=Camera)["observation"]["spaces"]
    shapes = {"arm": [2, 3], "first": [3, 8, 9], "gray": [1, 8, 9], "last": [3, 8, 9]}
    assert {key: space["shape"] for key, space in described.items()} == shapes
    manager = make_env_manager(cfg, 2, 0, env_fn=Camera)
    assert manager.reset()["last"].shape == (2, 3, 8, 9)
    assert not [found for found in check_env(cfg, 10, env_fn=Camera) if found.level == "error"]


def test_images_in_dicts_within_a_dict_are_turned_too():
    class Nested(gymnasium.Env):
        action_space = spaces.Discrete(2)
        observation_space = spaces.Dict(
            seen=spaces.Dict(image=spaces.Box(0, 255, (8, 9, 3), np.uint8), speed=spaces.Box(-1, 1, (2,), np.float32)),
            word=spaces.Discrete(3),
        )

        def reset(self, *, seed=None, options=None):
            image = np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3)
            return {"seen": {"image": image, "speed": np.zeros(2, np.float32)}, "word": 1}, {}

        def step(self, action):
            return self.reset()[0], 0.0, False, False, {}

    env = wrap(Nested(), ["channel_first"])
    obs, _ = env.reset()
    assert env.observation_space["seen"]["image"].shape == obs["seen"]["image"].shape == (3, 8, 9)
    assert np.array_equal(obs["seen"]["image"][2], Nested().reset()[0]["seen"]["image"][:, :, 2])
    assert (obs["word"], obs["seen"]["speed"].tolist()) == (1, [0.0, 0.0])
    assert env.observation_space.contains(env.step(0)[0])
