"""The examples run, print their result, and show the chains that the README shows."""

import contextlib
import csv
import io
import logging
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import blocks

from minding.cli import run
from minding.engine import RunDir
from minding.envs import check_env

pytestmark = pytest.mark.shared_graphs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def start_example(name, *args, folder):
    """Runs an example as a user does; returns what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *args]
    out = subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    return out.stdout


def run_example(name, *args, folder):
    """Runs an example in this process, which has imported everything; returns what it printed, and what it logged."""
    printed, logged, logger = io.StringIO(), io.StringIO(), logging.getLogger("minding")
    handler, level = logging.StreamHandler(logged), logger.level
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [name, *args])
        patch.syspath_prepend(EXAMPLES)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    return printed.getvalue(), logged.getvalue()


def record(folder, steps):
    """Records the steps of the on-policy example's agent, into its run folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["data", "record", "runs/on_policy", "--steps", str(steps)]) == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which the on-policy example has trained, and what it printed; tests work in copies."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, start_example("on_policy.py", "--max-env-step", "3072", "--seed", "1", folder=folder)


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def chain_of(name):
    text = (EXAMPLES / name).read_text()
    block = re.search(r"^    with task\.start.*?^        task\.run.*?\n", text, re.MULTILINE | re.DOTALL)
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


def printed_programs():
    """The program of the README, and the one that its difference makes of it."""
    (program,) = [block for block in blocks("python", pages=[ROOT / "README.md"]) if "program" in block.notes]
    (difference,) = blocks("diff", pages=[ROOT / "README.md"])
    lines, at = program.code.splitlines(), 0
    for mark, line in ((each[:1], each[1:]) for each in difference.code.splitlines()):
        if mark == "+":
            lines.insert(at, line)
        else:
            at = lines.index(line, at)
            del lines[at : at + (mark == "-")]
        at += mark != "-"
    return {"ppo": program.code, "dqn": "\n".join([*lines, ""])}


@pytest.mark.parametrize(("name", "example"), [("dqn", "off_policy.py"), ("ppo", "on_policy.py")])
def test_the_readme_shows_the_lines_of_both_chains(name, example):
    shown = [line.strip() for line in printed_programs()[name].splitlines()]
    chain = [line.strip() for line in chain_of(example).splitlines()]
    assert len(chain) > 8
    assert chain[1:] == shown[-len(chain) : -1]


@pytest.mark.slow
def test_a_printed_program_is_continued_and_solves_its_task(tmp_path):
    """It is ended by a signal after its first checkpoint, started again, and started once more after its end."""
    (tmp_path / "program.py").write_text(printed_programs()["ppo"])
    command = [sys.executable, "program.py"]
    with (
        open(tmp_path / "first", "w") as log,
        subprocess.Popen(command, env=ENVIRONMENT, cwd=tmp_path, stdout=log, stderr=log) as first,
    ):
        while not list(tmp_path.glob("runs/*/ckpt/iter_*/manifest.json")):
            assert first.poll() is None, (tmp_path / "first").read_text()
            time.sleep(0.05)
        first.terminate()
    ended, again = (
        subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        for _ in range(2)
    )
    (folder,) = tmp_path.glob("runs/*")
    assert re.match(rf"resumed runs/{folder.name}/ckpt/iter_\d+ at env_step \d+ \(exact\)", ended.stderr)
    assert f"{folder.name} " in ended.stdout, "progress is shown"
    *_, result = ended.stdout.splitlines()
    assert float(re.match(r"return (\S+) \(95 % interval .* over 100 episodes", result)[1]) >= 475
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, result)
    assert "nothing left to train" in again.stderr
    limit = RunDir.open(folder).load_config().run.max_env_step
    with open(folder / "metrics.csv") as file:
        steps = [int(row["env_step"]) for row in csv.DictReader(file)]
    assert steps == sorted(steps)
    assert limit <= steps[-1] < limit + 2048


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        (
            "off_policy.py",
            ["--max-env-step", "2000", "--seed", "1"],
            r"return \d+\.\d .* over 100 episodes, 2,\d+ environment steps",
        ),
        (
            "on_policy.py",
            ["--max-env-step", "2048", "--env", "Pendulum-v1"],
            r"return -\d+\.\d .* over 100 episodes, 2,\d+ environment steps",
        ),
        ("custom_middleware.py", ["--max-env-step", "3072"], r"best return \d+\.\d, \d+\.\d s in the chain"),
    ],
)
def test_an_example_runs_and_prints_its_result(name, args, result, tmp_path):
    check_result(run_example(name, *args, folder=tmp_path)[0], result, tmp_path)


def check_result(printed, result, where):
    assert re.search(result, printed)
    for folder in re.findall(r"minding eval (\S+)", printed):
        assert (where / folder / "config.yaml").is_file()
        assert list((where / folder / "ckpt").glob("iter_*/manifest.json"))


@pytest.mark.slow
def test_the_on_policy_example_runs_and_prints_its_result(trained):
    check_result(trained[1], r"return \d+\.\d .* over 100 episodes", trained[0])


@pytest.mark.slow
def test_the_offline_example_learns_and_is_resumed(copied):
    record(copied, 500)
    arguments = ["--data", "runs/on_policy/data", "--max-train-iter", "100"]
    printed, _ = run_example("offline.py", *arguments, folder=copied)
    assert re.search(r"return \d+\.\d at the last evaluation, 100 gradient steps, 51 passes over 500 steps", printed)
    arguments[-1] = "150"
    printed, logged = run_example("offline.py", *arguments, folder=copied)
    assert re.search(r"resumed runs/offline/ckpt/iter_100 at train_iter 100 \(exact\)", logged)
    assert "150 gradient steps" in printed


@pytest.mark.slow
def test_an_example_is_resumed(copied):
    longer = ["--max-env-step", "4096", "--seed", "1"]
    printed, logged = run_example("on_policy.py", *longer, folder=copied)
    assert re.search(r"resumed runs/on_policy/ckpt/iter_\d+ at env_step [123],?\d{3} \(exact\); changed: run", logged)
    assert re.search(r"[345],\d{3} environment steps", printed)
    assert RunDir.open(copied / "runs" / "on_policy").read_config().run.max_env_step == 4096


@pytest.mark.parametrize("page", ["docs/from_kaiwu.md", "docs/zh/from_kaiwu.md"])
def test_the_pages_about_kaiwu_end_with_the_chain_of_the_example(page):
    assert chain_of("kaiwu.py") in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_processes_of_kaiwu_train_and_keep_versions(tmp_path):
    printed = start_example("kaiwu.py", "--max-env-step", "6144", folder=tmp_path)
    assert re.search(r"return -?\d\.\d\d at the last evaluation; 2\.68 is the best", printed)
    (index,) = tmp_path.glob("runs/kaiwu/*/index.jsonl")
    assert 1 < len(index.read_text().splitlines()) <= 6


def test_the_realm_of_kaiwu_is_an_environment(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from kaiwu import BEST, LIMIT, SIZE, Realm

    findings = check_env({"env_id": "kaiwu:Realm", "max_episode_steps": LIMIT, "info_keys": ["action_mask"]}, steps=60)
    faults = [each.text for each in findings if each.level != "ok" and "steps/s" not in each.text]
    assert faults == []
    realm, total = Realm(), 0.0
    _, info = realm.reset()
    assert info["action_mask"].tolist() == [True, False, True, False]
    way = [2] * (SIZE - 1) + [3] * (SIZE - 1) + [0] * (SIZE - 1) + [2] * (SIZE - 1)
    for action in way:
        assert realm.legal_action()[action]
        _, reward, ended, _, _ = realm.step(action)
        total += reward
    assert ended
    assert total == pytest.approx(BEST)


@pytest.mark.slow
def test_a_chain_runs_asynchronously_by_one_flag(tmp_path):
    arguments = ["--async", "--collectors", "2", "--max-env-step", "2048"]
    assert re.search(r"[12],\d{3} environment steps", start_example("off_policy.py", *arguments, folder=tmp_path))
    (ckpt,) = tmp_path.glob("runs/*/ckpt")
    assert any(path.name.startswith("iter_") for path in ckpt.iterdir())


@pytest.mark.slow
def test_the_custom_environment_trains_from_the_command_line_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(EXAMPLES)
    assert run(["train", "custom_env.py", "run.max_env_step=1024", f"run.out_dir={tmp_path}", "--no-progress"]) == 0
    assert "evaluation return" in capsys.readouterr().out


@pytest.mark.slow
def test_the_custom_environment_is_solved_at_the_defaults(tmp_path):
    # One key that has nothing to do with learning shows that keys are taken from the command line.
    printed, _ = run_example("custom_env.py", "run.final_episodes=50", folder=tmp_path)
    check_result(printed, r"return 0\.10 after", tmp_path)
    (config,) = tmp_path.glob("runs/*/config.yaml")
    assert "final_episodes: 50" in config.read_text()


def test_the_search_example_answers_a_corner_with_the_center(tmp_path):
    printed, _ = run_example("uct_search.py", "--simulations", "400", "--games", "3", folder=tmp_path)
    assert "it answers a corner with square 4; 4 is the center\n" in printed
    results = re.findall(r"uct:400 against (\w+): (\d) won, (\d) drawn, (\d) lost\n", printed)
    assert [(name, sum(map(int, counts))) for name, *counts in results] == [("random", 6), ("minimax", 6)]
    assert int(results[0][1]) >= 3
    assert results[1][1] == "0", "nobody wins against perfect play"


@pytest.mark.slow
def test_the_imitation_example_learns_and_is_resumed(copied):
    record(copied, 300)
    arguments = ["--data", "runs/on_policy/data", "--max-env-step", "1600"]
    printed, _ = run_example("sqil.py", *arguments, folder=copied)
    check_result(printed, r"return \d+\.\d at the last evaluation, 1,[56]\d\d environment steps, 300 steps", copied)
    arguments[-1] = "2000"
    printed, logged = run_example("sqil.py", *arguments, folder=copied)
    assert re.search(r"resumed runs/sqil/ckpt/iter_\d+ at env_step 1[56]\d\d \(exact\)", logged)
    assert re.search(r"(1,9|2,0)\d\d environment steps", printed)
