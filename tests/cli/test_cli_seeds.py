"""`minding train --seeds`: which seeds are trained, how each ends, and the figures over all of them."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import seed_toys

from minding.cli import run
from minding.engine.config.compiler import load_config
from minding.training import run_group

ALONE = ["env.single_instance=true", "env.collector_env_num=1", "env.evaluator_env_num=1"]
TOYS = str(Path(seed_toys.__file__).parent)


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Runs the command with toys for trainings; returns exit code, standard output and errors."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TOYS, *sys.path]))
    monkeypatch.setattr(run_group, "_MINDING", "seed_toys:main")

    def command(plan, *args):
        (tmp_path / "plan.json").write_text(json.dumps({str(seed): what for seed, what in plan.items()}))
        code = run(["train", "cartpole_ppo", "--out", str(tmp_path), *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def calls(folder):
    """The seeds whose processes were started since this was last asked."""
    file = folder / "calls"
    found = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return sorted(map(int, found))


def test_seeds_have_a_folder_each_and_one_table_and_curve(train, tmp_path):
    pytest.importorskip("matplotlib")
    plan = {0: 100.0, 1: 40.0, 2: 50.0, 3: 60.0, 4: -1000.0}
    code, out, error = train(plan, "--seeds", "0-4", "--jobs", "2")
    assert (code, error) == (0, "")
    folder = tmp_path / "cartpole_ppo-seeds"
    assert "seed 3  done: 60.0 ± 1.5 over 100 episodes" in out
    # A quarter of five, rounded down, is left out at either end.
    assert re.search(r"seed_0 and 4 more +5 +-150\.0 \[.*\] +50\.0 \[", out)
    assert sorted(path.name for path in folder.iterdir() if (path / "config.yaml").exists()) == [
        f"seed_{seed}" for seed in plan
    ]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["n"], summary["iqm"]["value"], summary["seeds"]["3"]["eval_return"]) == (5, 50.0, 60.0)
    assert summary["iqm"]["low"] <= 40.0 <= 60.0 <= summary["iqm"]["high"]
    assert (folder / "curve.png").is_file()


@pytest.mark.parametrize("what", ["removes", "removes logs"])
def test_a_folder_removed_while_seeds_run_ends_no_seed(train, tmp_path, what):
    code, out, error = train({0: what, 1: 70.0}, "--seeds", "0-1")
    assert code == 0
    folder = tmp_path / "cartpole_ppo-seeds"
    told = f"minding: the folder {folder} was removed or renamed: the seeds continue in a new one of that name"
    assert error.count(told) == (what == "removes")
    assert "seed 0  done: 10.0" in out
    assert "seed 1  done: 70.0" in out
    assert calls(tmp_path) == [0, 1]
    assert {"settings.yaml", "summary.json", "seed_0", "seed_1"} <= {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_failed_seed_ends_no_other_and_is_trained_again(train, tmp_path):
    code, out, error = train({0: "fails", 3: "crashes", 7: 70.0}, "--seeds", "0,3,7")
    assert code == 1
    log = tmp_path / "cartpole_ppo-seeds" / "logs" / "seed_0.txt"
    assert f"seed 0  failed (exit code 1: minding: environment 3, step 12: reward is nan; see {log})" in out
    assert "seed 3  failed (killed by signal 9" in out
    assert "seed 7  done: 70.0" in out
    assert "minding: seeds 0, 3 failed: 1 of 3 seeds are finished; the same command trains the others" in error
    assert calls(tmp_path) == [0, 3, 7]
    code, out, error = train({0: 10.0, 3: 30.0}, "--seeds", "0,3,7")
    assert (code, error, calls(tmp_path)) == (0, "", [0, 3])
    assert "finished before: 7" in out
    # All are finished: nothing is trained, and the table is there again.
    code, out, _ = train({}, "--seeds", "0,3,7")
    assert (code, calls(tmp_path)) == (0, [])
    assert "36.7" in out


def test_ctrl_c_ends_all_of_them_and_the_same_command_continues(train, tmp_path):
    code, out, error = train({0: 5.0, 1: "waits", 2: "calls", 3: 9.0}, "--seeds", "0-3", "--jobs", "2")
    assert code == 130
    assert "seed 1  interrupted" in out
    assert "seed 2  interrupted" in out
    assert "Over seeds" not in out
    assert "minding: ended by SIGINT: 1 of 4 seeds are finished" in error
    assert calls(tmp_path) == [0, 1, 2]
    code, out, _ = train({1: 6.0, 2: 7.0, 3: 9.0}, "--seeds", "0-3")
    assert (code, calls(tmp_path)) == (0, [1, 2, 3])
    assert re.search(r"seed_3 and 3 more +4 +6\.75 \[", out)


@pytest.mark.slow
def test_other_settings_have_a_folder_of_their_own(train, tmp_path):
    train({0: 1.0}, "--seeds", "0")
    train({0: 2.0}, "--seeds", "0", "policy.learn.gamma=0.9")
    assert calls(tmp_path) == [0, 0]
    for settings in ([], ["policy.learn.gamma=0.9"], ["run.log_freq=2.0"]):
        train({0: 2.0, 1: 3.0}, "--seeds", "0-1", *settings)
    assert calls(tmp_path) == [1, 1]
    assert sorted(path.name for path in tmp_path.glob("*seeds*")) == ["cartpole_ppo-seeds", "cartpole_ppo-seeds-1"]


def test_a_folder_of_seeds_states_in_what_it_differs(train, tmp_path):
    assert "settings that differ" not in train({0: 1.0}, "--seeds", "0")[1]
    (tmp_path / "cartpole_ppo-seeds-1").mkdir()
    _, out, _ = train({0: 2.0}, "--seeds", "0", "policy.learn.gamma=0.9")
    assert "settings that differ from cartpole_ppo-seeds: policy.learn.gamma=0.9 (there 0.99)\n" in out
    folder = tmp_path / "cartpole_ppo-seeds-2"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["settings that differ from"] == {"cartpole_ppo-seeds": {"policy.learn.gamma": 0.9}}


def test_settings_that_change_no_return_hold_for_later_seeds(train, tmp_path):
    train({0: 100.0}, "--seeds", "0", "run.final_episodes=7", "run.ckpt_freq=3")
    settings = tmp_path / "cartpole_ppo-seeds" / "settings.yaml"
    assert load_config(settings).run.final_episodes == 7
    code, out, error = train({1: 40.0}, "--seeds", "0-1", "run.final_episodes=9", "run.ckpt_freq=3")
    assert (code, error) == (0, "")
    assert "run.final_episodes is now 9 instead of 7: finished seeds keep the old value" in out
    assert "ckpt_freq" not in out
    assert (load_config(settings).run.final_episodes, calls(tmp_path)) == (9, [0, 1])
    assert "is now" not in train({}, "--seeds", "0-1", "run.final_episodes=9", "run.ckpt_freq=3")[1]
