"""Recorded data from arrays of one's own."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from recordings import choices, described, log, space_of

from minding.engine.data.dataset import Dataset, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.errors import DataError


def test_episodes_become_data_with_spaces_that_have_their_values(tmp_path):
    data = Dataset.of_episodes([log(2, [0, 3]), log(1, [1], terminated=False, truncated=True)])
    save_dataset(tmp_path / "data", data)
    found = load_dataset(tmp_path / "data")
    assert (found.obs[""].tolist(), found.final_obs[""].tolist()) == ([[0, 1], [2, 3], [0, 1]], [[4, 5], [2, 3]])
    assert (found.terminated.tolist(), found.truncated.tolist()) == ([False, True, False], [False, False, True])
    assert found.about["env"]["env_action"]["n"] == 4
    assert found.rows(["next_obs"], np.arange(3))["next_obs"].tolist() == [[2, 3], [4, 5], [2, 3]]
    image = np.zeros((3, 1, 8, 8), np.uint8)
    mixed = Dataset.of_episodes([log(2, [[0, 2], [4, 0]], obs={"image": image, "at": np.zeros((3, 2))})])
    assert {path: values.dtype.name for path, values in mixed.obs.items()} == {"image": "uint8", "at": "float32"}
    assert mixed.about["env"]["env_action"]["nvec"] == [5, 3]
    box = Dataset.of_episodes([log(2, np.array([[0.5], [-7.0]]))])
    assert (box.action.dtype.name, box.action.tolist()) == ("float32", [[0.5], [-7.0]])


def test_the_environment_may_be_given_and_numbers_become_its_own():
    data = Dataset.of_episodes([log(2, np.float64([[0], [1]]))], described())
    assert data.rows(["action"], np.array([1]))["action"].tolist() == [[1.0]]
    with pytest.raises(DataError, match=r"action of row 1, step 1 of episode 0, is \[2\."):
        Dataset.of_episodes([log(2, np.float32([[0], [2]]))], described())
    lake = log(2, [1, 2], obs=[0, 4, 8])
    data = Dataset.of_episodes([lake], env="FrozenLake-v1")
    assert (data.obs[""].dtype.name, data.final_obs[""].tolist()) == ("int32", [8])
    with pytest.raises(DataError, match=r"episode 0: obs is 0.5 at step 1, the environment has int32"):
        Dataset.of_episodes([{**lake, "obs": [0, 0.5, 1]}], env="FrozenLake-v1")
    with pytest.raises(DataError, match="episode 0: action is float32, the environment's actions are choices"):
        Dataset.of_episodes([{**lake, "action": [0.0, 1.0]}], env="FrozenLake-v1")


def test_actions_of_a_tuple_may_be_given_by_part():
    given = {"obs": np.zeros((4, 2)), "reward": np.ones(3), "terminated": False, "truncated": True}
    action = (np.array([0, 3, 1]), np.array([[0.1], [0.9], [0.5]]))
    data = Dataset.of_episodes([{**given, "action": action}], env="minding/Aim-v0")
    np.testing.assert_allclose(data.action, [[0, 0.1], [3, 0.9], [1, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(data.rows(["action"], np.arange(3))["action"][:, 1], [-0.8, 0.8, 0.0], atol=1e-6)
    assert np.array_equal(
        data.action, Dataset.of_episodes([{**given, "action": data.action}], env="minding/Aim-v0").action
    )
    for wrong, message in [
        (action[:1], "episode 0: action: expected a tuple of 2 parts, got 1 parts"),
        ((np.array([0, 4, 1]), action[1]), r"the action of .*step 1.* is \[4\.? *, 0\.9 *\], its space has the values"),
        ((np.array([0.5, 1.0, 1.0]), action[1]), "episode 0: action '0': expected integers"),
    ]:
        with pytest.raises(DataError, match=message):
            Dataset.of_episodes([{**given, "action": wrong}], env="minding/Aim-v0")


class Table(np.ndarray):
    """As much of a pandas.DataFrame as is read."""

    columns = ()


def test_tables_have_their_columns_in_the_same_order():
    tables = [np.zeros((3, 2)).view(Table) for _ in range(2)]
    tables[0].columns, tables[1].columns = ["heat", "load"], ["load", "heat"]
    for place in (lambda table: {"obs": table}, lambda table: {"obs": {"plant": table}}):
        first, second = ({**log(2, [0, 1]), **place(table)} for table in tables)
        assert len(Dataset.of_episodes([first, first])) == 4
        with pytest.raises(DataError, match=r"episode 1: obs.* has the columns \['load', 'heat'\], in episode 0"):
            Dataset.of_episodes([first, second])


def masked(mask, action=(0, 1), **changes):
    return log(2, list(action), obs={"observation": np.zeros((3, 2)), "action_mask": np.array(mask)}, **changes)


ALL = np.ones((3, 3))
CUT = {"terminated": False, "truncated": True}


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_action_masks_of_arrays_are_masks(kind):
    data = Dataset.of_episodes([masked(ALL.astype(kind)), masked([[0, 1, 1], [0, 1, 1], [0, 0, 0]], (1, 2))])
    env = data.about["env"]
    assert env["observation"]["spaces"]["action_mask"] == {"kind": "action_mask", "counts": [3]}
    assert (env["env_action"]["n"], data.obs["action_mask"].dtype.name) == (3, "bool")
    # The first action is never legal, and was never taken.
    assert Dataset.of_episodes([masked([[0, 1, 1]] * 3, (1, 1))]).about["env"]["env_action"]["n"] == 3
    limited = Dataset.of_episodes([masked(np.ones((3, 4)), (1, 4))], action_low=1, action_high=4)
    assert limited.about["env"]["env_action"]["start"] == 1
    several = Dataset.of_episodes([masked(np.ones((3, 5)), [[0, 0], [1, 2]])])
    assert several.about["env"]["observation"]["spaces"]["action_mask"]["counts"] == [2, 3]
    # Quantities have no mask.
    assert Dataset.of_episodes([masked(ALL, [0.5, 1.5])]).about["env"]["observation"]["spaces"]["action_mask"] == {
        **space_of(3, low=[-np.inf] * 3, high=[np.inf] * 3)
    }


@pytest.mark.parametrize("true", [True, np.True_, 1, np.int64(1), 1.0, np.array(True), [0, 1], np.array([False, True])])
def test_flags_are_bools_or_0_and_1_per_episode_or_step(true):
    data = Dataset.of_episodes([log(2, [0, 1], terminated=0, truncated=true)])
    assert (data.terminated.tolist(), data.truncated.tolist()) == ([False, False], [False, True])


@pytest.mark.parametrize(
    ("action", "options", "expected"),
    [
        ([0, 3], {}, ("discrete", 4, 0)),
        (np.array([0, 3], np.uint8), {}, ("discrete", 4, 0)),
        ([False, False], {}, ("discrete", 2, 0)),
        ([1, 3], {"action_low": 0, "action_high": 5}, ("discrete", 6, 0)),
        ([1, 3], {"action_low": 1, "action_high": 3}, ("discrete", 3, 1)),
        ([[True, False], [True, True]], {}, ("multi_discrete", [2, 2], [0, 0])),
    ],
)
def test_integers_and_bools_are_choices(action, options, expected):
    space = Dataset.of_episodes([log(2, action)], **options).about["env"]["env_action"]
    assert (space["kind"], space.get("n", space.get("nvec")), space["start"]) == expected


def test_actions_take_shape_kind_and_limits_of_the_environment():
    one_of_two = {"kind": "multi_discrete", "shape": [1], "dtype": "int64", "nvec": [2], "start": [0]}
    for action, space in (([0, 1], one_of_two), ([[0], [1]], one_of_two), ([0.0, 1.0], None)):
        assert Dataset.of_episodes([log(2, action)], described(action=space)).action.tolist() == [[0], [1]]
    assert Dataset.of_episodes([log(2, [[0], [1]])], described(action=choices(2))).action.tolist() == [0, 1]
    data = Dataset.of_episodes([log(2, [0.0, 1.0])])
    assert (data.about["env"]["env_action"]["kind"], data.action.dtype.name) == ("box", "float32")
    data = Dataset.of_episodes([log(2, [[0.0, 10], [3, 30]])], action_low=[-3, 10], action_high=[3, 30])
    assert data.rows(["action"], np.arange(2))["action"].tolist() == [[0, -1], [1, 1]]


def pendulum(steps=2, **changes):
    obs = np.tile([1.0, 0.0, 0.0], (steps + 1, 1))
    return log(steps, np.linspace(-2, 2, steps)[:, None], **{"obs": obs, "terminated": False, **changes})


@pytest.mark.parametrize("form", ["Pendulum-v1", "an environment", "a wrapped environment", "a function", "a class"])
def test_an_environment_may_be_named_given_or_made(form):
    made = gymnasium.make("Pendulum-v1")
    forms = {
        "an environment": made,
        "a wrapped environment": gymnasium.wrappers.TimeAwareObservation(made, flatten=True).env,
        "a function": lambda: gymnasium.make("Pendulum-v1"),
        "a class": PendulumEnv,
    }
    data = Dataset.of_episodes([pendulum()], env=forms.get(form, form))
    env = data.about["env"]
    assert (env["env_action"]["low"], env["env_action"]["rescaled"]) == (-2.0, True)
    assert data.rows(["action"], np.arange(2))["action"].tolist() == [[-1], [1]]
    assert env["max_episode_steps"] == (None if form == "a class" else 200)
    if "environment" in form:
        assert env["env_id"] == "Pendulum-v1"


@pytest.mark.parametrize("action", [[0, 1], [[0, 1], [1, 0]], [[0.1], [0.2]]], ids=["one", "several", "box"])
def test_a_damaged_environment_description_is_refused(action):
    env = Dataset.of_episodes([log(2, action)]).about["env"]
    absent = object()
    for key in env["env_action"]:
        for value in (absent, None, -1, "x", [], [[1]], {}, np.nan):
            space = {**env["env_action"], key: value}
            if value is absent:
                del space[key]
            # A lower limit is right, and so is an action that is one number.
            if space == env["env_action"] or (key, value) in (("low", -1), ("shape", [])):
                continue
            with pytest.raises(DataError, match=r"^of_episodes: |^episode 0: ") as caught:
                Dataset.of_episodes([log(2, action)], env={**env, "env_action": space})
            assert "\n" not in str(caught.value)
