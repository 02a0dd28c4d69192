"""The examples run, print their result, and show the chains that the README shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

OFF_POLICY_CHAIN = """\
with task.start(async_mode=args.async_, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=args.resume):
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
    task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, collector_env))
    task.use(data_pusher(cfg, buffer_))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
    task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
    task.run(max_step=max_step)
"""
ON_POLICY_CHAIN = """\
with task.start(async_mode=args.async_, ctx=OnlineRLContext(), lanes=cfg.lanes, resume=args.resume):
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
    task.use(StepCollector(cfg, policy.collect_mode, collector_env))
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))
    task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
    task.run(max_step=max_step)
"""


def run_example(name, *args, folder):
    command = [sys.executable, str(EXAMPLES / name), *args]
    return subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which the on-policy example has trained, and what it printed; tests work in copies."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, run_example("on_policy.py", "--max-env-step", "3072", "--seed", "1", folder=folder)


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def chain_of(name):
    text = (EXAMPLES / name).read_text()
    block = re.search(r"^    with task\.start.*?^        task\.run.*?\n", text, re.MULTILINE | re.DOTALL)
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


@pytest.mark.parametrize(("name", "chain"), [("off_policy.py", OFF_POLICY_CHAIN), ("on_policy.py", ON_POLICY_CHAIN)])
def test_the_chain_is_written_as_documented(name, chain):
    assert chain_of(name) == chain


def test_the_readme_shows_the_lines_of_both_chains():
    readme = (ROOT / "README.md").read_text()
    lines = {line.strip() for line in (OFF_POLICY_CHAIN + ON_POLICY_CHAIN).splitlines() if "task.use" in line}
    assert [line for line in sorted(lines) if line.removeprefix("task.") not in readme] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("off_policy.py", ["--max-env-step", "2000", "--seed", "1"], r"return \d+\.\d at the last evaluation"),
        ("on_policy.py", ["--max-env-step", "2048", "--env", "Pendulum-v1"], r"return -\d+\.\d at the last"),
        ("custom_middleware.py", ["--max-env-step", "3072"], r"best return \d+\.\d, \d+\.\d s in the chain"),
    ],
)
def test_an_example_runs_and_prints_its_result(name, args, result, tmp_path):
    check_result(run_example(name, *args, folder=tmp_path), result, tmp_path)


def check_result(out, result, where):
    assert out.returncode == 0, out.stderr
    assert re.search(result, out.stdout)
    for folder in re.findall(r"minding eval (\S+)", out.stdout):
        assert (where / folder / "config.yaml").is_file()
        assert list((where / folder / "ckpt").glob("iter_*/manifest.json"))


@pytest.mark.slow
def test_the_on_policy_example_runs_and_prints_its_result(trained):
    check_result(trained[1], r"return \d+\.\d at the last evaluation", trained[0])


@pytest.mark.slow
def test_the_offline_example_learns_from_what_is_recorded_and_is_resumed(copied):
    tmp_path = copied
    record = [sys.executable, "-m", "minding", "record-data", "runs/on_policy", "--steps", "500"]
    assert subprocess.run(record, env=ENVIRONMENT, cwd=tmp_path, timeout=300, check=False).returncode == 0
    arguments = ["--data", "runs/on_policy/data", "--max-train-iter", "100"]
    out = run_example("offline.py", *arguments, folder=tmp_path)
    assert out.returncode == 0, out.stderr
    assert re.search(r"return \d+\.\d at the last evaluation, 100 gradient steps, 51 passes over 500 steps", out.stdout)
    arguments[-1] = "150"
    out = run_example("offline.py", *arguments, "--resume", "runs/offline", folder=tmp_path)
    assert out.returncode == 0, out.stderr
    assert re.search(r"resumed runs/offline/ckpt/iter_100 at train_iter 100 \(exact\)", out.stderr)
    assert "150 gradient steps" in out.stdout


@pytest.mark.slow
def test_an_example_is_resumed(copied):
    longer = ["--max-env-step", "4096", "--seed", "1"]
    out = run_example("on_policy.py", *longer, "--resume", "runs/on_policy", folder=copied)
    assert out.returncode == 0, out.stderr
    assert re.search(
        r"resumed runs/on_policy/ckpt/iter_\d+ at env_step [123],?\d{3} \(exact\); changed: run", out.stderr
    )
    assert re.search(r"[34],\d{3} environment steps", out.stdout)


@pytest.mark.slow
def test_a_chain_runs_asynchronously_by_one_flag(tmp_path):
    arguments = ["--async", "--collectors", "2", "--max-env-step", "2048"]
    out = run_example("off_policy.py", *arguments, folder=tmp_path)
    assert out.returncode == 0, out.stderr
    assert re.search(r"[12],\d{3} environment steps", out.stdout)
    (ckpt,) = tmp_path.glob("runs/*/ckpt")
    assert any(path.name.startswith("iter_") for path in ckpt.iterdir())


def test_the_environment_of_your_own_takes_under_40_lines():
    assert len((EXAMPLES / "custom_env.py").read_text().splitlines()) < 40


@pytest.mark.slow
def test_the_custom_environment_trains_from_the_command_line_too(tmp_path):
    overrides = ["run.max_env_step=1024", f"run.out_dir={tmp_path}", "--no-progress"]
    command = [sys.executable, "-m", "minding", "train", "custom_env.py", *overrides]
    out = subprocess.run(command, env=ENVIRONMENT, cwd=EXAMPLES, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert "evaluation return" in out.stdout


@pytest.mark.slow
def test_the_custom_environment_is_solved_at_the_defaults(tmp_path):
    # One key that has nothing to do with learning shows that keys are taken from the command line.
    out = run_example("custom_env.py", "run.final_episodes=50", folder=tmp_path)
    check_result(out, r"return 0\.10 after", tmp_path)
    (config,) = tmp_path.glob("runs/*/config.yaml")
    assert "final_episodes: 50" in config.read_text()


@pytest.mark.slow
def test_the_imitation_example_learns_beside_what_is_recorded_and_is_resumed(copied):
    record = [sys.executable, "-m", "minding", "record-data", "runs/on_policy", "--steps", "300"]
    assert subprocess.run(record, env=ENVIRONMENT, cwd=copied, timeout=300, check=False).returncode == 0
    arguments = ["--data", "runs/on_policy/data", "--max-env-step", "1600"]
    out = run_example("sqil.py", *arguments, folder=copied)
    check_result(out, r"return \d+\.\d at the last evaluation, 1,[56]\d\d environment steps, 300 steps", copied)
    arguments[-1] = "2000"
    out = run_example("sqil.py", *arguments, "--resume", "runs/sqil", folder=copied)
    assert out.returncode == 0, out.stderr
    assert re.search(r"resumed runs/sqil/ckpt/iter_\d+ at env_step 1[56]\d\d \(exact\)", out.stderr)
    assert re.search(r"(1,9|2,0)\d\d environment steps", out.stdout)
