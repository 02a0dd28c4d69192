"""Recorded data: they come back as they were written, and no file makes trouble."""

import os

import numpy as np
import pytest
from fakes import dict_of, mask_of, space_of
from recordings import choices

from minding.engine.data.dataset import Dataset, check_fits, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.description import describe
from minding.engine.errors import DataError

BOX = space_of(2, low=[-1, -1], high=[1, 1])
ACTION = {**space_of(1, low=[-2.0], high=[2.0]), "rescaled": True}
SPEC = {"observation": BOX, "max_episode_steps": 200, "env_action": ACTION}
ENV = {"env_id": "Toy-v0", "wrappers": [], "env_kwargs": {}, "spec": SPEC}


def toy(**changes):
    """Five steps: an episode of two that ends, and one of three that is cut."""
    parts = {
        "obs": {"": np.arange(10, dtype=np.float32).reshape(5, 2)},
        "action": np.float32([[-2], [-1], [0], [1], [2]]),
        "reward": np.float32([1, 2, 3, 4, 5]),
        "terminated": np.array([False, True, False, False, False]),
        "truncated": np.zeros(5, bool),
        "end": np.array([1, 4]),
        "final_obs": {"": np.full((2, 2), 9, np.float32)},
        "about": {"env": describe(ENV)},
    }
    return Dataset(**{**parts, **changes})


@pytest.fixture
def saved(tmp_path):
    save_dataset(tmp_path / "data", toy())
    return tmp_path / "data"


def test_data_come_back_as_they_were_written_also_mapped(saved):
    found, data = load_dataset(saved), toy()
    for name in ("action", "reward", "terminated", "truncated", "end"):
        written = getattr(data, name)
        assert (getattr(found, name).tobytes(), getattr(found, name).dtype) == (written.tobytes(), written.dtype)
    assert found.obs[""].tolist() == data.obs[""].tolist()
    assert found.final_obs[""].tolist() == data.final_obs[""].tolist()
    assert (found.about, len(found)) == (data.about, 5)
    data, found = load_dataset(saved), load_dataset(saved, mapped=True)
    for name in ("action", "reward", "terminated", "truncated", "end"):
        assert getattr(found, name).tobytes() == getattr(data, name).tobytes()
        assert not getattr(found, name).flags.owndata
    assert (found.obs[""].tolist(), found.final_obs[""].tolist()) == (
        data.obs[""].tolist(),
        data.final_obs[""].tolist(),
    )
    assert (found.digest, found.about) == (data.digest, data.about)


def test_rows_have_true_successors_and_the_units_of_policies():
    data = toy(final_obs={"": np.float32([[8, 8], [9, 9]])})
    rows = data.rows(data.names, np.arange(5))
    assert rows["next_obs"].tolist() == [[2, 3], [8, 8], [6, 7], [8, 9], [9, 9]]
    assert rows["obs"].tolist() == toy().obs[""].tolist()
    assert rows["terminated"].tolist() == [False, True, False, False, False]
    assert rows["reward"].tolist() == [1, 2, 3, 4, 5]
    assert rows["action"].tolist() == [[-1.0], [-0.5], [0.0], [0.5], [1.0]]
    rows = toy().rows(["action", "log_prob"], np.array([4, 0]))
    assert {name: values.tolist() for name, values in rows.items()} == {"action": [[1.0], [-1.0]]}
    assert toy().returns().tolist() == [3.0]


def test_the_digest_is_that_of_the_contents(saved, tmp_path):
    save_dataset(tmp_path / "again", toy())
    save_dataset(tmp_path / "other", toy(reward=np.float32([1, 2, 3, 4, 6])))
    digests = [load_dataset(tmp_path / name).digest for name in ("data", "again", "other")]
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(DataError, match="exists: remove it, or give another folder"):
        save_dataset(saved, toy())
    with pytest.raises(DataError, match=r"no recorded data in .*: `minding data record RUN --steps N` records"):
        load_dataset(tmp_path / "nothing")


def flipped(position):
    return lambda whole: bytes(byte ^ (0x11 * (at == position % len(whole))) for at, byte in enumerate(whole))


DAMAGE = {
    **{f"byte {position}": flipped(position) for position in (0, 7, 40, 200, -3)},
    "empty": lambda whole: b"",
    "short": lambda whole: whole[: len(whole) // 2],
    "gone": None,
    "huge": lambda whole: whole,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_one_clear_line(saved, name):
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        file.unlink() if name == "gone" else file.write_bytes(DAMAGE[name](whole))
        if name == "huge":
            os.truncate(file, 1 << 40)
        check_refused(saved)
        file.write_bytes(whole)
    load_dataset(saved)


def check_refused(folder):
    with pytest.raises(DataError):
        load_dataset(folder, mapped=True)
    with pytest.raises(DataError) as error:
        load_dataset(folder)
    assert "\n" not in str(error.value)
    assert "data record" in str(error.value)
    assert "whole checkpoint" not in str(error.value)
    assert len(str(error.value)) < 1000


DISCRETE = {**choices(2), "start": 3}
PAIR = {"kind": "multi_discrete", "shape": [2], "dtype": "int64", "nvec": [2, 3], "start": [0, 1]}
MASKED = dict_of(action_mask=mask_of(2), at=BOX)


def five(dtype, *rows):
    """Five rows, the last of which are given."""
    return np.array([rows[0]] * (5 - len(rows)) + list(rows), dtype)


def of(space=None, observation=BOX, **parts):
    """Toy data of other spaces."""
    about = {"env": {**describe(ENV), "observation": observation, **({"env_action": space} if space else {})}}
    return toy(about=about, **parts)


LEGAL = {"action_mask": np.eye(2, dtype=bool)[[0, 1, 0, 1, 0]], "at": np.zeros((5, 2), np.float32)}
# After a terminated episode, a mask may allow nothing.
FINAL = {"action_mask": np.array([[False, False], [True, False]]), "at": np.zeros((2, 2), np.float32)}


def test_values_at_the_limits_of_their_spaces_are_accepted(tmp_path):
    fitting = [
        of(DISCRETE, action=five(np.int64, 3, 4)),
        of(PAIR, action=five(np.int64, [0, 1], [1, 3])),
        of(DISCRETE, MASKED, obs=LEGAL, final_obs=FINAL, action=np.array([3, 4, 3, 4, 3])),
        toy(obs={"": np.full((5, 2), -1.8e19, np.float32)}),
        toy(action=np.nextafter(np.float32([[-2]] * 5), np.float32(-3))),
        of({**ACTION, "low": -np.inf, "high": np.inf, "rescaled": False}, action=np.full((5, 1), 1e9, np.float32)),
    ]
    for number, data in enumerate(fitting):
        save_dataset(tmp_path / str(number), data)
        assert len(load_dataset(tmp_path / str(number))) == 5


def refusal(data=None, **env):
    with pytest.raises(DataError) as found:
        check_fits(data or toy(), {**ENV, **env}, "data")
    return str(found.value)


def test_data_of_another_environment_are_refused():
    check_fits(toy(), ENV, "data")
    assert refusal(env_id="X") == (
        "the data in 'data' come from another environment: record data of this one with `minding data record`, or "
        "train in the environment of the data. Differences: env.env_id is 'Toy-v0' there, 'X' here"
    )
    boxes = {"shape": [3], "low": [-1, -1, -8], "high": [1, 1, 8]}
    action = {"kind": "discrete", "n": 2, "start": 0}
    other = {**SPEC, "observation": {**SPEC["observation"], **boxes}, "env_action": action}
    told = refusal(env_id="X", spec=other)
    assert told.endswith(
        "env.env_id is 'Toy-v0' there, 'X' here; observation.shape is [2] there, [3] here; "
        "action.kind is 'box' there, 'discrete' here"
    )
    wide = {**SPEC, "observation": {**SPEC["observation"], "high": [1, 2]}}
    assert refusal(spec=wide).endswith("Differences: observation.high is [1, 1] there, [1, 2] here")

    def described(size):
        parts = {f"part{i}": {"kind": "box", "shape": [1], "low": [size] * 90} for i in range(9)}
        return {**SPEC, "observation": {"kind": "dict", "spaces": parts}}

    there = toy(about={"env": describe({**ENV, "spec": described(0)})})
    told = refusal(there, spec=described(1))
    assert "observation.part0.low is [0, 0, 0" in told
    assert told.endswith(" and 5 more")
    assert len(told) < 700


def test_data_of_other_conditions_are_warned_of(caplog):
    check_fits(toy(), ENV, "data")
    assert caplog.messages == []
    check_fits(toy(), {**ENV, "env_kwargs": {"g": 9.0}, "spec": {**SPEC, "max_episode_steps": 50}}, "data")
    assert caplog.messages == [
        "the data in 'data' were recorded under other conditions: env.env_kwargs.g is missing there, 9.0 "
        "here; the time limit of episodes is 200 there, 50 here"
    ]
