"""Recorded data that a run cannot learn from are refused before it begins, and leave nothing behind."""

import dataclasses
import os
import re
import shutil

import numpy as np
import pytest
from recordings import log

from minding import training
from minding.configs import compile_run
from minding.configs import datasets as recorded_data
from minding.engine import Config
from minding.engine.checkpoint import save_checkpoint
from minding.engine.data.dataset import Dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.description import describe
from minding.engine.errors import ConfigError, DataError
from minding.engine.process import runtime
from minding.engine.run.run_dir import RunDir


def config(folder, data, batch_size=4):
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "bc", "other": {"data": str(data)}})
    return compile_run(user, [f"policy.learn.batch_size={batch_size}", f"run.out_dir={folder}/runs", "exp_name=clone"])


def recorded(env):
    """Two episodes of two steps of an environment with two actions or more."""
    obs = np.ones((3, env.spec.observation.shape[0]))
    return Dataset.of_episodes([log(2, [0, 1], obs=obs), log(2, [1, 0], obs=obs)], describe(env))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of data that fit, and folders of other things."""
    parent = tmp_path_factory.mktemp("folders")
    save_dataset(parent / "good", recorded(config(parent, "good").env))
    acrobot = Config(env={"env_id": "Acrobot-v1"}, policy={"type": "bc"})
    save_dataset(parent / "acrobot", recorded(compile_run(acrobot).env))
    save_checkpoint(parent / "checkpoint", {"policy": {}}, {})
    (parent / "empty").mkdir()
    run_folder = RunDir.create(config(parent, "none")).path.rename(parent / "run")
    save_dataset(run_folder / "data", recorded(config(parent, "none").env))
    return parent


def test_converted_and_repaired_data_are_as_they_were(folders, tmp_path, refused, monkeypatch):
    (tmp_path / "my set").mkdir()
    (tmp_path / "my set" / "metadata.json").write_text("{}")
    (tmp_path / "pole.hdf5").write_bytes(b"rows")
    (tmp_path / "sets" / "pole" / "expert-v0" / "data").mkdir(parents=True)
    (tmp_path / "sets" / "pole" / "expert-v0" / "data" / "metadata.json").write_text("{}")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    assert "on this machine; `minding data convert pole/expert-v0 --out data/expert-v0`" in refused(
        "data", "info", "pole/expert-v0"
    )
    for name, out in (("pole.hdf5", str(tmp_path / "pole")), ("my set", f"'{tmp_path}/my set-converted'")):
        path = tmp_path / name
        given = f"'{path}'" if " " in name else path
        for command in (["data", "info"], ["data", "plot"]):
            assert f"`minding data convert {given} --out {out}` makes a folder of it" in refused(*command, path)
        for env_id in ("data", "CartPole-v1"):
            assert f"`minding data convert {given} --out {out}`" in refused(
                "train", "bc", f"env.env_id={env_id}", f"policy.other.data={path}"
            )
    for name in ("logs.npz", "logs.pkl", "logs.csv"):
        (tmp_path / name).touch()
        for command in (["data", "info"], ["data", "check"], ["train", "cartpole_bc"]):
            given = f"policy.other.data={tmp_path / name}" if command[0] == "train" else str(tmp_path / name)
            assert "with save_dataset(FOLDER, Dataset.of_episodes(episodes))" in refused(*command, given)
    for about, remedy in (
        ({"converted": ["a.hdf5", "b c"]}, "convert a.hdf5 'b c' again with `minding data convert`, --out "),
        ({"player": "sac while it learned"}, "train the run that saved them again"),
        ({"player": "random actions"}, "record them again with `minding data record`"),
        ({}, "with `minding data record` or `minding data convert`"),
    ):
        good = recorded(config(folders, "good").env)
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        save_dataset(tmp_path / "damaged", dataclasses.replace(good, about={**good.about, **about}))
        (arrays,) = (tmp_path / "damaged").glob("*.safetensors")
        arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
        assert remedy in refused("data", "info", tmp_path / "damaged")


LOG = log(3, [[0.5]] * 3, obs=np.zeros((4, 3)))
REFUSED = {
    "absent": (4, "no recorded data in .*absent'"),
    "empty": (4, "no recorded data in .*empty'"),
    "run": (4, r"no recorded data in .*run'; did you mean '.*run/data'\?"),
    "checkpoint": (4, "checkpoint' is a checkpoint"),
    "acrobot": (4, "env.env_id is 'Acrobot-v1' there"),
    "good": (5, "policy.learn.batch_size=5 exceeds the 4"),
}


@pytest.fixture
def not_prepared(monkeypatch):
    """MindSpore must not be asked for anything."""

    def prepare(settings):
        raise AssertionError("MindSpore was prepared")

    monkeypatch.setattr(runtime, "prepare", prepare)


@pytest.mark.parametrize("name", REFUSED)
def test_errors_come_before_mindspore_and_leave_no_folder(name, folders, tmp_path, refused, not_prepared):
    batch_size, message = REFUSED[name]
    settings = [f"policy.other.data={folders / name}", f"policy.learn.batch_size={batch_size}"]
    assert re.search(message, refused("train", "cartpole_bc", *settings, f"run.out_dir={tmp_path / 'runs'}"))
    assert not (tmp_path / "runs").exists()
    cfg = config(tmp_path, folders / name, batch_size)
    run_dir = RunDir.create(cfg)
    with pytest.raises(DataError, match=message):
        training.train(cfg, run_dir, progress=False)
    assert not run_dir.path.exists()
    with pytest.raises(ConfigError, match=r"no run folder '.*clone'"):
        training.train(cfg, run_dir, progress=False)


LATER = {
    # By settings, and what is done to the folder: known only once the data are read.
    "holdout": (["policy.other.holdout=0.9"], None, "policy.other.holdout=0.9"),
    "rows": (["policy.other.holdout=0.5"], None, "batch_size=3 exceeds the 2"),
    "range": (["policy.other.reward=return_range"], None, "that of all 2 is 2"),
    "cut": ([], lambda file: file.write_bytes(file.read_bytes()[:100]), "damaged: .*100 bytes"),
    "pipe": ([], lambda file: (file.unlink(), os.mkfifo(file)), "damaged: .*0 bytes"),
    "gone": ([], lambda file: file.unlink(), "damaged: .*No such file"),
}


@pytest.mark.parametrize("name", LATER)
def test_errors_in_the_arrays_come_before_mindspore(name, folders, tmp_path, refused, not_prepared):
    more, damage, message = LATER[name]
    data = shutil.copytree(folders / "good", tmp_path / "data")
    if damage is not None:
        damage(next(data.glob("arrays-*")))
    algorithm = "discrete_cql" if name == "range" else "bc"
    settings = [f"policy.other.data={data}", "policy.learn.batch_size=3", *more, f"run.out_dir={tmp_path / 'runs'}"]
    env = "data" if name == "range" else "CartPole-v1"
    error = refused("train", algorithm, f"env.env_id={env}", *settings)
    assert re.search(message, error)
    assert not (tmp_path / "runs").exists()


PENDULUM = ("iql", "env.env_id=Pendulum-v1", "policy.other.reward=return_range")
UNFIT = {
    "fqe of several choices": (["bc", "env.env_id=data", "policy.eval.fqe=true"], "multi_discrete"),
    "lives that no one reports": (["ppo", "env.env_id=CartPole-v1", "env.episodic_life=true"], "gives none"),
    "too few for GAIL": (["gail", "env.env_id=CartPole-v1", "policy.other.gail.batch_size=5"], r"gail\.batch_size=5"),
    "one return": ([*PENDULUM, "chain=prior_data"], "that of all 2 is 3"),
    "a range of nothing recorded": ([*PENDULUM, "chain=off_policy"], "return_range with chain='off_policy'"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_settings_that_do_not_fit_are_refused_before_mindspore(name, folders, tmp_path, refused, not_prepared):
    arguments, message = UNFIT[name]
    if name == "fqe of several choices":
        data = Dataset.of_episodes([{**LOG, "action": [[0, 1], [1, 0], [1, 1]]}] * 2)
    elif name == "one return":
        data = Dataset.of_episodes([LOG, LOG], env="Pendulum-v1")
    else:
        data = recorded(config(folders, "good").env)
    save_dataset(tmp_path / "good", data)
    if "chain=off_policy" not in arguments and arguments[0] != "ppo":
        arguments = [*arguments, f"policy.other.data={tmp_path / 'good'}"]
    if arguments[0] in ("bc", "iql"):
        arguments = [*arguments, "policy.learn.batch_size=4"]
    error = refused("train", *arguments, f"run.out_dir={tmp_path / 'runs'}")
    assert re.search(message, error)
    assert not (tmp_path / "runs").exists()


def test_data_are_read_once_however_often_a_run_is_checked(folders, monkeypatch, tmp_path):
    data = shutil.copytree(folders / "good", tmp_path / "data")
    read, load = [], recorded_data.load_dataset
    monkeypatch.setattr(recorded_data, "load_dataset", lambda *args, **how: read.append(1) or load(*args, **how))
    cfg = config(tmp_path, data)
    for _ in range(3):
        training.check_runnable(cfg)
    assert len(read) == 1
    # Other data in the same place are others.
    shutil.rmtree(data)
    save_dataset(data, recorded(cfg.env))
    training.check_runnable(cfg)
    assert len(read) == 2


def test_data_that_fit_go_on_to_mindspore(folders, tmp_path, not_prepared):
    cfg = config(tmp_path, folders / "good")
    with pytest.raises(AssertionError, match="MindSpore was prepared"):
        training.train(cfg, RunDir.create(cfg), progress=False)
