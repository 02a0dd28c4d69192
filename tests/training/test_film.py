"""The film of the final policy that `run.video` asks for."""

import gymnasium
import numpy as np
from gymnasium import spaces
from tensorboardX.proto.event_pb2 import Event

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.run.run_dir import RunDir
from minding.training import session
from minding.training.film import film_episode, film_run


class Painted(gymnasium.Env):
    """Four steps long; renders its step as the gray of a picture 12 wide and 8 high."""

    observation_space = spaces.Box(0.0, 4.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 4, False, {}

    def render(self):
        return np.full((8, 12, 3), 40 * self.steps, np.uint8)


class NoScreen(Painted):
    def render(self):
        raise RuntimeError("no display is there")


class Player:
    """Stands in for a policy whose eval mode always takes the first action."""

    @property
    def eval_mode(self):
        return self

    def reset(self): ...

    def forward(self, obs):
        return np.zeros(len(obs), np.int64)


def config(tmp_path, env="Painted", *settings):
    user = {"env": {"env_id": f"test_film:{env}"}, "policy": {"type": "ppo"}}
    return compile_run(Config(user), [f"run.out_dir={tmp_path}", *settings])


def images(folder):
    """Steps, sizes and contents of the images in the event files of a folder."""
    found = []
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
            for value in event.summary.value:
                if value.HasField("image"):
                    size = value.image.width, value.image.height
                    found.append((event.step, size, value.image.encoded_image_string))
    return found


def test_the_film_is_in_the_run_folder_and_in_tensorboard(tmp_path):
    cfg = config(tmp_path)
    run_dir = RunDir.create(cfg)
    film_run(cfg, run_dir, Player(), 300, lambda: False)
    film = run_dir.video.read_bytes()
    assert film.startswith(b"GIF89a")
    assert images(run_dir.tensorboard) == [(300, (12 * 20, 8 * 20 + 15), film)]


def test_an_environment_that_cannot_render_ends_nothing(tmp_path, caplog):
    cfg = config(tmp_path, "NoScreen")
    run_dir = RunDir.create(cfg)
    film_run(cfg, run_dir, Player(), 300, lambda: False)
    assert "run.video: no film: environment 0 (test_film:NoScreen): failed in reset" in caplog.text
    assert "RuntimeError: no display is there" in caplog.text
    assert sorted(path.name for path in run_dir.path.iterdir()) == ["config.yaml"]


def test_a_film_that_is_stopped_is_not_written(tmp_path):
    asked = iter([False, False, True, True, True])
    file = tmp_path / "film.gif"
    assert film_episode(file, config(tmp_path), Player(), lambda: next(asked)) == "it was stopped"
    assert not file.exists()


def test_a_run_is_filmed_after_its_final_evaluation(tmp_path, monkeypatch, caplog):
    # A long evaluation says once that it still runs.
    monkeypatch.setattr(session, "_LONG", 0.0)
    caplog.set_level("INFO")
    small = ["policy.model.hidden=[8]", "policy.collect.n_sample=64", "run.max_env_step=64", "run.final_episodes=1"]
    cfg = config(tmp_path, "Painted", *small, "run.video=true", "env.backend=sync")
    run_dir = RunDir.create(cfg)
    summary = training.train(cfg, run_dir, progress=False)
    assert summary.eval_return == 4.0
    assert [record.message for record in caplog.records if "still runs" in record.message] == [
        "the final evaluation (run.final_episodes=1) still runs; Ctrl-C ends the run without it"
    ]
    assert images(run_dir.tensorboard) == [(summary.env_step, (12 * 20, 8 * 20 + 15), run_dir.video.read_bytes())]
    # It takes seconds, and graphics drivers that a machine without a screen may lack.
    assert config(tmp_path).run.video is False
