"""All rollouts of a run as recorded data: each row once, true successors, and the same after an interruption."""

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine.data.dataset import load_dataset
from minding.engine.errors import DataError
from minding.engine.run.run_dir import RunDir
from minding.middleware import offline_data_saver
from minding.training.session import Session

pytestmark = pytest.mark.eager

SETTINGS = [
    "env.env_id=CartPole-v1",
    "policy.collect.n_sample=64",
    "policy.model.hidden=[8]",
    "env.collector_env_num=4",
]
SHORT = [
    "policy.learn.n_epoch=1",
    "policy.learn.n_minibatch=1",
    "env.normalize_reward=false",
    "run.final_episodes=1",
    "run.loggers=[]",
    "policy.eval.freq=100000",
    "exp_name=run",
]


def settings(folder, *more):
    return compile_run("ppo", [*SETTINGS, *SHORT, f"run.out_dir={folder}", *more])


class Watch:
    """Keeps the rows of all rollouts, one list for each environment."""

    def __init__(self):
        self.rows = [[] for _ in range(4)]

    def __call__(self, ctx):
        rollout = ctx.trajectories
        successor = rollout.next_obs()
        for t, n in np.ndindex(*rollout.shape):
            if rollout.valid is None or rollout.valid[t, n]:
                row = (rollout.obs[t, n], successor[t, n], rollout.action[t, n], rollout.reward[t, n])
                self.rows[n].append((*row, rollout.terminated[t, n]))


def play(cfg, folder, until, watch=None, resume=None):
    """A run to a step; the data, and its session's saver."""
    run_dir = RunDir.create(cfg) if resume is None else RunDir.open(resume)
    task_of = {}
    with Session(cfg, run_dir, progress=False, resume=None if resume is None else "latest") as session:
        saver = offline_data_saver(cfg, folder)
        for each in (saver, *([watch] if watch else [])):
            session.task.use(each)
        session.run(until)
        task_of["parts"] = sorted(path.name for path in folder.parent.glob(f"{folder.name}*"))
    return load_dataset(folder), task_of["parts"]


def rows_of(data):
    found = data.rows(["obs", "next_obs", "action", "reward", "terminated"], np.arange(len(data)))
    return sorted(
        tuple(np.concatenate([np.ravel(found[name][i]) for name in found]).tolist()) for i in range(len(data))
    )


def test_every_row_is_there_once_with_its_true_successor(tmp_path, monkeypatch):
    monkeypatch.setattr(offline_data_saver, "part_steps", 100)
    watch = Watch()
    data, beside = play(settings(tmp_path), tmp_path / "replay", 640, watch)
    assert len(data) == 640
    expected = sorted(
        tuple(np.concatenate([np.ravel(part) for part in row]).tolist()) for rows in watch.rows for row in rows
    )
    assert rows_of(data) == expected
    # Parts were written on the way, and are gone with the run.
    assert beside == ["replay", "replay.parts"]
    assert not (tmp_path / "replay.parts").exists()
    cut = ~(data.terminated[data.end] | data.truncated[data.end])
    assert cut.sum() <= 4
    assert data.about["player"] == "ppo while it learned"


@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_run_saves_what_an_uninterrupted_one_does(killed, tmp_path, monkeypatch):
    monkeypatch.setattr(offline_data_saver, "part_steps", 100)
    whole, _ = play(settings(tmp_path / "a"), tmp_path / "whole", 640)
    replay = tmp_path / "replay"
    if killed:
        # Neither the end of the run nor that of the block is reached in this process.
        monkeypatch.setattr(offline_data_saver, "finish", lambda self, ctx: None)
        with pytest.raises(DataError, match="no recorded data"):
            play(settings(tmp_path / "b"), replay, 320)
        monkeypatch.undo()
        monkeypatch.setattr(offline_data_saver, "part_steps", 100)
        assert not replay.exists()
    else:
        play(settings(tmp_path / "b"), replay, 320)
    again, _ = play(settings(tmp_path / "b"), replay, 640, resume=tmp_path / "b" / "run")
    assert rows_of(again) == rows_of(whole)
    assert len(again.end) == len(whole.end)
    assert sorted(path.name for path in tmp_path.glob("replay*")) == ["replay"]
