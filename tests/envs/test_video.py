"""Videos of episodes."""

import types

import numpy as np
import pytest
from worlds import Permit

from minding.envs import video


class Painted(Permit):
    """Renders its step as the grey of one pixel."""

    metadata = {"render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None, **kwargs):
        super().__init__(**kwargs)
        self.render_mode = render_mode

    def render(self):
        return np.full((1, 1, 3), self.steps, np.uint8)


class FirstLegal:
    def reset(self): ...

    def forward(self, obs):
        # Two frames of two numbers: the wrapper was applied once.
        assert obs.observation.shape == (1, 4)
        # In the environment's units, which begin at 2.
        return 2 + obs.action_mask.argmax(axis=1)


def test_wrappers_and_masks_are_applied_once_and_every_step_is_a_picture(monkeypatch, tmp_path):
    written = []
    imageio = types.SimpleNamespace(mimsave=lambda path, frames, fps: written.append((path, frames, fps)))
    monkeypatch.setattr(video, "check_video", lambda path: imageio)
    env = {
        "env_id": "test_video:Painted",
        "wrappers": [{"frame_stack": {"size": 2}}],
        "info_keys": ["action_mask", "success"],
    }
    end = video.record_episode(env, FirstLegal(), tmp_path / "a.gif", seed=3, max_steps=50)
    ((path, frames, fps),) = written
    assert (path, fps) == (str(tmp_path / "a.gif"), 5)
    assert [int(frame[0, 0, 0]) for frame in frames] == list(range(end.episode_length))
    assert end.episode_return == pytest.approx(sum(range(1, end.episode_length + 1)))
