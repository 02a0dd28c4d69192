"""Recorded data from arrays of one's own."""

import numpy as np
import pytest

from minding.engine.data.dataset import Dataset, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.errors import DataError


def episode(steps, action, **changes):
    obs = np.arange(2.0 * (steps + 1)).reshape(-1, 2)
    parts = {"obs": obs, "action": action, "reward": np.ones(steps), "terminated": True, "truncated": False}
    return {**parts, **changes}


def test_episodes_become_data_with_spaces_that_have_their_values(tmp_path):
    data = Dataset.of_episodes([episode(2, [0, 3]), episode(1, [1], terminated=False, truncated=True)])
    save_dataset(tmp_path / "data", data)
    found = load_dataset(tmp_path / "data")
    assert (found.obs[""].tolist(), found.final_obs[""].tolist()) == ([[0, 1], [2, 3], [0, 1]], [[4, 5], [2, 3]])
    assert (found.terminated.tolist(), found.truncated.tolist()) == ([False, True, False], [False, False, True])
    assert found.about["env"]["env_action"]["n"] == 4
    assert found.rows(["next_obs"], np.arange(3))["next_obs"].tolist() == [[2, 3], [4, 5], [2, 3]]


def test_parts_of_an_observation_and_kinds_of_actions():
    image = np.zeros((3, 1, 8, 8), np.uint8)
    mixed = Dataset.of_episodes([episode(2, [[0, 2], [4, 1]], obs={"image": image, "at": np.zeros((3, 2))})])
    assert {path: values.dtype.name for path, values in mixed.obs.items()} == {"image": "uint8", "at": "float32"}
    assert mixed.about["env"]["env_action"]["nvec"] == [5, 3]
    box = Dataset.of_episodes([episode(2, np.array([[0.5], [-7.0]]))])
    assert (box.action.dtype.name, box.action.tolist()) == ("float32", [[0.5], [-7.0]])


def test_the_environment_may_be_given_and_is_checked():
    env = Dataset.of_episodes([episode(2, np.float32([[0], [1]]))]).about["env"]
    limited = {**env, "env_action": {**env["env_action"], "low": -1.0, "high": 1.0, "rescaled": True}}
    data = Dataset.of_episodes([episode(2, np.float64([[0], [1]]))], limited)
    assert data.rows(["action"], np.array([1]))["action"].tolist() == [[1.0]]
    with pytest.raises(DataError, match=r"action of row 1, step 1 of episode 0, is \[2\."):
        Dataset.of_episodes([episode(2, np.float32([[0], [2]]))], limited)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": np.zeros((2, 2))}, "episode 1: obs has 2 rows, expected 3, with 2 rewards"),
        ({"action": [0]}, "episode 1: action has 1 rows, expected 2"),
        ({"terminated": [False, True]}, r"episode 1: terminated: expected one flag, .* got shape \(2,\)"),
        ({"obs": np.full((3, 2), np.nan)}, "holds NaN"),
        ({"reward": [], "action": [], "obs": np.zeros((1, 2))}, "episode 1: .*with 0 rewards"),
    ],
)
def test_an_episode_whose_parts_do_not_fit_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        Dataset.of_episodes([episode(1, [0]), {**episode(2, [0, 1]), **changes}])


def test_nothing_is_no_data():
    with pytest.raises(DataError, match="there are no episodes"):
        Dataset.of_episodes([])
    with pytest.raises(DataError, match="episode 0: it lacks reward; expected obs, action, reward"):
        Dataset.of_episodes([{key: value for key, value in episode(1, [0]).items() if key != "reward"}])
