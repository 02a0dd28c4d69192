"""Data are recorded as they happened, and a policy learns from them."""

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv
from of_algorithms import SMALL, short_run

from minding import training
from minding.configs import compile_run, load_user_config
from minding.engine import Config
from minding.engine.checkpoint import newest_checkpoint
from minding.engine.data.dataset import load_dataset
from minding.engine.errors import DataError
from minding.engine.run.run_dir import RunDir
from minding.training import recording
from minding.training.recording import play_recorded

pytestmark = pytest.mark.shared_graphs


@pytest.mark.parametrize("reset_rows", [False, True])
def test_each_episode_is_kept_in_order_with_its_true_end(reset_rows):
    env, seen = CountingEnv(reset_rows=reset_rows), []
    box = {"kind": "box", "shape": [3], "dtype": "float32", "low": -1, "high": 1}
    about = {"env": {"observation": box}}
    rewards = []
    act = AgePolicy().eval_mode.forward
    data = play_recorded(act, lambda ids=None: None, env, 12, about, seen.append, rewards.append)
    obs = data.obs[""]
    assert len(data) >= 12
    assert seen[-1] == len(data)
    starts = [0, *(data.end[:-1] + 1)]
    for start, end, final in zip(starts, data.end, data.final_obs[""], strict=True):
        ages = obs[start : end + 1, 2]
        # Environment and number of the episode stay, the age rises by one, and so on in the observation after the end.
        assert ages.tolist() == list(range(end - start + 1))
        assert (obs[start : end + 1, :2] == final[:2]).all()
        assert final[2] == end - start + 1
        whole = final[2] == env.lengths[int(final[0])]
        assert data.terminated[end] == (whole and final[0] == 0)
        assert data.truncated[end] == (whole and final[0] == 1)
    assert data.action.tolist() == obs[:, 2].astype(int).tolist()
    assert set(data.returns().tolist()) == {6.0, 3.0}
    assert np.concatenate(rewards).sum() == data.reward.sum()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "ppo"})
    cfg = compile_run(
        user, [*SMALL, *short_run("ppo"), "run.max_env_step=640", f"run.out_dir={folder}", "exp_name=run"]
    )
    run_dir = RunDir.create(cfg)
    training.train(cfg, run_dir, progress=False)
    return run_dir


@pytest.mark.slow
def test_the_policy_of_a_run_is_recorded_and_repeats_itself(trained, tmp_path):
    first = training.record_data(trained, 100, tmp_path / "first")
    again = training.record_data(trained, 100, tmp_path / "again")
    other = training.record_data(trained, 100, tmp_path / "other", seed=5)
    assert first.digest == again.digest != other.digest
    assert (len(first), first.about["policy"]["explore"]) == (100, False)
    policy = training.load_policy(trained).policy
    assert np.array_equal(policy.eval_mode.forward(first.obs[""]), first.action)


def test_the_command_records_and_writes_over_nothing(trained, tmp_path, printed, refused):
    arguments = ["data", "record", str(trained.path), "--steps", "100", "--seed", "5", "--out", str(tmp_path / "data")]
    out = printed(*arguments, "--ckpt", newest_checkpoint(trained.checkpoints)).splitlines()
    data = load_dataset(tmp_path / "data")
    assert data.digest == training.record_data(trained, 100, tmp_path / "same", seed=5).digest
    mean, count = data.returns().mean(), len(data.returns())
    assert out[-2].startswith(f"100 steps, {count} complete episodes: return {mean:.1f} ± ")
    assert out[-1] == f"data: {tmp_path / 'data'}"
    assert "exists: remove it, or give another folder with --out" in refused(*arguments)
    assert load_dataset(tmp_path / "data").digest == data.digest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent", "--steps", "10"], "no run folder 'absent'"),
        (["RUN"], "Missing option '--steps'"),
        (["RUN", "--steps", "0"], "0 is not in the range"),
        (["RUN", "--steps", "10", "--ckpt", "absent"], "Directory 'absent' does not exist"),
    ],
)
def test_bad_input_of_the_command_is_one_line_and_exit_code_2(arguments, message, trained, refused):
    arguments = [str(trained.path) if each == "RUN" else each for each in arguments]
    assert message in refused("data", "record", *arguments)
    assert not (trained.path / "data").exists()


def test_the_run_of_a_team_is_refused_first(tmp_path, refused, monkeypatch):
    cfg = compile_run(load_user_config("simple_spread_vdn"), [f"run.out_dir={tmp_path}", "exp_name=team"])
    run_dir = RunDir.create(cfg)
    # Neither the policy nor the environments are made.
    for name in ("load_policy", "make_evaluator_env"):
        monkeypatch.delattr(recording, name)
    message = "simple_spread_v3 has 3 agents, but recorded data hold the steps of one agent"
    with pytest.raises(DataError, match=message):
        training.record_data(run_dir, 10)
    assert message in refused("data", "record", run_dir.path, "--steps", "10")
    assert not (run_dir.path / "data").exists()


def test_steps_without_a_whole_episode_are_recorded(trained, tmp_path, printed):
    assert "2 steps, no complete episode: record more steps to learn the returns" in printed(
        "data", "record", trained.path, "--steps", "2", "--out", tmp_path / "data"
    )
    assert len(load_dataset(tmp_path / "data")) == 2


def test_exploring_is_recorded_as_it_is_collected(trained, tmp_path):
    data = training.record_data(trained, 200, tmp_path / "data", explore=True)
    policy = training.load_policy(trained).policy
    agreed = (policy.eval_mode.forward(data.obs[""]) == data.action).mean()
    assert 0.2 < agreed < 1.0


def test_a_policy_learns_what_was_recorded(trained, tmp_path):
    data = training.record_data(trained, 400, tmp_path / "data")
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "bc", "other": {"data": str(tmp_path / "data")}})
    short = ["run.max_train_iter=1000", "run.max_train_epoch=120", "run.final_episodes=2", "run.loggers=[]"]
    cfg = compile_run(user, [*short, "policy.learn.batch_size=64", f"run.out_dir={tmp_path}", "exp_name=clone"])
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    assert (summary.stop_reason, summary.train_iter, summary.env_step) == ("max_train_epoch", 750, 0)
    policy = training.load_policy(RunDir.open(tmp_path / "clone")).policy
    assert (policy.eval_mode.forward(data.obs[""]) == data.action).mean() > 0.95
