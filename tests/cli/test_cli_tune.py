"""`minding tune`: which trials are made, how each ends, what is continued, and what comes of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tune_toys

optuna = pytest.importorskip("optuna")

from minding.cli import run  # noqa: E402
from minding.configs import compile_run, load_user_config  # noqa: E402
from minding.training import run_group  # noqa: E402
from minding.training.run_group import objective  # noqa: E402

TOYS = str(Path(tune_toys.__file__).parent)
SPACE = "policy.learn.learning_rate: {low: 1e-5, high: 1e-1, log: true}\npolicy.model.hidden: [[8], [16, 16]]\n"
SHORT = ["run.max_env_step=2500", "policy.eval.freq=500"]
ALONE = ["env.single_instance=true", "env.collector_env_num=1", "env.evaluator_env_num=1"]
TUNE = """
import sys
from minding.cli import run
from minding.training import run_group
run_group._MINDING = "tune_toys:main"
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def tune(tmp_path, monkeypatch, capsys):
    """Runs the command with toys for trainings; returns exit code, standard output and errors."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TOYS, *sys.path]))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(run_group, "_MINDING", "tune_toys:main")
    (tmp_path / "space.yaml").write_text(SPACE)

    def command(plan, *args, preset="cartpole_ppo", space=True):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        options = ["--space", str(tmp_path / "space.yaml")] if space else []
        code = run(["tune", preset, "--out", str(tmp_path), *options, *SHORT, *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def calls(folder):
    """The trials whose processes were started since this was last asked, with their learning rates."""
    file = folder / "calls"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def states(folder):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "journal.log")))
    study = optuna.load_study(study_name="tune", storage=storage)
    return [trial.state.name for trial in study.get_trials()]


def test_trials_end_in_a_table_a_runnable_best_and_a_picture(tune, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, error = tune({}, "--trials", "6", "--jobs", "2", "policy.learn.learning_rate=1e-5")
    assert (code, error) == (0, "")
    folder, made = tmp_path / "cartpole_ppo-tune", calls(tmp_path)
    assert sorted(name for name, _ in made) == [f"trial_{number:03d}" for number in range(6)]
    # The given settings are not in the space (its layers are others), and are tried first all the same.
    assert dict(made)["trial_000"] == "1.0e-05"
    assert "trial 0  done: -198.0" in out
    # The mean of the last two of four evaluations, not the best.
    done = {name: -100 * abs(__import__("math").log10(float(rate)) + 3) + 2 for name, rate in made}
    best = max((name for name in done), key=done.get)
    assert f"best        trial {int(best[-3:])}: {done[best]:.1f}, the mean of the last third" in out
    assert (folder / "importance.png").is_file()
    trials = json.loads((folder / "summary.json").read_text())["trials"]
    assert next(iter(trials)) == best
    rates = {name: trial["settings"].get("policy.learn.learning_rate") for name, trial in trials.items()}
    assert rates == {**dict(made), "trial_000": None}
    assert trials[best]["objective"] == pytest.approx(done[best])
    cfg = compile_run(load_user_config(folder / "best.yaml"))
    assert cfg.policy.learn.learning_rate == float(dict(made)[best])
    assert (cfg.exp_name, cfg.run.final_episodes, cfg.run.max_env_step) == ("cartpole_ppo-best", 100, 2500)
    assert cfg.policy.model.hidden in ([8], [16, 16])
    # Nothing is left to do; the table is printed again, and more trials are added on request.
    assert (tune({}, "--trials", "6", "policy.learn.learning_rate=1e-5")[0], calls(tmp_path)) == (0, [])
    assert tune({}, "--trials", "7", "policy.learn.learning_rate=1e-5")[0] == 0
    assert [name for name, _ in calls(tmp_path)] == ["trial_006"]


def test_a_killed_search_continues_with_the_same_trials(tune, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "plan.json").write_text("{}")
    assert tune({}, "--trials", "5", "--out", str(tmp_path / "whole"))[0] == 0
    whole = calls(tmp_path / "whole")
    folder = tmp_path / "cartpole_ppo-tune"
    for killed in ("1", "3"):
        (tmp_path / "plan.json").write_text(json.dumps({killed: "kills"}))
        arguments = ["tune", "cartpole_ppo", "--out", str(tmp_path), "--space", str(tmp_path / "space.yaml"), *SHORT]
        process = subprocess.run([sys.executable, "-c", TUNE, *arguments, "--trials", "5"], check=False, timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert states(folder)[-1] == "RUNNING"
        with open(folder / "journal.log", "a") as journal:
            journal.write('{"op_code": 4, "worker')  # A crash within a line.
    code, out, _ = tune({}, "--trials", "5")
    assert (code, states(folder)) == (0, ["COMPLETE"] * 5)
    assert "3 trials have ended; 1 are continued" in out
    made = calls(tmp_path)
    assert [name for name, _ in made] == [f"trial_00{number}" for number in (0, 1, 1, 2, 3, 3, 4)]
    assert dict(made) == dict(whole)


def test_ctrl_c_ends_a_search_and_the_command_continues_it(tune, tmp_path):
    code, out, error = tune({"1": "calls"}, "--trials", "3")
    assert code == 130
    assert "trial 1  interrupted" in out
    assert "ended by SIGINT: 1 trials have ended; the same command continues" in error
    assert tune({}, "--trials", "3")[0] == 0
    assert states(tmp_path / "cartpole_ppo-tune") == ["COMPLETE"] * 3


def test_a_trial_that_falls_behind_is_pruned(tune, tmp_path):
    # Trial 0 has the best settings, and 3 waits until it is ended.
    code, out, _ = tune({"3": "waits"}, "--trials", "4", "policy.learn.learning_rate=1e-3", "policy.model.hidden=[8]")
    found = states(tmp_path / "cartpole_ppo-tune")
    assert (code, found) == (0, ["COMPLETE", "COMPLETE", "COMPLETE", "PRUNED"])
    assert "trial 3  pruned after 3 evaluations" in out


def test_trials_are_compared_at_equal_steps_only(tune, tmp_path):
    code, out, _ = tune({"1": "lacks"}, "--trials", "3")
    assert (code, states(tmp_path / "cartpole_ppo-tune")) == (0, ["COMPLETE", "FAIL", "COMPLETE"])
    assert "trial 1  failed (it made 3 of the 4 evaluations, whose last third is compared: its rollouts" in out


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ({1: 9.0, 2: 1.0, 3: 2.0, 4: 6.0}, 4.0),
        # Later evaluations, which not every trial makes, are left out.
        ({1: 9.0, 2: 1.0, 3: 2.0, 4: 6.0, 5: 100.0}, 4.0),
        ({2: 1.0, 3: 2.0, 4: 6.0}, 4.0),
    ],
)
def test_the_objective_is_the_mean_of_the_last_third(returns, expected):
    assert objective(returns, 4) == expected


def test_three_failed_trials_end_the_search(tune, tmp_path):
    code, out, _ = tune({"1": "fails"}, "--trials", "3")
    assert code == 0
    assert "trial 1  failed (exit code 1: minding: reward is nan; see " in out
    calls(tmp_path)
    code, out, error = tune({str(n): "fails" for n in range(9)}, "--trials", "9", "--study", str(tmp_path / "bad"))
    assert (code, len(calls(tmp_path))) == (1, 3)
    assert "none of 3 trials finished: exit code 1: minding: reward is nan" in error
