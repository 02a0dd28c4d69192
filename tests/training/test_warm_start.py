"""A run begins with what another one has learned, and says where it cannot."""

import shutil

import numpy as np
import pytest
from of_algorithms import SMALL, recorded

import minding
from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.config.compiler import load_config, save_config
from minding.engine.config.trust import save_own
from minding.engine.data.dataset import load_dataset
from minding.engine.errors import CheckpointError, ConfigError, MindingError
from minding.engine.run.run_dir import RunDir
from minding.training.assembly import make_policy
from minding.training.loading import take_over
from minding.training.saved_agent import write_checksums
from minding.training.session import Session

pytestmark = pytest.mark.eager

OFFLINE = (*SMALL, "run.max_train_iter=8", "policy.learn.batch_size=32", "policy.other.reward=return_range")
ONLINE = (
    *SMALL, "chain=prior_data", "run.max_env_step=64", "policy.collect.n_sample=16", "policy.learn.warmup=16",
    "policy.learn.batch_size=8", "policy.learn.update_per_collect=1", "policy.other.buffer_size=100",
    "policy.other.reward=return_range",
)  # fmt: skip


def settings(*more, algorithm="awac", env_id="Pendulum-v1"):
    user = Config(env={"env_id": env_id}, policy={"type": algorithm, "other": {"data": str(recorded(env_id, 500))}})
    return compile_run(user, more)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    cfg = settings(*OFFLINE, f"run.out_dir={folder}", "exp_name=run", "env.max_episode_steps=200")
    training.train(cfg, RunDir.create(cfg), progress=False)
    return folder / "run"


@pytest.fixture(scope="module")
def begun(learned, tmp_path_factory):
    """The folder of a run that goes on in the environment, and the policy's state at its beginning."""
    folder = tmp_path_factory.mktemp("begun")
    cfg = settings(*ONLINE, "seed=5", f"run.begin_from={learned}", f"run.out_dir={folder}", "exp_name=run")
    with Session(cfg, RunDir.create(cfg), progress=False) as session:
        state = session.policy.state_dict()
        session.run()
    return folder / "run", state


def test_weights_targets_and_moments_are_the_other_runs(learned, begun):
    state, _ = load_checkpoint(newest_checkpoint(learned / "ckpt"))
    there, here = state["policy"], begun[1]
    assert there["params"].keys() == here["params"].keys()
    assert any("optim" in name for name in here["params"])
    assert any("targets" in name for name in here["params"])
    assert all(np.array_equal(there["params"][name], here["params"][name]) for name in here["params"])
    assert there["reward"] == here["reward"]
    # Random numbers are those of the new seed.
    assert there["rng"] != here["rng"]


def test_the_clock_of_a_run_is_that_of_its_chain(begun):
    assert settings().run.max_train_iter is not None
    cfg = settings(*ONLINE)
    assert (cfg.run.max_env_step, cfg.run.max_train_iter) == (64, None)
    _, manifest = load_checkpoint(newest_checkpoint(begun[0] / "ckpt"))
    assert manifest["env_step"] >= 64
    assert manifest["train_iter"] > 0


def test_a_resumed_run_does_not_ask_for_the_other_one(learned, begun, tmp_path):
    moved = shutil.copytree(learned, tmp_path / "moved")
    cfg = settings(*ONLINE, f"run.begin_from={moved}", f"run.out_dir={tmp_path}", "exp_name=run")
    training.train(cfg, RunDir.create(cfg), progress=False)
    shutil.rmtree(moved)
    cfg.run.max_env_step = 128
    summary = training.train(cfg, RunDir.open(tmp_path / "run"), progress=False, resume="latest")
    assert summary.env_step >= 128


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (["run.begin_from=nowhere"], ConfigError, "no run folder 'nowhere'"),
        (["run.begin_from=EMPTY"], ConfigError, "no checkpoint"),
        (["policy.model.hidden=[8]"], CheckpointError, "policy.model.hidden"),
        (["policy.model.norm=layer"], CheckpointError, "policy.model.norm is 'none' there"),
        (["policy.other.reward=raw"], CheckpointError, "policy.other.reward is 'return_range' there"),
        (["policy.type=iql"], CheckpointError, "policy.type is 'awac' there and 'iql' here"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_first(more, error, message, learned, tmp_path):
    shutil.copytree(learned, tmp_path / "empty", ignore=lambda folder, names: [n for n in names if n == "ckpt"])
    algorithm = "iql" if more == ["policy.type=iql"] else "awac"
    more = [each.replace("EMPTY", str(tmp_path / "empty")) for each in more if "policy.type" not in each]
    given = [] if "begin_from" in "".join(more) else [f"run.begin_from={learned}"]
    with pytest.raises(error, match=message):
        training.check_begin(settings(*ONLINE, *given, *more, algorithm=algorithm))


HELD = ("policy.other.reward=return_range", "policy.learn.batch_size=32")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """The folder of a run without an environment that held out episodes, and one of its agent."""
    folder = tmp_path_factory.mktemp("held")
    more = [*SMALL[5:6], "run.loggers=[]", "run.max_train_iter=20", "policy.other.holdout=0.34", "env.env_id=data"]
    cfg = settings(*HELD, *more, f"run.out_dir={folder}", "exp_name=run")
    training.train(cfg, RunDir.create(cfg), progress=False)
    agent = minding.load(folder / "run", progress=False)
    action = agent.predict(np.zeros(3, np.float32))
    return folder / "run", agent.save(folder / "saved"), action


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["policy.other.holdout=0.34"], None),
        (["policy.other.holdout=0.1"], None),
        ([], None),
        (["policy.other.holdout=0.67"], "policy.other.holdout of at most 0.34"),
        (["policy.other.holdout=0.1", "seed=1"], "policy.other.holdout=0.1 with seed=1"),
    ],
)
def test_what_was_learned_from_is_not_held_out_afterwards(held_out, more, message):
    for folder in held_out[:2]:
        cfg = settings("policy.model.hidden=[16]", *HELD, *more, f"run.begin_from={folder}")
        if message is None:
            training.check_begin(cfg)
        else:
            with pytest.raises(ConfigError, match=message):
                training.check_begin(cfg)


@pytest.mark.parametrize("learner", [True, False])
def test_a_saved_agent_is_begun_with_and_what_it_lacks_is_new(held_out, tmp_path, caplog, learner):
    _, whole, action = held_out
    saved = shutil.copytree(whole, tmp_path / "saved")
    if not learner:
        shutil.rmtree(saved / "learner")
    cfg = settings("policy.model.hidden=[16]", *HELD, f"run.begin_from={saved}", f"run.out_dir={tmp_path}")
    training.check_begin(cfg)
    policy = make_policy(cfg)
    before = policy.state_dict()["params"]
    with caplog.at_level("INFO"):
        take_over(policy, cfg)
    assert f"starts from the saved policy {saved}" in caplog.text
    assert ("critics, optimizer and counts are new" in caplog.text) is not learner
    np.testing.assert_array_equal(policy.eval_mode.forward(np.zeros((1, 3), np.float32))[0], action)
    after = policy.state_dict()["params"]
    moved = {name for name in after if not np.array_equal(after[name], before[name])}
    assert moved
    assert all(name.startswith("net.") for name in moved) is not learner
    with pytest.raises(CheckpointError, match=r"the saved policy .* policy\.model\.hidden is"):
        training.check_begin(settings("policy.model.hidden=[8]", *HELD, f"run.begin_from={saved}"))


def test_an_agent_acts_where_its_data_are_missing(held_out, tmp_path):
    run, saved, action = held_out
    for number, folder in enumerate((run, saved)):
        moved = shutil.copytree(folder, tmp_path / str(number))
        cfg = load_config(moved / "config.yaml")
        cfg.policy.other.data = str(tmp_path / "gone")
        # Of somebody else, and the user's own.
        for save, wrong in (
            (save_config, "policy.other.data=.*reads a folder"),
            (save_own, "no recorded data in '.*gone'"),
        ):
            (moved / "config.yaml").unlink()
            save(cfg, moved / "config.yaml")
            if folder is saved:
                write_checksums(moved)
            agent = minding.load(moved, progress=False)
            np.testing.assert_array_equal(agent.predict(np.zeros(3, np.float32)), action)
            with pytest.raises(MindingError, match=wrong):
                agent.learn(8)
    assert "agent.evaluate" not in (saved / "README.md").read_text()


def test_a_run_takes_the_reward_scale_of_recorded_data(tmp_path):
    cfg = settings(*ONLINE, f"run.out_dir={tmp_path}", "exp_name=run")
    training.train(cfg, RunDir.create(cfg), progress=False)
    state, _ = load_checkpoint(newest_checkpoint(tmp_path / "run" / "ckpt"))
    returns = load_dataset(recorded("Pendulum-v1", 500)).returns()
    assert state["policy"]["reward"]["factor"] == 1000.0 / (returns.max() - returns.min())
