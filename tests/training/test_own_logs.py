"""Logs of one's own: what they do not say is given with them, and what is wrong with them is found."""

import dataclasses
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from of_algorithms import recorded

from minding.cli import run
from minding.configs import compile_run
from minding.engine.data.dataset import Dataset, episodes_of, joined, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.errors import DataError
from minding.training.conversion import convert, open_source


def swings(count=2, steps=3, scale=1.0):
    """Episodes as of Pendulum, with angles as cos and sin."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        angle = rng.uniform(-3, 3, steps + 1)
        yield {
            "obs": scale * np.stack([np.cos(angle), np.sin(angle), angle], axis=1),
            "action": rng.uniform(-2, 2, (steps, 1)),
            "reward": rng.normal(size=steps),
            "terminated": False,
            "truncated": True,
        }


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_dataset("logs", Dataset.of_episodes(swings()))
    return "logs"


def lines(capsys):
    out, error = capsys.readouterr()
    return [*out.splitlines(), *error.splitlines()]


def test_conversion_gives_own_logs_an_environment(logs):
    assert run(["data", "convert", logs, "--env", "Pendulum-v1", "--out", "of"]) == 0
    env = load_dataset("of").about["env"]
    assert (env["env_id"], env["env_action"]["low"], env["max_episode_steps"]) == ("Pendulum-v1", -2.0, 200)
    settings = ["env.env_id=Pendulum-v1", "policy.other.data=of", "policy.learn.batch_size=2"]
    assert compile_run("iql", settings).env.env_id == "Pendulum-v1"
    with pytest.raises(DataError, match=r"do not name their environment: .* data convert logs --env Pendulum-v1 --out"):
        compile_checked(["env.env_id=Pendulum-v1", "policy.other.data=logs", "policy.learn.batch_size=2"])


def compile_checked(settings):
    from minding.configs.datasets import open_data

    cfg = compile_run("iql", settings)
    return open_data(cfg, cfg.policy.learn.batch_size)


def test_check_takes_the_spaces_of_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_dataset("logs", Dataset.of_episodes(swings(scale=50)))
    assert run(["data", "check", "logs"]) == 0
    capsys.readouterr()
    assert run(["data", "check", "logs", "--env", "Pendulum-v1"]) == 1
    assert "fault: episode 0: the observation of step 0 is [" in capsys.readouterr().out
    assert run(["data", "check", "logs", "--env", "CartPole-v1"]) == 1
    assert "the environment's (4,)" in capsys.readouterr().out
    assert run(["data", "convert", "logs", "--env", "Pendulum-v1", "--out", "out"]) == 2
    # A folder may name its environment itself.
    save_dataset("named", Dataset.of_episodes(swings(scale=50), env="Pendulum-v1"))
    assert run(["data", "check", "named"]) == 1
    assert "fault: episode 1: the observation of step 0 is" in capsys.readouterr().out


def spoil(folder, change):
    """Writes a set with changed episodes beside it."""
    data = load_dataset(folder)
    save_dataset("spoiled", joined(change(list(episodes_of(data))), data.about))


def repeated(episodes):
    return [dataclasses.replace(each, final_obs={"": each.obs[""][-1]}) for each in episodes]


def large(episodes):
    reward = episodes[1].reward.copy()
    reward[1] = -1e30
    return [episodes[0], dataclasses.replace(episodes[1], reward=reward)]


def whole(episodes):
    return [dataclasses.replace(each, action=np.rint(each.action)) for each in episodes]


NOTES = {
    "repeated": (repeated, "note: in 2 of 2 episodes the observation after the last step equals the one before it"),
    "large": (large, "note: rewards are as large as -1e+30 at step 1 of episode 1"),
    "whole": (whole, "note: all actions in the Box space are whole numbers"),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_may_be_meant_is_noted(name, logs, printed):
    change, text = NOTES[name]
    assert text not in printed("data", "check", logs)
    spoil(logs, change)
    assert text in printed("data", "check", "spoiled")


def test_a_missing_end_is_noticed_by_a_jump_to_the_start(tmp_path, monkeypatch, capsys, printed):
    monkeypatch.chdir(tmp_path)
    data = load_dataset(recorded("CartPole-v1"))
    first, second, *rest = list(episodes_of(data))
    parts = {name: np.concatenate([getattr(each, name) for each in (first, second)]) for name in ("action", "reward")}
    obs = {"": np.concatenate([first.obs[""], second.obs[""]])}
    both = dataclasses.replace(second, obs=obs, **parts)
    save_dataset("merged", joined([both, *rest], data.about))
    assert "goes back" not in printed("data", "check", recorded("CartPole-v1"))
    assert run(["data", "check", "merged"]) == 0
    text = f"the observation returns to the start of an episode at step {len(first) - 1} of episode 0: an end may be"
    assert text in capsys.readouterr().out


def test_episodes_longer_than_those_that_met_a_limit_are_noted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_dataset("logs", Dataset.of_episodes([*swings(), *swings(1, steps=5), *swings(1, steps=4)][:-1]))
    run(["data", "check", "logs"])
    assert "longer" not in capsys.readouterr().out
    (long,) = swings(1, steps=5)
    save_dataset("more", Dataset.of_episodes([*swings(), {**long, "truncated": False}]))
    assert run(["data", "check", "more"]) == 0
    assert "longer is the episode 2 (5 steps)" in capsys.readouterr().out


def test_damage_that_check_finds_is_a_fault_with_code_1(logs, capsys):
    (arrays,) = Path(logs).glob("arrays-*")
    damaged = bytearray(arrays.read_bytes())
    damaged[-1] ^= 1
    arrays.write_bytes(damaged)
    assert run(["data", "check", logs]) == 1
    assert lines(capsys)[0].startswith("fault: the recorded data are damaged: ")
    manifest = Path(logs, "manifest.json")
    manifest.write_text(json.dumps({"kind": "nothing"}))
    assert run(["data", "check", logs]) == 1
    assert run(["data", "check", "nowhere"]) == 2


# HDF5


def write_hdf5(path, **changes):
    arrays = {
        "observations": np.arange(20, dtype=np.float32).reshape(10, 2) ** 2,
        "actions": np.linspace(-1, 1, 10)[:, None],
        "rewards": np.zeros(10),
        "terminals": np.zeros(10, bool),
        "timeouts": np.arange(10) % 5 == 4,
    }
    with h5py.File(path, "w") as file:
        for name, values in {**arrays, **changes}.items():
            if values is not None:
                file[name] = values


ENDS = np.arange(10) % 5 == 4
FAULTS = {
    "the same ends": ({"terminals": ENDS}, "all 2 episodes that end both terminate and time out"),
    "no flag": ({"terminals": np.full(10, 0.3)}, "terminals cannot be used: terminals is 0.3 at row 0, expected"),
    "NaN as a flag": ({"timeouts": np.full(10, np.nan)}, "timeouts cannot be used: timeouts is nan at row 0"),
    "lengths": ({"rewards": np.zeros(9)}, "its arrays differ in rows: observations 10, actions 10, rewards 9"),
    "choices from 1": ({"actions": np.arange(10) % 3 + 1}, "the smallest action is 1, but integer actions are choices"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_file_is_found(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    changes, text = FAULTS[name]
    write_hdf5("own.hdf5", **changes)
    assert run(["data", "check", "own.hdf5"]) == 1
    faults = [line for line in lines(capsys) if line.startswith("fault: ")]
    assert len(faults) == 1
    assert text in faults[0]


KINDS = {
    "complex": lambda values: values + 1j,
    "text": lambda values: np.full(values.shape, b"1"),
    "a compound": lambda values: np.zeros(values.shape, [("a", "f4"), ("b", "f4")]),
    "a compound of one": lambda values: np.zeros(values.shape, [("a", "f4")]),
}


@pytest.mark.parametrize("array", ["observations", "actions", "rewards", "terminals"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("error")
def test_only_real_numbers_of_a_file_are_read(array, kind, tmp_path):
    values = {"observations": np.zeros((10, 2)), "actions": np.zeros((10, 1))}.get(array, np.zeros(10))
    write_hdf5(tmp_path / "own.hdf5", **{array: KINDS[kind](values)})
    with pytest.raises(DataError, match=f"own.hdf5'.*{array[:6]}.*expected"):
        convert([open_source(tmp_path / "own.hdf5")], tmp_path / "out")


def test_columns_are_one_number_for_each_step(tmp_path):
    column = np.arange(10)[:, None]
    write_hdf5(tmp_path / "own.hdf5", actions=column % 3, rewards=column, terminals=column * 0)
    convert([open_source(tmp_path / "own.hdf5")], tmp_path / "out")
    data = load_dataset(tmp_path / "out")
    assert (data.reward.tolist(), data.action.tolist()) == ([0, 1, 2, 3, 5, 6, 7, 8], [0, 1, 2, 0, 2, 0, 1, 2])
    (log,) = swings(1)
    flags = {"terminated": np.zeros((3, 1)), "truncated": np.array([[0], [0], [1]])}
    parts = {"action": [[0], [2], [1]], "reward": np.ones((3, 1))}
    data = Dataset.of_episodes([{**log, **parts, **flags}])
    assert (data.action.tolist(), data.reward.tolist(), data.truncated[-1]) == ([0, 2, 1], [1, 1, 1], True)
    assert data.about["env"]["env_action"]["n"] == 3


@pytest.mark.parametrize("actions", ["float", "int"])
def test_a_file_without_ends_is_refused_before_it_is_read(actions, tmp_path, monkeypatch, capsys, refused):
    monkeypatch.chdir(tmp_path)
    rows = 10**13
    with h5py.File("endless.hdf5", "w") as file:
        # Nothing of it is stored: it reads as zeros.
        file.create_dataset("observations", (rows, 400), np.float64, chunks=(64, 400))
        file.create_dataset("actions", (rows, 1), np.float32 if actions == "float" else np.int64, chunks=(64, 1))
        for name, dtype in (("rewards", np.float32), ("terminals", bool), ("timeouts", bool)):
            file.create_dataset(name, (rows,), dtype, chunks=(1 << 20,))
    line = refused("data", "convert", "endless.hdf5", "--out", "out")
    assert "endless.hdf5': from row 0 on no episode ends within 334," in line
    assert "set `terminals` or `timeouts` at the last row of each, or leave `timeouts` out of the file and" in line
    assert run(["data", "check", "endless.hdf5"]) == 1
    assert lines(capsys)[0].startswith("fault: 'endless.hdf5': from row 0 on no episode ends")


def test_an_episode_of_a_set_that_is_too_large_is_damaged(tmp_path, monkeypatch):
    from minding.training.formats import export_minari

    monkeypatch.setattr("minding.training.formats.LARGEST", 40)
    export_minari(Dataset.of_episodes(swings(1)), tmp_path / "set", "toy/one-v0")
    (found,) = open_source(tmp_path / "set").episodes()
    assert str(found).startswith("observations has 0.0 GB: an episode is read as a whole")
