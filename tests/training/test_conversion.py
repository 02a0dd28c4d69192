"""Other forms of recorded data: all give the same steps and successors, and damage is reported with its place."""

import dataclasses
import json

import h5py
import numpy as np
import pytest
from fakes import space_of
from recordings import described, save_unchecked

from minding.engine.data.action_trees import joined_space
from minding.engine.data.dataset import episodes_of, joined, load_dataset, recorded_references
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.episode import Episode
from minding.engine.data.references import References, carrying
from minding.engine.errors import DamagedDataError, DataError
from minding.training.conversion import convert, open_source
from minding.training.data_inspection import check_source
from minding.training.formats import export_minari

BOX = space_of(2, low=[-np.inf] * 2, high=[np.inf] * 2)
ENV = described(BOX, env_kwargs={"g": 9.8}, max_episode_steps=6)
LIMIT = 6


def generated(count, seed=0):
    """Episodes of each ending, one to six steps long; every observation is another, so that successors are known."""
    rng, numbers, made = np.random.default_rng(seed), iter(range(10**9)), []
    for index in range(count):
        ending = ("terminated", "truncated", "cut")[index % 3] if index < count - 1 else "cut"
        length = LIMIT if ending == "truncated" else int(rng.integers(1, LIMIT))
        obs = np.array([[next(numbers), index] for _ in range(length + 1)], np.float32)
        made.append(
            Episode(
                obs={"": obs[:-1]},
                final_obs={"": obs[-1]},
                action=rng.uniform(-1, 1, (length, 1)).astype(np.float32),
                reward=rng.normal(size=length).astype(np.float32),
                terminated=ending == "terminated",
                truncated=ending == "truncated",
            )
        )
    return made


@pytest.fixture(scope="module")
def episodes():
    return generated(1000)


def rows(data):
    """All rows as learners see them: the numbers of each step."""
    found = data.rows(data.names, np.arange(len(data)))
    return np.concatenate([found[name].reshape(len(data), -1) for name in data.names], axis=1).tolist()


def write_d4rl(path, episodes, *, successors, timeouts=True):
    arrays = {
        "observations": np.concatenate([each.obs[""] for each in episodes]),
        "actions": np.concatenate([each.action for each in episodes]),
        "rewards": np.concatenate([each.reward for each in episodes]),
        "terminals": np.concatenate([_last(each, each.terminated) for each in episodes]),
    }
    if timeouts:
        # D4RL has no other word for an episode that ends and does not terminate.
        arrays["timeouts"] = np.concatenate([_last(each, not each.terminated) for each in episodes])
    if successors:
        arrays["next_observations"] = np.concatenate(
            [np.concatenate([each.obs[""][1:], each.final_obs[""][None]]) for each in episodes]
        )
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file["infos/qpos"] = np.zeros(3)


def _last(episode, flag):
    flags = np.zeros(len(episode), bool)
    flags[-1] = flag
    return flags


def read(name, folder, **options):
    done = convert([open_source(str(name), **options)], folder)
    return load_dataset(folder), done


def test_own_form_and_minari_give_back_a_thousand_episodes(episodes, tmp_path):
    data = joined(episodes, {"env": ENV})
    save_dataset(tmp_path / "own", data)
    export_minari(data, tmp_path / "minari", "toy/all-v0")
    for name in ("own", "minari"):
        found, done = read(tmp_path / name, tmp_path / f"{name} again")
        assert rows(found) == rows(data)
        assert (done.steps, done.episodes, done.dropped) == (len(data), 1000, 0)
        assert found.about["env"] == ENV
    assert [each.truncated for each in episodes_of(found)] == [each.truncated for each in episodes]


NESTED = {
    "kind": "dict",
    "spaces": {
        "action_mask": {"kind": "action_mask", "counts": [3]},
        "pair": {"kind": "tuple", "spaces": [BOX, {"kind": "discrete", "n": 9, "start": 0}]},
    },
}


def test_nested_observations_masks_and_choices_survive_minari(tmp_path):
    action = {"kind": "discrete", "shape": [], "dtype": "int64", "n": 3, "start": 2}
    made = []
    for each in generated(6):
        steps = len(each)
        mask = np.ones((steps + 1, 3), bool)
        mask[:, 1] = np.arange(steps + 1) % 2
        whole = {
            "action_mask": mask,
            "pair.0": np.concatenate([each.obs[""], each.final_obs[""][None]]),
            "pair.1": np.arange(steps + 1, dtype=np.int32),
        }
        parts = {"obs": {path: values[:-1] for path, values in whole.items()}, "action": np.full(steps, 4)}
        made.append(dataclasses.replace(each, **parts, final_obs={path: values[-1] for path, values in whole.items()}))
    data = joined(made, {"env": {**ENV, "observation": NESTED, "env_action": action}})
    export_minari(data, tmp_path / "set", "toy/nested-v0")
    found, _ = read(tmp_path / "set", tmp_path / "out")
    assert rows(found) == rows(data)
    assert found.about["env"] == data.about["env"]


def test_actions_of_a_dict_are_written_for_minari_by_part(tmp_path):
    parts = {"b": {"kind": "box", "shape": [], "dtype": "float32", "low": 0.0, "high": 1.0}}
    parts["a"] = {"kind": "discrete", "shape": [], "dtype": "int64", "n": 3, "start": 2}
    action = joined_space({"kind": "dict", "spaces": parts}, rescale=True)
    acted = [
        dataclasses.replace(each, action=np.tile(np.array([4.0, 0.25], np.float32), (len(each), 1)))
        for each in generated(3)
    ]
    data = joined(acted, {"env": {**ENV, "env_action": action}})
    export_minari(data, tmp_path / "set", "toy/parts-v0")
    found, _ = read(tmp_path / "set", tmp_path / "out")
    assert rows(found) == rows(data)
    assert found.about["env"] == data.about["env"]


def test_what_is_written_for_minari_is_read_by_minari(tmp_path):
    minari = pytest.importorskip("minari")
    made = generated(5)
    export_minari(joined(made, {"env": ENV}), tmp_path / "set", "toy/five-v0")
    found = minari.MinariDataset(tmp_path / "set" / "data")
    assert (found.id, found.total_episodes, found.total_steps) == ("toy/five-v0", 5, sum(map(len, made)))
    for each, episode in zip(found.iterate_episodes(), made, strict=True):
        assert np.array_equal(each.observations[:-1], episode.obs[""])
        assert np.array_equal(each.observations[-1], episode.final_obs[""])
        assert np.array_equal(each.actions, episode.action)
        assert np.array_equal(each.rewards, episode.reward)
        assert (each.terminations[-1], each.truncations[-1]) == (episode.terminated, episode.truncated)


def test_d4rl_with_successors_gives_back_every_row(episodes, tmp_path):
    write_d4rl(tmp_path / "set.hdf5", episodes, successors=True)
    found, done = read(tmp_path / "set.hdf5", tmp_path / "out", env=ENV)
    ended = [dataclasses.replace(each, truncated=not each.terminated) for each in episodes]
    assert rows(found) == rows(joined(ended, {"env": ENV}))
    assert done.dropped == 0


@pytest.mark.parametrize("horizon", [None, LIMIT])
def test_d4rl_without_successors_loses_only_unknown_rows(horizon, episodes, tmp_path):
    """By `timeouts`, or by the horizon: then every episode that does not terminate has its length."""
    made = [each for each in episodes if horizon is None or each.terminated or each.truncated]
    write_d4rl(tmp_path / "set.hdf5", made, successors=False, timeouts=horizon is None)
    found, done = read(tmp_path / "set.hdf5", tmp_path / "out", env=ENV, horizon=horizon)
    expected = []
    for each in made:
        if each.terminated:
            expected.append(dataclasses.replace(each, final_obs={"": each.obs[""][-1]}))
        elif len(each) > 1:
            kept = {"obs": {"": each.obs[""][:-1]}, "action": each.action[:-1], "reward": each.reward[:-1]}
            expected.append(dataclasses.replace(each, **kept, final_obs={"": each.obs[""][-1]}, truncated=True))
    assert rows(found) == rows(joined(expected, {"env": ENV}))
    assert done.dropped == sum(not each.terminated for each in made)
    # No successor is of another episode: the second number of an observation is its episode's.
    successors = found.rows(["obs", "next_obs"], np.arange(len(found)))
    assert np.array_equal(successors["obs"][:, 1], successors["next_obs"][:, 1])


def test_a_file_that_stops_within_an_episode_is_cut_there(tmp_path):
    made = [dataclasses.replace(each, terminated=False, truncated=False) for each in generated(1)]
    for successors, steps in ((True, len(made[0])), (False, len(made[0]) - 1)):
        path = tmp_path / f"{successors}.hdf5"
        write_d4rl(path, made, successors=successors)
        with h5py.File(path, "a") as file:
            file["timeouts"][-1] = False
        found, _ = read(path, tmp_path / f"out {successors}")
        assert (len(found), found.terminated.any(), found.truncated.any()) == (steps, False, False)


def test_spaces_without_an_environment_come_from_the_arrays(tmp_path):
    write_d4rl(tmp_path / "walk.hdf5", generated(4), successors=True)
    found, _ = read(tmp_path / "walk.hdf5", tmp_path / "out")
    env = found.about["env"]
    assert (env["env_id"], env["observation"]["shape"], env["env_action"]["rescaled"]) == ("data", [2], False)


def test_files_that_name_no_environment_are_joined(tmp_path):
    first, second = generated(4), generated(3, seed=1)
    for name, made in (("one", first), ("two", second)):
        write_d4rl(tmp_path / f"{name}.hdf5", made, successors=True)
        export_minari(joined(made, {"env": ENV}), tmp_path / name, f"{name}/all-v0")
        metadata = json.loads((tmp_path / name / "data" / "metadata.json").read_text())
        del metadata["minding"]
        (tmp_path / name / "data" / "metadata.json").write_text(json.dumps(metadata))
    for form, suffix in (("d4rl", ".hdf5"), ("minari", "")):
        done = convert([open_source(tmp_path / f"{name}{suffix}") for name in ("one", "two")], tmp_path / form)
        assert done.episodes == 7
        assert load_dataset(tmp_path / form).about["env"]["env_id"] == "data"
    with h5py.File(tmp_path / "two.hdf5", "a") as file:
        _replace(file, "actions", lambda x: np.zeros(len(x), int))
    with pytest.raises(DataError, match=r"env_action.kind is .*; --env ID, or --action-low X --action-high X, gives"):
        convert([open_source(tmp_path / f"{name}.hdf5") for name in ("one", "two")], tmp_path / "mixed")


def damaged(kind, episodes):
    """Episodes of which number 2 is damaged."""
    made, third = list(episodes), episodes[2]
    obs, action = third.obs[""].copy(), third.action.copy()
    if kind == "NaN":
        obs[0, 0] = np.nan
    else:
        action[0] = 7.0
    made[2] = dataclasses.replace(third, obs={"": obs}, action=action)
    return made


@pytest.mark.parametrize(("kind", "message"), [("NaN", "obs holds NaN"), ("action", r"the action of step 0 is \[7")])
def test_damage_is_reported_or_left_out_and_counted(kind, message, tmp_path):
    made = generated(6)
    write_d4rl(tmp_path / "set.hdf5", damaged(kind, made), successors=True)
    with pytest.raises(DataError, match=rf"set.hdf5', episode 2: .*{message}.*--skip-damaged"):
        read(tmp_path / "set.hdf5", tmp_path / "out", env=ENV)
    assert [each.name for each in tmp_path.iterdir()] == ["set.hdf5"]
    done = convert([open_source(str(tmp_path / "set.hdf5"), env=ENV)], tmp_path / "out", skip_damaged=True)
    assert (done.skipped, done.episodes) == (1, 5)
    kept = [dataclasses.replace(each, truncated=not each.terminated) for each in (*made[:2], *made[3:])]
    assert rows(load_dataset(tmp_path / "out")) == rows(joined(kept, {"env": ENV}))


def test_damaged_episodes_of_an_own_folder_are_left_out_too(tmp_path):
    made = generated(6)
    parts = joined(damaged("NaN", made), {"env": ENV})
    save_unchecked(tmp_path / "own", parts, steps=len(parts))
    with pytest.raises(DataError, match=r"own', episode 2: obs holds NaN"):
        read(tmp_path / "own", tmp_path / "out")
    done = convert([open_source(str(tmp_path / "own"))], tmp_path / "out", skip_damaged=True)
    assert (done.skipped, done.episodes) == (1, 5)
    assert rows(load_dataset(tmp_path / "out")) == rows(joined([*made[:2], *made[3:]], {"env": ENV}))


def test_a_successor_that_is_not_the_next_row_is_damage(tmp_path):
    made = generated(5)
    write_d4rl(tmp_path / "set.hdf5", made, successors=True)
    with h5py.File(tmp_path / "set.hdf5", "a") as file:
        file["next_observations"][len(made[0])] += 1
    assert len(made[1]) > 1
    with pytest.raises(DataError, match=rf"episode 1: next_observations of row {len(made[0])} is not the observation"):
        read(tmp_path / "set.hdf5", tmp_path / "out")


PLANTED = {
    "terminations has the": lambda group: _replace(group, "rewards", lambda x: x[:-1]),
    "reward holds complex": lambda group: _replace(group, "rewards", lambda x: x + 1j),
    "is set at step 0 of 6": lambda group: _replace(group, "terminations", lambda x: x | True),
    "lacks a part .*actions": lambda group: group.__delitem__("actions"),
    "observation: expected sha": lambda group: _replace(group, "observations", lambda x: x[:-1]),
    "actions: expected": lambda group: _replace(group, "actions", lambda x: np.tile(x, 2)),
}


def _replace(group, name, change):
    values = group[name][()]
    del group[name]
    group[name] = change(values)


@pytest.mark.parametrize("message", PLANTED)
def test_a_damaged_episode_of_a_minari_set_is_reported(message, tmp_path):
    export_minari(joined(generated(5), {"env": ENV}), tmp_path / "set", "toy/five-v0")
    with h5py.File(tmp_path / "set" / "data" / "main_data.hdf5", "a") as file:
        PLANTED[message](file["episode_1"])
    with pytest.raises(DataError, match=f"set.*, episode 1: .*{message}"):
        read(tmp_path / "set", tmp_path / "out")
    done = convert([open_source(str(tmp_path / "set"))], tmp_path / "out", skip_damaged=True)
    assert (done.skipped, done.episodes) == (1, 4)


@pytest.mark.parametrize("form", ["set.hdf5", "set/data/main_data.hdf5"])
def test_files_with_changed_bytes_never_give_a_traceback(form, tmp_path):
    if form == "set.hdf5":
        write_d4rl(tmp_path / form, generated(5), successors=True)
    else:
        export_minari(joined(generated(5), {"env": ENV}), tmp_path / "set", "toy/five-v0")
    whole, seen = (tmp_path / form).read_bytes(), set()
    for seed in range(60):
        # Most bytes of structure lie at the beginning.
        random, data = np.random.default_rng(seed), bytearray(whole)
        for place in random.integers(8, len(whole) if seed % 2 else 4096, 20):
            data[place] = random.integers(256)
        (tmp_path / form).write_bytes(data)
        try:
            check_source(open_source(tmp_path / form.partition("/")[0]))
        except DataError as error:
            seen.add(type(error))
    assert DamagedDataError in seen


@pytest.mark.parametrize("spec", ["[" * 50_000, "[1]", '{"additional_wrappers": [{"name": [1]}, 1]}', '{"id": 5}'])
def test_a_spec_of_no_environment_counts_as_none(spec, tmp_path):
    export_minari(joined(generated(5), {"env": ENV}), tmp_path / "set", "toy/five-v0")
    metadata = json.loads((tmp_path / "set" / "data" / "metadata.json").read_text())
    del metadata["minding"]
    (tmp_path / "set" / "data" / "metadata.json").write_text(json.dumps({**metadata, "env_spec": spec}))
    source = open_source(tmp_path / "set")
    assert (source.env["env_id"], source.env["wrappers"]) == ("data", [])
    check_source(source)


def test_sets_of_one_environment_are_joined_and_others_refused(tmp_path):
    first, second = generated(4), generated(3, seed=1)
    save_dataset(tmp_path / "own", joined(first, {"env": ENV}))
    export_minari(joined(second, {"env": ENV}), tmp_path / "minari", "toy/x-v0")
    sources = [open_source(str(tmp_path / name)) for name in ("own", "minari")]
    done = convert(sources, tmp_path / "both")
    found = load_dataset(tmp_path / "both")
    assert rows(found) == rows(joined([*first, *second], {"env": ENV}))
    assert (done.episodes, found.about["converted"]) == (7, ["own", "data"])
    save_dataset(tmp_path / "other", joined(first, {"env": {**ENV, "env_id": "Other-v0"}}))
    with pytest.raises(DataError, match=r"cannot be joined: env_id is 'Other-v0' there, 'Toy-v0' here"):
        convert([sources[0], open_source(str(tmp_path / "other"))], tmp_path / "mixed")


def test_conversion_goes_block_by_block(monkeypatch, tmp_path):
    monkeypatch.setattr("minding.engine.data.dataset_writer._BLOCK", 7)
    made = generated(40)
    data = joined(made, {"env": ENV})
    save_dataset(tmp_path / "at once", data)
    done = convert([open_source(str(tmp_path / "at once"))], tmp_path / "in blocks")
    assert done.steps == len(data)
    found = load_dataset(tmp_path / "in blocks")
    assert rows(found) == rows(data)
    assert found.end.tolist() == data.end.tolist()


def test_minaris_reference_scores_are_taken_over_and_written(tmp_path):
    references = References(-1170.0, -136.5)
    export_minari(joined(generated(3), carrying({"env": ENV}, references)), tmp_path / "set", "toy/three-v0")
    metadata = json.loads((tmp_path / "set" / "data" / "metadata.json").read_text())
    assert (metadata["ref_min_score"], metadata["ref_max_score"]) == (-1170.0, -136.5)
    convert([open_source(str(tmp_path / "set"))], tmp_path / "own")
    assert recorded_references(tmp_path / "own") == references
    metadata["ref_max_score"] = metadata["ref_min_score"]
    (tmp_path / "set" / "data" / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(DataError, match=r"ref_min_score and ref_max_score: the reference returns are equal"):
        open_source(str(tmp_path / "set"))


REFUSED = {
    "no timeouts": ({"timeouts": None}, {}, "`timeouts`: .*--horizon STEPS"),
    # d3rlpy numbers the arrays of its episodes.
    "of d3rlpy": ({"terminals": None, **{f"rewards_{n}": np.zeros(2) for n in range(99)}}, {}, "and 102 more"),
    "a horizon beside them": ({}, {"horizon": 5}, "leave out --horizon"),
    "no terminals": ({"terminals": None}, {}, "lacks terminals"),
    "another length": ({"rewards": np.zeros(2)}, {}, "differ in rows: .* rewards 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_in_another_form_is_refused_in_a_line(name, tmp_path):
    changes, options, message = REFUSED[name]
    write_d4rl(tmp_path / "set.hdf5", generated(3), successors=True)
    with h5py.File(tmp_path / "set.hdf5", "a") as file:
        for field, values in changes.items():
            if field in file:
                del file[field]
            if values is not None:
                file[field] = values
    with pytest.raises(DataError, match=message) as error:
        open_source(str(tmp_path / "set.hdf5"), **options)
    assert "\n" not in str(error.value)


def test_names_of_nothing_get_the_nearest(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    export_minari(joined(generated(2), {"env": ENV}), tmp_path / "sets" / "toy" / "expert-v0", "toy/expert-v0")
    assert len(read("toy/expert-v0", tmp_path / "out")[0].end) == 2
    for given, message in (
        ("toy/exprt-v0", "did you mean 'toy/expert-v0'"),
        (str(tmp_path / "outt"), "did you mean 'out'"),
    ):
        with pytest.raises(DataError, match=message):
            open_source(given)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected manifest\.json, or metadata\.json beside main_data\.hdf5"):
        open_source(str(tmp_path / "empty"))
    (tmp_path / "no.hdf5").write_text("text")
    with pytest.raises(DataError, match=r"no.hdf5' is not an HDF5 file \(4 bytes\); copy or download it again"):
        open_source(str(tmp_path / "no.hdf5"))
    with h5py.File(tmp_path / "cut.hdf5", "w") as file:
        file["observations"] = np.zeros((100, 3))
    whole = (tmp_path / "cut.hdf5").read_bytes()
    (tmp_path / "cut.hdf5").write_bytes(whole[:3000])
    message = rf"cut.hdf5' is cut off: it has 3,000 of its {len(whole):,} bytes; copy or download it again$"
    with pytest.raises(DataError, match=message):
        open_source(str(tmp_path / "cut.hdf5"))
