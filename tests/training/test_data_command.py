"""`minding data`: what is planted in data is found, and what they are like is said."""

import dataclasses

import numpy as np
import pytest
from minari.dataset.minari_dataset import parse_dataset_id
from of_algorithms import recorded

from minding.cli import run
from minding.engine.data.dataset import episodes_of, joined, load_dataset, recorded_references
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.references import References
from minding.training.data_inspection import check_source, describe_dataset
from minding.training.formats import check_id


class Given:
    """A source of episodes, changed."""

    dropped = shortened = ambiguous = 0
    references = None

    def __init__(self, episodes, env):
        self.path, self.env, self.made = None, env, episodes

    def episodes(self):
        return iter(self.made)


@pytest.fixture(scope="module")
def pole():
    data = load_dataset(recorded("CartPole-v1"))
    return list(episodes_of(data)), data.about["env"]


def found(pole, change=lambda episodes: episodes, **env):
    episodes, description = pole
    findings = check_source(Given(change(list(episodes)), {**description, **env}))
    return [text.text for text in findings if text.fault], [text.text for text in findings if not text.fault]


def replaced(index, **changes):
    """Changes an episode: each part by a function of the old one."""

    def change(episodes):
        old = episodes[index]
        parts = {name: make(old) for name, make in changes.items()}
        return [*episodes[:index], dataclasses.replace(old, **parts), *episodes[index + 1 :]]

    return change


def spoiled(values, row, value):
    values = values.copy()
    values[row] = value
    return values


def test_nothing_is_wrong_with_what_was_recorded(pole):
    faults, notes = found(pole)
    assert faults == []
    assert [note.partition(": ")[0] for note in notes] == [
        f"2 of {len(pole[0])} episodes neither terminated nor truncated"
    ]


def without_end(episodes):
    """The third and the fourth episode as one: the end of the third is missing."""
    third, fourth = episodes[2:4]
    both = dataclasses.replace(
        fourth,
        obs={"": np.concatenate([third.obs[""], fourth.obs[""]])},
        action=np.concatenate([third.action, fourth.action]),
        reward=np.concatenate([third.reward, fourth.reward]),
    )
    return [*episodes[:2], both, *episodes[4:]]


PLANTED = {
    "episode 2: obs holds NaN": replaced(2, obs=lambda old: {"": spoiled(old.obs[""], 1, np.nan)}),
    "episode 3: reward holds": replaced(3, reward=lambda old: spoiled(old.reward, 0, np.inf)),
    "episode 1: the action of step 4 is 2": replaced(1, action=lambda old: spoiled(old.action, 4, 2)),
    "episode 1: reward is float32": replaced(1, reward=lambda old: old.reward[:-1]),
    "equal episodes: 4 and ": lambda episodes: [*episodes, episodes[4]],
    "there are no whole steps": lambda episodes: [],
}


@pytest.mark.parametrize("message", PLANTED)
def test_a_planted_fault_is_found_and_reported_with_its_place(message, pole):
    faults, _ = found(pole, PLANTED[message])
    assert [fault.startswith(message) for fault in faults] == [True]


def test_a_missing_end_is_found_by_the_time_limit_or_by_the_jump(pole):
    longest = max(map(len, pole[0]))
    ((text,), _) = found(pole, without_end, max_episode_steps=min(longest, len(pole[0][2]) + len(pole[0][3]) - 1))
    assert text.startswith("ends are missing: longer than the time limit")
    far = replaced(5, obs=lambda old: {"": np.concatenate([old.obs[""][:3], old.obs[""][3:] + 20])})
    _, notes = found(pole, far)
    assert any(note.startswith("the observation jumps at step 2 of episode 5") for note in notes)


def test_actions_at_their_limits_are_pointed_out():
    data = load_dataset(recorded("Pendulum-v1"))
    action = np.where(np.arange(len(data))[:, None] % 2 == 0, np.float32(2), data.action)
    source = Given(list(episodes_of(dataclasses.replace(data, action=action))), data.about["env"])
    assert any(
        finding.text.startswith("50.0% of the action components are at a limit") for finding in check_source(source)
    )


def test_a_description_states_sizes_returns_and_fingerprint():
    data = load_dataset(recorded("Pendulum-v1"))
    rows = describe_dataset(data)
    assert (rows["environment"], rows["steps"], rows["fingerprint"]) == ("Pendulum-v1", "300", data.digest)
    assert rows["ends"] == "0 terminated, 0 truncated, 2 cut by the recording"
    assert rows["returns"] == "no complete episode"
    assert rows["action"] == "box [1] from -2.0 to 2.0"


def test_rows_left_out_by_a_conversion_end_no_episode(pole):
    episodes, env = pole
    timed_out = [dataclasses.replace(episodes[0], terminated=False, truncated=True)]
    for shortened, expected in ((0, True), (1, False)):
        source = Given(timed_out, {**env, "max_episode_steps": len(episodes[0]) + 1})
        source.shortened = shortened
        notes = [finding.text for finding in check_source(source)]
        assert any(note.startswith("truncated before the time limit") for note in notes) == expected


def test_a_set_in_minaris_form_gets_an_id(tmp_path, refused):
    for name in ("bad id", "pole", "/pole-v0", "a b/pole-v0", "../up-v0", "pole-v"):
        error = refused("data", "convert", "absent", "--out", tmp_path / "set", "--to-minari", name)
        assert error.startswith(f"minding: {name!r} is not the id of a Minari set: expected letters")
    for name in ("pole-v0", "pole/expert-v12", "a_b/c/pole-x-v1"):
        check_id(name)
        parse_dataset_id(name)


def test_converting_tells_that_double_ends_are_terminated(tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    ends = np.arange(8) % 4 == 3
    with h5py.File(tmp_path / "both.hdf5", "w") as file:
        file["observations"] = file["next_observations"] = np.zeros((8, 2), np.float32)
        file["actions"], file["rewards"] = np.zeros((8, 1), np.float32), np.zeros(8, np.float32)
        file["terminals"], file["timeouts"] = ends, [*ends[:4], False, False, False, False]
    out = str(tmp_path / "out")
    assert (
        run(["data", "convert", str(tmp_path / "both.hdf5"), "--action-low=-1", "--action-high=1", "--out", out]) == 0
    )
    assert capsys.readouterr().out.splitlines()[:2] == [
        "8 steps of 2 episodes",
        "note: 1 end both terminated and timed out; they count as terminated, so no value is bootstrapped there",
    ]


def test_the_commands_record_join_describe_check_and_draw(tmp_path, capsys, monkeypatch, printed):
    monkeypatch.chdir(tmp_path)
    for seed in ("0", "1"):
        arguments = ["--env", "CartPole-v1", "--steps", "60", "--seed", seed, "--out", f"part{seed}"]
        assert run(["data", "record", "--random", *arguments]) == 0
    assert run(["data", "convert", "part0", "part1", "--out", "both"]) == 0
    parts = [load_dataset(name) for name in ("part0", "part1", "both")]
    assert len(parts[2]) == len(parts[0]) + len(parts[1])
    assert (parts[0].about["player"], parts[2].about["converted"]) == ("random actions", ["part0", "part1"])
    # Random actions follow from the seed, too.
    assert parts[0].action[:40].tolist() != parts[1].action[:40].tolist()
    assert run(["data", "convert", "both", "--out", "set", "--to-minari", "pole/random-v0"]) == 0
    assert printed("data", "check", "set").splitlines()[-1] == "0 faults, 1 note"
    lines = printed("data", "info", "both").splitlines()
    assert any(line.endswith("converted from part0, part1") for line in lines)
    # Each in one line, however narrow, so that it can be copied.
    assert lines[-1].split() == ["fingerprint", parts[2].digest]
    assert all(line.strip() for line in lines)
    assert run(["data", "plot", "both"]) == 0
    assert (tmp_path / "both.png").stat().st_size > 10_000
    doubled = joined([*episodes_of(parts[2]), *episodes_of(parts[2])], parts[2].about)
    save_dataset(tmp_path / "doubled", doubled)
    assert run(["data", "check", "doubled"]) == 1
    assert "fault: equal episodes" in capsys.readouterr().out


def test_numbered_states_are_recorded_and_learned_from(tmp_path, printed):
    folder = tmp_path / "lake"
    arguments = ["--env", "FrozenLake-v1", "--steps", "2000", "--out", str(folder)]
    assert run(["data", "record", "--random", *arguments]) == 0
    data = load_dataset(folder)
    assert (data.obs[""].dtype, data.obs[""].shape) == (np.int32, (len(data),))
    rows = data.rows(["obs", "next_obs"], np.arange(len(data)))
    assert set(np.unique([rows["obs"], rows["next_obs"]]).tolist()) <= set(range(16))
    # An environment of few states repeats its episodes.
    assert "note: equal episodes: " in printed("data", "check", folder)


def test_reference_returns_are_recorded_converted_and_printed(tmp_path, monkeypatch, capsys, refused, printed):
    monkeypatch.chdir(tmp_path)
    given = ["--random-return", "20", "--expert-return", "500"]
    assert run(["data", "record", "--random", "--env", "CartPole-v1", "--steps", "9", "--out", "one", *given]) == 0
    assert run(["data", "convert", "one", "--out", "two"]) == 0
    assert run(["data", "convert", "one", "--out", "three", "--random-return", "0", "--expert-return", "400"]) == 0
    found = [recorded_references(name) for name in ("one", "two", "three")]
    assert found == [References(20, 500), References(20, 500), References(0, 400)]
    capsys.readouterr()
    assert "random 20 (scores 0), expert 500 (scores 100)" in printed("data", "info", "two")
    assert "none: returns are compared raw" in printed("data", "info", recorded("CartPole-v1"))
    assert "carry different reference returns" in refused("data", "convert", "two", "three", "--out", "four")


TO = ("convert", "DATA", "--out", "x")
RECORD = ("record", "--random", "--steps", "5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["record", "--steps", "5"], "or --random"),
        ([*RECORD], "--random plays in"),
        ([*RECORD, "--env", "CartPole-v1"], "--out is missing"),
        ([*RECORD, "--env", "X", "--explore"], "--random does not play an agent"),
        (["info", "nowhere"], "no recorded data in 'nowhere'"),
        (["check", "nowhere"], "no data in 'nowhere'"),
        (["convert", "nowhere", "--out", "x"], "no data in 'nowhere'"),
        ([*TO, "--horizon", "3"], "--horizon 3"),
        ([*TO, "DATA", "--to-minari", "a-v0"], "--to-minari takes one"),
        ([*TO, "--random-return", "1"], "without --expert-return"),
        ([*TO, "--expert-return", "1"], "without --random-return"),
        ([*TO, "--random-return", "9", "--expert-return", "9"], "are equal (9)"),
        ([*TO, "--random-return", "nan", "--expert-return", "9"], "'random' is nan"),
    ],
)
def test_bad_input_is_one_line_with_code_2(arguments, message, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = str(recorded("CartPole-v1"))
    assert message in refused("data", *[data if text == "DATA" else text for text in arguments])
    assert list(tmp_path.iterdir()) == []
