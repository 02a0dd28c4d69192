"""`minding inspect --imagine`: errors by horizon by hand, one window, and what is refused."""

import types

import numpy as np
import pytest
from of_algorithms import SMALL
from test_dreamer import SMALL as SMALL_DREAMER

from minding import training
from minding.cli import run
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.identity import identity
from minding.engine.data.dataset import Dataset
from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.run.run_dir import RunDir
from minding.training.world_model_check import check_window, compare


def episode(begin, rewards, *, terminated):
    """One whose observation counts up from `begin` in steps of 1."""
    obs = begin + np.arange(len(rewards) + 1, dtype=np.float32)
    return {
        **{"obs": np.stack([obs, 0 * obs], axis=1), "action": np.zeros(len(rewards), np.int64)},
        **{"reward": np.array(rewards, np.float32), "terminated": terminated, "truncated": not terminated},
    }


DATA = Dataset.of_episodes([episode(0, [1, 2, 4], terminated=True), episode(10, [0, 0, 3, 3], terminated=False)])


def counts_by_two(states, actions):
    """Expects steps of 2 where the state is the observation, no reward, and the end with probability a quarter."""
    for k in range(len(actions)):
        later = states + np.array([2.0 * (k + 1), 0.0], np.float32)
        none = np.zeros(len(states), np.float32)
        yield types.SimpleNamespace(obs=[later], reward=none, going=none + 0.75)


def test_errors_by_horizon_count_the_windows_that_last_so_long():
    errors, _ = compare(DATA, DATA.obs[""], np.zeros((7, 1), np.float32), counts_by_two, context=2, horizon=9)
    # After two observations there are windows of 2 and 1 steps, and of 3, 2 and 1.
    assert [(each.step, each.count) for each in errors] == [(1, 5), (2, 3), (3, 1)]
    # It is k too far of one number of two; what repeats is k too near.
    for k, each in enumerate(errors, 1):
        assert each.imagined["observation"] == pytest.approx(k / np.sqrt(2))
        assert each.repeated["observation"] == pytest.approx(k / np.sqrt(2))
    # Rewards 2, 4, 0, 3, 3 after 1, 2, 0, 0, 3; 4, 3, 3 after 1, 0, 0; 3 after 0.
    rewards = [np.sqrt((4 + 16 + 9 + 9) / 5), np.sqrt((16 + 9 + 9) / 3), 3.0]
    assert [each.imagined["reward"] for each in errors] == pytest.approx(rewards)
    rewards = [np.sqrt((1 + 4 + 9) / 5), np.sqrt((9 + 9 + 9) / 3), 3.0]
    assert [each.repeated["reward"] for each in errors] == pytest.approx(rewards)
    # One of five ends, one of three, and none.
    ends = [(4 * 0.25 + 0.75) / 5, (2 * 0.25 + 0.75) / 3, 0.25]
    assert [each.imagined["continues"] for each in errors] == pytest.approx(ends)
    assert [each.repeated["continues"] for each in errors] == pytest.approx([1 / 5, 1 / 3, 0.0])


def test_a_window_shows_its_context_and_what_followed_beside_what_was_imagined():
    _, window = compare(DATA, DATA.obs[""], np.zeros((7, 1), np.float32), counts_by_two, context=2, horizon=2)
    assert window.columns == ("reward", "continues", "observation[0]", "observation[1]")
    assert window.steps == (-1, 0, 1, 2)
    nan = np.nan
    np.testing.assert_array_equal(window.real, [[nan, 1, 10, 0], [0, 1, 11, 0], [0, 1, 12, 0], [3, 1, 13, 0]])
    np.testing.assert_array_equal(window.imagined, [[nan] * 4, [nan] * 4, [0, 0.75, 13, 0], [0, 0.75, 15, 0]])


def test_choices_are_wrong_or_not_and_wanted_actions_are_those_that_follow():
    given = []

    def imagine(states, actions):
        given.append(actions)
        for _ in actions:
            yield types.SimpleNamespace(obs=[np.full(len(states), 2)], reward=states[:, 0], going=states[:, 0])

    whole = {"action": np.zeros(3, np.int64), "reward": np.zeros(3), "terminated": True, "truncated": False}
    data = Dataset.of_episodes([{"obs": np.array([0, 1, 2, 0]), **whole}])
    numbers = np.arange(3, dtype=np.float32)[:, None]
    errors, window = compare(data, numbers, numbers, imagine, context=2, horizon=2)
    assert [(each.imagined["observation"], each.repeated["observation"]) for each in errors] == [(0.5, 1.0), (1.0, 1.0)]
    # Beyond the data any.
    assert given[0][..., 0].tolist() == [[1, 2], [2, 2]]
    assert window.columns == ("reward", "continues", "observation[0]")


def test_a_context_that_no_episode_lasts_is_refused():
    with pytest.raises(ConfigError, match=r"longest of 2 episodes has only 4 steps: lower --context \(5\)"):
        compare(DATA, DATA.obs[""], np.zeros((7, 1), np.float32), counts_by_two, context=5, horizon=2)
    cfg = Config(env={"env_id": "Short-v0", "spec": {"max_episode_steps": 20}})
    check_window(cfg, 20, 20)
    with pytest.raises(ConfigError, match=r"--horizon 21 exceeds the 20 steps of the longest episode of Short-v0"):
        check_window(cfg, 5, 21)
    with pytest.raises(ConfigError, match=r"--context 21 exceeds the 20 steps"):
        check_window(cfg, 21, 5)


@pytest.fixture
def make_run(tmp_path):
    def make(algorithm, *overrides):
        user = Config(exp_name=algorithm, env={"env_id": "CartPole-v1"}, policy={"type": algorithm})
        cfg = compile_run(user, [*SMALL, f"run.out_dir={tmp_path}", *overrides])
        return cfg, RunDir.create(cfg)

    return make


def test_a_run_is_inspected(make_run, printed):
    cfg, run_dir = make_run("dreamer", *(f"{key}={value}" for key, value in SMALL_DREAMER.items()))
    policy = training.make_policy(cfg)
    state = {"policy": policy.state_dict()}
    save_checkpoint(run_dir.checkpoints / "iter_1", state, {"train_iter": 1, "identity": identity(cfg)})
    out = printed("inspect", run_dir.path, "--imagine", "--steps", "60", "--context", "3", "--horizon", "4")
    assert "dreamer on CartPole-v1, iter_1\n" in out
    window, errors = (part.splitlines() for part in out.split("error by horizon"))
    assert [line.split()[0] for line in window[4:11]] == ["-2", "-1", "0", "1", "2", "3", "4"]
    assert errors[1].split() == ["step", "windows", "observation", "reward", "continues"]
    assert [line.split()[0] for line in errors[2:]] == ["1", "4"]
    # Its reward is 0 at first, and always 1: what repeats has no error.
    assert errors[2].split()[4:6] == ["1", "(0)"]


def test_what_cannot_be_inspected_is_refused_before_mindspore_loads(make_run, monkeypatch, capsys):
    monkeypatch.setattr(runtime, "is_loaded", lambda: False)
    folder = str(make_run("ppo")[1].path)
    own = str(make_run("dreamer")[1].path)
    for args, message in (
        ([folder], "nothing to inspect: give --imagine"),
        ([folder, "--imagine"], "policy.type='ppo' has no world model; expected a run"),
        ([own, "--imagine", "--horizon", "0"], "'--horizon': 0 is not in the range 1<=x<=10000"),
        ([own, "--imagine", "--horizon", "31"], "--horizon 31 exceeds the 30 steps of the longest episode of CartPole"),
        ([own, "--imagine"], "no checkpoint; train first"),
    ):
        assert run(["inspect", *args]) == 2, message
        assert message in capsys.readouterr().err
