"""The run folder."""

import fcntl
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from minding.engine import Config, ConfigError, OnlineRLContext, RunDir
from minding.engine.checkpoint import save_checkpoint
from minding.engine.run.lock import LOCK_FILE
from minding.engine.run.status import StatusFile


def config(out_dir):
    return Config(
        exp_name="cartpole",
        run={"out_dir": str(out_dir), "max_env_step": 1000},
        seed=3,
        env={"env_id": "CartPole-v1"},
        policy={"type": "ppo"},
    )


def test_a_new_run_never_takes_the_folder_of_an_earlier_one(tmp_path):
    names = [RunDir.create(config(tmp_path / "runs")).path.name for _ in range(3)]
    assert names == ["cartpole", "cartpole-1", "cartpole-2"]


def test_a_restarted_program_opens_the_folder_of_its_run(tmp_path):
    cfg = config(tmp_path)
    started = RunDir.open_or_create(cfg)
    assert (started.path.name, cfg.exp_name, started.resume) == ("cartpole", "cartpole", None)
    # Ended without a checkpoint: there is nothing to continue.
    StatusFile(started.status).write(OnlineRLContext(), 1000, [], "ended")
    cfg = config(tmp_path)
    again = RunDir.open_or_create(cfg)
    assert (again.path.name, cfg.exp_name, again.resume) == ("cartpole-1", "cartpole-1", None)
    save_checkpoint(again.checkpoints / "iter_8", {"policy": {}}, {"env_step": 512})
    assert RunDir.open_or_create(config(tmp_path)).path == again.path
    assert again.resume == "latest"
    other = RunDir.open_or_create(Config(config(tmp_path), seed=4))
    assert (other.path.name, other.resume) == ("cartpole-2", None)
    # Behind that of another run, it is still found.
    assert RunDir.open_or_create(config(tmp_path)).path == again.path
    with pytest.raises(ConfigError, match="already made 512"):
        RunDir.open_or_create(Config(config(tmp_path), run={"out_dir": str(tmp_path), "max_env_step": 100}))


def test_a_run_killed_before_a_checkpoint_begins_in_its_folder(tmp_path):
    folder = tmp_path / "cartpole"
    for written in ((), ("status.json",), ("status.json", "metrics.csv")):
        started = RunDir.open_or_create(config(tmp_path))
        assert (started.path, started.resume) == (folder, None)
        if written:
            StatusFile(started.status).write(OnlineRLContext(), 1000, [])
            status = json.loads(started.status.read_text())
            started.status.write_text(json.dumps({**status, "born": "another process"}))
        for name in written[1:]:
            (folder / name).write_text("env_step\n512\n")
    with open(folder / LOCK_FILE, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert RunDir.restart(config(tmp_path)).path.name == "cartpole-1"
    shutil.rmtree(tmp_path / "cartpole-1")
    assert RunDir.restart(config(tmp_path)).path == folder
    # Its rows are not those of the new run, and are kept.
    (aside,) = folder.glob("left-*-metrics.csv")
    assert (aside.read_text(), (folder / "metrics.csv").exists()) == ("env_step\n512\n", False)
    # What nobody knows to be killed is left alone.
    (folder / "status.json").unlink()
    assert RunDir.restart(config(tmp_path)).path.name == "cartpole-1"


def test_the_summary_holds_numbers_and_null_if_not_finite(tmp_path):
    run_dir = RunDir(tmp_path)
    nan = float("nan")
    figures = {
        "train_iter": np.int64(7),
        "eval_return": np.float32(0.5),
        "eval_std": nan,
        "eval_info": {"success": np.float64(0.25), "lost": nan, "won": np.array(3.0)},
        "data_eval": {"td_error": float("inf")},
        "eval_normalized": np.float32(nan),
        "unsaved": np.bool_(False),
    }
    run_dir.write_summary(figures)

    def refuse(word):
        raise AssertionError(word)

    read = json.loads(run_dir.summary.read_text(), parse_constant=refuse)
    assert read == {
        **{"train_iter": 7, "eval_return": 0.5, "eval_std": None, "eval_normalized": None, "unsaved": False},
        **{"eval_info": {"success": 0.25, "lost": None, "won": 3.0}, "data_eval": {"td_error": None}},
    }
    # What is null is missing.
    assert run_dir.figures() == {
        **{"train_iter": 7, "eval_return": 0.5, "eval_info": {"success": 0.25, "won": 3.0}, "data_eval": {}},
        "unsaved": False,
    }


def test_a_folder_of_another_user_says_how_to_share_it(tmp_path):
    run_dir = RunDir.create(config(tmp_path))
    run_dir.path.chmod(0)
    other = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"] if os.getuid() == 0 else []
    if other and (shutil.which("setpriv") is None or subprocess.run([*other, sys.executable, "-c", "0"]).returncode):
        pytest.skip("root cannot become another user who may run this Python")
    code = "import sys\nfrom minding.engine.run.run_dir import RunDir, run_folders\n"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for call in ("RunDir.open", "run_folders"):
        command = [*other, sys.executable, "-c", f"{code}{call}(sys.argv[1])", run_dir.path]
        last = subprocess.run(command, capture_output=True, text=True, env=env).stderr.splitlines()[-1]
        assert last.startswith("minding.engine.errors.ConfigError"), last
        assert "cannot be read" in last
        assert f"chmod -R a+rX {run_dir.path}" in last
    run_dir.path.chmod(0o700)


def test_changed_settings_replace_the_saved_ones_in_one_step(tmp_path):
    run_dir = RunDir.create(config(tmp_path))
    before = run_dir.config.stat().st_ino
    run_dir.update_config(config(tmp_path))
    assert run_dir.config.stat().st_ino == before
    run_dir.update_config(Config(config(tmp_path), seed=4))
    assert run_dir.load_config().seed == 4
    assert sorted(path.name for path in run_dir.path.iterdir()) == ["config.yaml"]
