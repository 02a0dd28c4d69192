"""The `minding` command: what it prints, where, and its exit codes."""

import contextlib
import dataclasses
import importlib
import itertools
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
import types

import click
import pytest
from fakes import needs_kernels

import minding.cli
import minding.configs
from minding.cli import cli, run
from minding.cli.common import COUNT, number
from minding.cli.doctor import _kernels
from minding.cli.listing import pages
from minding.configs import PRESETS
from minding.engine import Config, EnvError, OnlineRLContext, RunDir
from minding.engine.chain.lanes import WorkerStatus
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.compiler import Overrides, load_config, save_config, setting_paths
from minding.engine.config.options import setting_at
from minding.engine.run.run_summary import wrong_figure
from minding.engine.run.status import StatusFile
from minding.engine.types import EpisodeEnd
from minding.policies import ALGORITHMS, kernels
from minding.policies.kernels import library

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def minding_process(*args, **kwargs):
    command = [sys.executable, "-m", "minding", *args]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **kwargs)


@dataclasses.dataclass
class Summary:
    run_dir: str
    unit: str = "env_step"
    env_step: int = 2048
    train_iter: int = 32
    eval_return: float = 487.5
    eval_std: float = 12.25
    n_eval_episodes: int = 100
    eval_length: float = 480.0
    wall_time: float = 2.0
    steps_per_second: float = 1024.0
    stop_reason: str = "max_env_step"
    ckpt: str = "ckpt/final"
    unsaved: bool = False
    folder_lost: bool = False
    profile: str = ""
    eval_info: dict = dataclasses.field(default_factory=lambda: {"success": 0.75})
    eval_normalized: float = float("nan")
    data_eval: dict = dataclasses.field(default_factory=dict)


@pytest.fixture
def training(monkeypatch):
    """Stands in for `minding.training`, trains nothing: it writes two rows of metrics and says that it ended."""
    for name in ("saved_agent", "evaluation_env"):  # what the command asks the real one for
        importlib.import_module(f"minding.training.{name}")
    module = types.ModuleType("minding.training")
    module.calls = []
    module.resumes = []
    module.stop_reason, module.unsaved, module.folder_lost = "max_env_step", False, False

    def train(cfg, run_dir, *, progress, resume, raise_signals):
        assert not raise_signals
        module.resumes.append((run_dir.path.name, resume))
        module.calls.append((cfg, progress))
        run_dir.metrics.write_text("env_step,eval/return_mean\n0,20.0\n2048,487.5\n")
        ended = {"stop_reason": module.stop_reason, "unsaved": module.unsaved, "folder_lost": module.folder_lost}
        return Summary(str(run_dir.path), **ended)

    def evaluate(run, n_episode, seed, *, acting, ckpt, played):
        module.calls.append((n_episode, seed, acting, ckpt))
        return [EpisodeEnd(0, 480.0, 480, {"success": 0.0}), EpisodeEnd(1, 500.0, 500, {"success": 1.0})]

    module.train, module.evaluate = train, evaluate
    module.check_runnable = module.check_begin = lambda cfg: None
    monkeypatch.setitem(sys.modules, "minding.training", module)
    monkeypatch.setattr(minding, "training", module, raising=False)
    return module


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Stands in for the compiler of whole runs: keeps the overrides, changes the folder."""

    def compile_run(user, overrides=()):
        run = {"out_dir": str(tmp_path / "runs"), "trace": False, "max_env_step": 2000, "target": None}
        cfg = Config(user, seed=3, run=run)
        cfg.overrides = Overrides(overrides).paths
        cfg.chain = "on_policy"
        return cfg

    # Imported only later, it would keep the function that stands in.
    importlib.import_module("minding.training.evaluation_env")
    monkeypatch.setattr(minding.configs, "compile_run", compile_run)


def test_options_that_repeat_what_a_setting_says_are_fine(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repeated = ["--seed", "3", "seed=3", "--out", "2024", "run.out_dir=2024", "--trace", "run.trace=yes"]
    assert run(["train", "cartpole_ppo", *repeated, "lanes.collectors=null", "lanes.pin=auto"]) == 0
    assert run(["train", "cartpole_ppo", "lanes.async_mode=true", "--collectors", "2"]) == 0
    assert [(cfg.seed, cfg.lanes.collectors) for cfg, _ in training.calls] == [(3, None), (0, 2)]


def test_help_is_there_within_half_a_second():
    times = []
    for _ in range(3):
        start, before = time.perf_counter(), _cpu_of_children()
        out = minding_process("--help")
        # On a busy machine a process waits for its turn.
        times += [time.perf_counter() - start, _cpu_of_children() - before]
    assert out.returncode == 0
    assert "train" in out.stdout
    assert min(times) < 0.5


def leaves(group=cli, path=()):
    for name, each in group.commands.items():
        yield from leaves(each, (*path, name)) if hasattr(each, "commands") else [((*path, name), each)]


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in leaves()])
def test_each_help_has_a_sentence_and_examples_that_parse(path, command):
    assert command.get_short_help_str(66).endswith(".")
    assert not command.get_short_help_str(66).endswith("...")
    assert "1000000000000" not in command.get_help(click.Context(command))
    assert command.examples
    for example in command.examples:
        words = shlex.split(example)
        assert tuple(words[: len(path)]) == path
        command.make_context(example, words[len(path) :])


def test_pages_are_printed_by_name_without_their_marks(printed, refused):
    assert printed("docs", "ppo").startswith("# PPO")
    assert "<!--" not in printed("docs", "howto/custom_networks")
    assert "async " in printed("docs")
    assert "did you mean 'tutorial'" in refused("docs", "tutoral")
    assert "reliability" in refused("docs", "resume").partition("has a section")[0]
    assert "L_π = mean[α log π(a|s) - min_i Q_i(s, a)]" in printed("docs", "sac")


@pytest.mark.parametrize("name", [name for name in pages() if name.startswith("algorithms/")])
def test_every_formula_of_an_algorithm_is_printed_as_text(name, printed):
    assert not re.search(r"```math|^[^`]*\\[a-z]+\b", printed("docs", name), re.MULTILINE)


def _cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_without_a_command_the_help_is_shown(printed):
    assert "Usage: minding" in printed()


@pytest.mark.parametrize(
    "args",
    [
        ["ppo", "--env", "CartPole-v1"],
        ["ppo", "env.env_id=CartPole-v1"],
        ["--algo", "ppo", "--env", "CartPole-v1"],
        ["policy.type=ppo", "env.env_id=CartPole-v1"],
    ],
)
def test_an_algorithm_trains_with_its_defaults(args, training, tmp_path):
    assert run(["train", *args, "--no-progress", "--out", str(tmp_path)]) == 0
    (call,) = training.calls
    user = Config(policy={"type": "ppo"}, env={"env_id": "CartPole-v1"}, run={"out_dir": str(tmp_path)})
    assert call[0] == minding.configs.compile_run(user)
    assert (tmp_path / "CartPole-v1_ppo").is_dir()


def test_train_ends_with_a_summary_the_folder_and_the_curve(training, compiled, capsys, tmp_path):
    assert run(["train", "cartpole_ppo", "policy.learn.gamma=0.9", "--seed", "7", "--no-progress"]) == 0
    (call,) = training.calls
    assert call[0].overrides == ("policy.learn.gamma", "seed")
    assert call[1] is False
    out = capsys.readouterr().out
    folder = tmp_path / "runs" / "cartpole_ppo"
    assert "487.5 ± 12.2 over 100 episodes" in out
    assert "2,048 (2,000 were reached in the last iteration)" in out
    assert "•" in out
    assert json.loads((folder / "summary.json").read_text())["eval_return"] == 487.5
    assert (folder / "curve.png").is_file()


@pytest.mark.parametrize(
    ("metrics", "reason", "curve"),
    [
        (None, "SIGINT", "none: the run ended before its first row of metrics"),
        (
            "env_step,train/loss\n512,3.0\n",
            "max_env_step",
            "none: no evaluation came before the final one (policy.eval.freq=None)",
        ),
        ("env_step,eval/return_mean\n512,3.0\n", "SIGTERM", "drawn by minding plot {folder}"),
    ],
)
def test_a_run_without_a_picture_of_its_curve_says_why(metrics, reason, curve, training, compiled, capsys, tmp_path):
    def train(cfg, run_dir, **_):
        if metrics is not None:
            run_dir.metrics.write_text(metrics)
        return Summary(str(run_dir.path), stop_reason=reason)

    training.train = train
    run(["train", "cartpole_ppo"])
    out = capsys.readouterr().out
    folder = tmp_path / "runs" / "cartpole_ppo"
    assert re.search(r"^  curve +(.*)$", out, re.MULTILINE)[1] == curve.format(folder=folder)
    assert not (folder / "curve.png").exists()
    # Nothing was saved that could be played or continued.
    assert "minding eval" not in out
    assert f"minding train {folder}/config.yaml" in out


@pytest.mark.parametrize(("reason", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("stop_value", 0)])
def test_the_exit_code_says_how_the_run_ended(training, compiled, reason, code):
    training.stop_reason = reason
    assert run(["train", "cartpole_ppo"]) == code


@pytest.mark.parametrize("reason", ["max_env_step", "SIGTERM"])
def test_an_unsaved_last_state_has_its_own_exit_code(training, compiled, capsys, tmp_path, reason):
    training.stop_reason, training.unsaved = reason, True
    assert run(["train", "cartpole_ppo"]) == 3
    out, error = capsys.readouterr()
    assert "could not be saved; there is no earlier checkpoint: start the run again" in error
    assert ("  again " in out, "  continue " in out) == (True, False)
    newest = tmp_path / "runs" / "cartpole_ppo" / "ckpt" / "iter_20"
    save_checkpoint(newest, {"policy": {}}, {"unit": "env_step", "env_step": 2000})
    assert run(["resume", str(newest.parent.parent)]) == 3
    out, error = capsys.readouterr()
    assert f"minding resume {newest.parent.parent}" in out
    found = " ".join(error.split())
    assert f"the newest is {newest} at env_step 2,000: minding resume {newest.parent.parent}" in found


def test_a_run_in_use_is_bad_input(training, compiled, capsys, tmp_path):
    folder = tmp_path / "runs" / "cartpole_ppo"
    assert run(["train", "cartpole_ppo"]) == 0
    save_checkpoint(folder / "ckpt" / "iter_20", {"policy": {}}, {"unit": "env_step", "env_step": 2000})
    holder = "import sys; from minding.engine.run.lock import RunLock; RunLock(sys.argv[1]).acquire(); print(input())"
    command = [sys.executable, "-c", holder, folder]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while not (folder / ".lock").read_text().startswith(f"process {process.pid} "):
            time.sleep(0.01)
        capsys.readouterr()
        for command in (["resume", str(folder)], ["train", "cartpole_ppo", "--resume"]):
            assert run(command) == 2
            captured = capsys.readouterr()
            assert (captured.out, captured.err.count("\n")) == ("", 1)
            assert f"is in use by process {process.pid} on " in captured.err
        process.communicate(b"end\n")
    assert run(["resume", str(folder)]) == 0


@pytest.mark.parametrize(
    ("error", "notes", "shown"),
    [
        (EnvError("step 12: reward is nan"), ["in StepCollector"], "step 12: reward is nan\n  in StepCollector\n"),
        (MemoryError("Unable to allocate 6.94 EiB"), [], "not enough memory: Unable to allocate 6.94 EiB\n"),
    ],
)
def test_a_fault_while_training_is_one_message_and_exit_code_1(error, notes, shown, training, compiled, capsys):
    def train(cfg, run_dir, **_):
        error.__notes__ = notes
        raise error

    training.train = train
    assert run(["train", "cartpole_ppo"]) == 1
    assert capsys.readouterr().err == f"minding: {shown}"


def test_debug_shows_the_traceback(training, compiled):
    def train(cfg, run_dir, *, progress, resume, raise_signals):
        assert not raise_signals
        raise EnvError("reward is nan")

    training.train = train
    with pytest.raises(EnvError):
        run(["--debug", "train", "cartpole_ppo"])


def test_eval_plays_with_the_seed_of_the_run(training, compiled, capsys, tmp_path):
    run(["train", "cartpole_ppo"])
    training.calls.clear()
    assert run(["eval", str(tmp_path / "runs" / "cartpole_ppo"), "--episodes", "2"]) == 0
    assert training.calls == [(2, 3, None, None)]
    out = capsys.readouterr().out
    assert "return 490.0 ± 10.0 over 2 episodes, from 480.0 to 500.0\nmean success 0.5\n" in out


def test_the_word_best_is_the_checkpoint_of_the_best_evaluation(
    training, compiled, capsys, tmp_path, monkeypatch, refused
):
    monkeypatch.chdir(tmp_path)
    run(["train", "cartpole_ppo"])
    training.calls.clear()
    assert "'runs/cartpole_ppo' has no best checkpoint" in refused("eval", "runs/cartpole_ppo", "--ckpt", "best")
    best = tmp_path / "runs/cartpole_ppo/ckpt/best"
    # A folder that is called so is given as a path.
    for folder in (best, tmp_path / "best"):
        folder.mkdir(parents=True)
    assert run(["eval", "runs/cartpole_ppo", "--ckpt", "best"]) == 0
    assert run(["eval", "runs/cartpole_ppo", "--ckpt", "./best"]) == 0
    assert training.calls == [(100, 3, None, best), (100, 3, None, tmp_path / "best")]
    filmed = []
    training.record = lambda run_dir, file, **given: filmed.append(given) or [EpisodeEnd(0, 2.0, 2)] * 3
    assert run(["record", "runs/cartpole_ppo", "--ckpt", "best", "--episodes", "3"]) == 0
    played = filmed[0].pop("played")
    assert (played.env.env_id, filmed) == ("CartPole-v1", [{"seed": None, "ckpt": best, "n_episode": 3}])
    assert "mean of 3 episodes 2.0\n" in capsys.readouterr().out


def test_each_seed_plays_its_own_best_checkpoint(seeds, training, capsys):
    folders = sorted((each / "ckpt" / "best" for each in seeds.glob("seed_*")), key=str)
    for folder in folders:
        folder.mkdir(parents=True)
    assert run(["eval", str(seeds), "--ckpt", "best", "--episodes", "2"]) == 0
    assert sorted((call[3] for call in training.calls), key=str) == folders


def test_plot_draws_the_runs_it_is_given(training, compiled, capsys, tmp_path, printed):
    pytest.importorskip("matplotlib")
    for _ in range(2):
        run(["train", "cartpole_ppo"])
    folders = [str(tmp_path / "runs" / name) for name in ("cartpole_ppo", "cartpole_ppo-1")]
    capsys.readouterr()
    picture = tmp_path / "pictures" / "curves.png"
    # Without an ending it is a .png.
    out = printed("plot", *folders, "--out", picture.with_suffix(""))
    assert "487.5" in out
    assert f"curves: {picture}\n" in out
    assert picture.is_file()
    assert f"curves: {picture}, in place of an earlier file" in printed("plot", *folders, "-o", picture)


def in_terminal(monkeypatch):
    """Makes the output a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


def listed(printed, *args):
    """The lines of `minding list`, none wider than 80 columns."""
    lines = printed("list", *args).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    return lines


def test_list_fits_a_screen_and_names_everything_but_middleware(printed):
    lines = listed(printed)
    assert len(lines) <= 45
    text = "\n".join(lines)
    assert "  simple_spread    coma, happo, happo_trust_region, idqn, ippo, maddpg, mappo,\n" in text
    # What follows in a second line stands below the first.
    assert re.search(r"^  cartpole +a2c, .*,\n {19}\w+, ", text, re.MULTILINE)
    assert "minding list presets" in text
    for name in ALGORITHMS:
        assert re.search(rf"\b{name}\b", text)


@pytest.mark.parametrize("what", ["presets", "algorithms", "environments", "middleware"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_list_has_one_line_each_and_wraps_in_a_narrow_terminal(what, terminal, printed, monkeypatch):
    _, _, *lines = whole = printed("list", what).splitlines()
    if terminal:
        in_terminal(monkeypatch)
        _, _, *lines = listed(printed, what)
        assert words_of(lines) == words_of(whole[2:])
    else:
        assert all(line.endswith(".") for line in lines if what == "middleware")
    names = [line.split()[0] for line in lines if re.match(r"  \S", line)]
    if what == "presets":
        assert names == list(PRESETS)
    elif what == "algorithms":
        assert sorted(names) == list(ALGORITHMS)
        assert " Value-based algorithms:" in lines
        assert names.index("dqn") < names.index("rainbow") < names.index("sac")
    elif what == "environments":
        assert {"box2d", "classic_control", "minding"} <= set(names)
    else:
        assert names.count("termination_checker") == 1
    assert len(set(names)) == len(names)


def words_of(lines):
    return sorted(" ".join(lines).split())


def test_list_presets_says_what_to_expect(printed, monkeypatch):
    in_terminal(monkeypatch)
    (line,) = [line for line in listed(printed, "presets") if line.startswith("  pendulum_sac ")]
    assert re.match(r"  pendulum_sac +SAC on Pendulum-v1: .* -200 +15k$", line)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("pendulum_sac", ["Expected: an evaluation mean of at least -200 within 15k", "env_id: Pendulum-v1"]),
        ("ppo", ["  actions  discrete, multi_discrete, box", "minding train ppo --env CartPole-v1", "cartpole_ppo,"]),
        ("box2d", ["LunarLander-v3"]),
        (
            "minding/PixelCatch-v0",
            [
                "  family   minding",
                "  presets  pixelcatch_dqn, pixelcatch_dreamer, pixelcatch_ppo",
                "minding check-env",
            ],
        ),
        ("termination_checker", ["env_step?, train_iter?, train_epoch?, eval_value?", "Args:"]),
    ],
)
def test_list_shows_the_details_of_a_name(name, texts, printed):
    out = "\n".join(listed(printed, name))
    for text in texts:
        assert text in out


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_details_of_an_algorithm_have_each_of_its_settings(name, printed):
    lines = listed(printed, name)
    schema = ALGORITHMS[name].config_schema()
    for path in setting_paths(schema):
        option = setting_at(schema, path)
        place = lines.index(f"  policy.{path}={option.default}")
        told = " ".join(itertools.takewhile(str.strip, (each.removeprefix("      ") for each in lines[place + 1 :])))
        assert told.startswith(f"{option.doc}; {option.expected}")


@pytest.mark.parametrize(("text", "steps"), [("1e4", 10_000), ("20_000", 20_000)])
def test_a_number_of_steps_may_be_written_with_an_exponent(text, steps):
    assert COUNT.convert(text, None, None) == steps


def test_check_env_finds_cartpole_fit(printed):
    assert "CartPole-v1: fit for training" in printed("check-env", "CartPole-v1", "--steps", "200")


@pytest.mark.parametrize("compiled", [True, False])
def test_training_without_the_kernels_says_where_the_fix_is(compiled, training, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(kernels, "compiled", lambda: compiled)
    assert run(["train", "cartpole_ppo", "--out", str(tmp_path)]) == 0
    assert ("minding doctor" in capsys.readouterr().err) is not compiled


@pytest.mark.parametrize(
    ("files", "compiler", "found", "fix"),
    [
        ([], None, r"there is no C\+\+ compiler", "install g++"),
        ([], "/usr/bin/g++", r"although there is /usr/bin/g\+\+ now", "pip install -v"),
        (["_kernels.so", "other"], None, "compiled from other sources", "install minding"),
        (["_kernels.so"], None, r"cannot be loaded \(.*_kernels.so: file too short\)", "install minding again"),
    ],
)
def test_doctor_says_why_there_are_no_kernels(files, compiler, found, fix, tmp_path, monkeypatch):
    for name in files:
        (tmp_path / name).touch()
    if "other" in files:
        # A library of somebody else's.
        shutil.copy(sys.modules["_ctypes"].__file__, tmp_path / "_kernels.so")
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "_kernels.so")
    monkeypatch.setattr(kernels, "function", library.function.__wrapped__)
    monkeypatch.setattr(kernels, "compiled", (tmp_path / "_kernels.so").is_file)
    monkeypatch.setattr(kernels.shutil, "which", lambda name: compiler)
    _, what, how = _kernels()
    assert re.search(f"{found}.*; learning is slower", what)
    assert fix in how


@needs_kernels
@pytest.mark.slow
def test_doctor_finds_no_fault_here():
    out = minding_process("doctor")
    assert "no faults found" in out.stdout
    assert out.returncode == 0


def test_doctor_gives_the_fix_for_a_setting_that_corrupts(tmp_path):
    out = subprocess.run(
        [sys.executable, "-m", "minding", "doctor"],
        env={**ENVIRONMENT, "MS_COMPILER_CACHE_ENABLE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert out.returncode == 1
    assert "unset" in out.stdout


def test_bad_input_is_found_before_mindspore_loads():
    code = (
        "import sys; from minding.cli import run\n"
        "assert run(['train', 'cartpole_pp']) == 2\n"
        "for wrong in 'policy.learn.gamma=2', 'chain=typo', 'env.backend=native env.env_id=minding/PixelCatch-v0':\n"
        "    assert run(['train', 'cartpole_ppo', *wrong.split(), '--out', '/dev/null/x']) == 2\n"
        "print('mindspore' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert out.stdout.strip() == "False"


def train_to_a_checkpoint(folder, *settings):
    """A run folder as `minding train cartpole_ppo` leaves it when it is killed."""
    run(["train", "cartpole_ppo", *settings, "--out", str(folder)])
    run_dir = RunDir.open(folder / "cartpole_ppo")
    (run_dir.checkpoints / "iter_20").mkdir(parents=True)
    return run_dir


def test_train_resume_continues_the_newest_run_with_new_settings(training, tmp_path):
    train_to_a_checkpoint(tmp_path)
    assert run(["train", "cartpole_ppo", "policy.learn.gamma=0.9", "--resume", "--out", str(tmp_path)]) == 0
    assert training.resumes == [("cartpole_ppo", None), ("cartpole_ppo", "latest")]
    assert training.calls[1][0].policy.learn.gamma == 0.9


def test_train_resume_takes_the_run_of_its_seed_and_policy(training, tmp_path, capsys, caplog):
    train_to_a_checkpoint(tmp_path)
    for setting in ("seed=1", "policy.model.activation=relu"):
        capsys.readouterr()
        assert run(["train", "cartpole_ppo", setting, "--resume", "--out", str(tmp_path)]) == 0
        assert "is another run (" in capsys.readouterr().err
        assert training.resumes[-1][1] is None
    assert [name for name, _ in training.resumes] == ["cartpole_ppo", "cartpole_ppo-1", "cartpole_ppo-2"]
    # The newest folder belongs to another run, that of seed 0 is two further back.
    assert run(["train", "cartpole_ppo", "--resume", "--out", str(tmp_path)]) == 0
    assert training.resumes[-1] == ("cartpole_ppo", "latest")
    assert training.calls[-1][0].seed == 0
    (tmp_path / "cartpole_ppo-1" / "config.yaml").write_text("[")
    (tmp_path / "cartpole_ppo-2" / "config.yaml").write_text("env: {env_id: 'os:system'}")
    assert run(["train", "cartpole_ppo", "--resume", "--out", str(tmp_path)]) == 0
    assert caplog.text.count("skipped") == 2


@pytest.mark.parametrize("setting", ["seed=1", "env.env_id=Acrobot-v1", "policy.model.hidden=[8]", "chain=trajectory"])
def test_resume_refuses_what_would_be_another_run_and_says_why(training, tmp_path, refused, setting):
    folder = train_to_a_checkpoint(tmp_path).path
    before = (folder / "config.yaml").read_text()
    error = refused("resume", folder, setting)
    assert "belongs to another run" in error or "env.spec" in error
    assert (folder / "config.yaml").read_text() == before
    assert len(training.calls) == 1


@pytest.mark.parametrize(
    ("earlier", "message", "name"),
    [
        (None, "no run 'cartpole_ppo' in", "cartpole_ppo"),
        ("ended", "no checkpoint in", "cartpole_ppo-1"),
        ("killed", "no checkpoint in", "cartpole_ppo"),
    ],
)
def test_train_resume_with_nothing_to_resume_says_so_and_starts(training, tmp_path, capsys, earlier, message, name):
    if earlier is not None:
        run(["train", "cartpole_ppo", "--out", str(tmp_path)])
    for file in (tmp_path / "cartpole_ppo").iterdir() if earlier == "killed" else ():
        if file.name != "config.yaml":
            file.unlink()
    assert run(["train", "cartpole_ppo", "--resume", "--out", str(tmp_path)]) == 0
    assert f"minding: nothing to resume: {message}" in capsys.readouterr().err
    assert training.resumes[-1] == (name, None)


def test_resume_takes_the_settings_of_the_run_with_changes(training, tmp_path):
    folder = train_to_a_checkpoint(tmp_path).path
    assert run(["resume", str(folder), "policy.learn.gamma=0.9", "--no-progress"]) == 0
    cfg, progress = training.calls[-1]
    assert (cfg.policy.learn.gamma, cfg.exp_name, progress) == (0.9, "cartpole_ppo", False)
    assert training.resumes[-1] == ("cartpole_ppo", "latest")


@pytest.mark.parametrize("command", [["resume"], ["train", "cartpole_ppo", "--resume", "--out"]])
def test_a_run_cannot_be_resumed_to_fewer_steps_than_it_has_made(training, tmp_path, capsys, command):
    folder = train_to_a_checkpoint(tmp_path, "run.max_env_step=4096").path
    save_checkpoint(folder / "ckpt" / "iter_30", {"policy": {}}, {"env_step": 4279})
    before = (folder / "config.yaml").read_text()
    where = str(folder if command == ["resume"] else tmp_path)
    assert run([*command, where, "run.max_env_step=4100"]) == 2
    expected = f"run.max_env_step=4100: the run {str(folder)!r} has already made 4,279 environment steps"
    assert expected in " ".join(capsys.readouterr().err.split())
    assert ((folder / "config.yaml").read_text(), len(training.calls)) == (before, 1)
    # A limit that is reached, or the one that the run has passed by a part of a rollout: nothing is left to train.
    for steps in (4096, 4279):
        assert run([*command, where, f"run.max_env_step={steps}"]) == 0


@pytest.fixture
def seeds(training, tmp_path):
    """A folder of three seeds, whose final evaluations are in their summaries."""
    folder = tmp_path / "some-seeds"
    for seed, value in ((0, 100.0), (1, 300.0), (10, None)):
        args = [f"exp_name=seed_{seed}", f"run.out_dir={folder}", f"seed={seed}"]
        cfg = minding.configs.compile_run(minding.configs.load_preset("cartpole_ppo"), args)
        RunDir.create(cfg).write_summary({"eval_return": value})
    (folder / "settings.yaml").write_text("seed: 0\n")
    return folder


def test_the_agents_of_all_seeds_in_a_folder_play(seeds, training, printed, refused):
    lines = printed("eval", seeds, "--episodes", "2").splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("seed")] == ["seed 0", "seed 1", "seed 10"]
    assert lines[-1] == "mean of 3 seeds 490.0, from 490.0 to 490.0"
    assert [call[:2] for call in training.calls] == [(2, 0), (2, 1), (2, 10)]
    assert "name one agent, but" in refused("eval", seeds, "--ckpt", seeds)


def test_of_a_folder_of_seeds_the_best_is_filmed(seeds, training, capsys):
    filmed = []

    def record(run_dir, file, **_):
        filmed.append(run_dir.path.name)
        return [EpisodeEnd(0, 300.0, 300, {})]

    training.record = record
    assert run(["record", str(seeds)]) == 0
    assert filmed == ["seed_1"]
    assert "the best of 3 seeds: seed_1" in capsys.readouterr().out


ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture
def foreign(training, tmp_path):
    """Two runs with controls of a terminal in their names, settings, figures and status."""
    for seed in range(2):
        folder = tmp_path / f"in{ESCAPES}\nfake" / f"run{seed}"
        args = ["exp_name=run", f"run.out_dir={tmp_path}", f"seed={seed}"]
        made = RunDir.create(minding.configs.compile_run(minding.configs.load_preset("cartpole_ppo"), args))
        folder.parent.mkdir(exist_ok=True)
        run_dir = RunDir(made.path.rename(folder))
        ended = {"unit": "env_step", "env_step": 10, "wall_time": 1.0, "stop_reason": f"a{ESCAPES}\nb"}
        run_dir.write_summary({**ended, "eval_return": 4.0, "eval_std": 1.0, "n_eval_episodes": 10})
        worker = WorkerStatus("w", ESCAPES, ESCAPES, 1, ESCAPES, 0, 0, 0.0, 0)
        StatusFile(run_dir.status).write(OnlineRLContext(), 10, [worker], "ended", f"a{ESCAPES}\nb")
        run_dir.metrics.write_text("env_step,eval/return_mean\n0,1.0\n10,4.0\n")
    cfg = load_config(run_dir.config)
    cfg.env.env_id = rf"$\bad$ Pole{ESCAPES}"
    save_config(cfg, run_dir.config)
    return folder.parent


COMMANDS = ("compare", "status", "report", "plot", "eval", "resume", "pool", "train")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_text_of_a_run_folder_controls_the_terminal(command, foreign, capsys, monkeypatch):
    monkeypatch.chdir(foreign)
    runs = [str(foreign / name) for name in ("run0", "run1")]
    for given in [runs] if command in ("compare", "report", "plot") else [[each] for each in runs]:
        run([command, *given])
        printed = "".join(capsys.readouterr())
        assert all(each.isprintable() or each == "\n" for each in printed), ascii(printed)
        assert not re.search("^(fake|b)", printed, re.MULTILINE)
    for page in foreign.glob("*.html"):
        assert not set("\x1b\x07\x9b\u202e") & set(page.read_text())


def test_tables_of_runs_without_returns_show_recorded_data(seeds, printed):
    figures = {"unit": "train_iter", "train_iter": 320, "wall_time": 3.0, "stop_reason": "max_train_iter"}
    judged = {**figures, "data_eval": {"other_actions": 0.125, "td_error": 2.5}}
    run_dir = RunDir(seeds / "seed_0")
    run_dir.write_summary(judged)
    assert "other actions 12.5% of the held-out ones, TD error 2.5 in held-out steps" in printed(
        "compare", run_dir.path
    )
    assert wrong_figure({"data_eval": {"td_error": "2"}}).startswith("data_eval={'td_error': '2'}: expected numbers")


@pytest.mark.parametrize("command", [["eval"], ["resume"], ["train"], ["export", "--format", "onnx"]])
def test_no_command_runs_code_that_a_run_folder_names(command, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "ckpt" / "iter_1").mkdir(parents=True)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(
        "env: {env_id: 'os:system', env_kwargs: {command: 'touch ran'}}\n"
        "policy: {type: ppo}\nseed: 0\ndevice: auto\nrun: {jit_threads: 1}\n"
    )
    for run_folder in ["run", *([str(config)] if command == ["train"] else [])]:
        assert "names code. A run folder" in refused(*command, run_folder)
    assert not (tmp_path / "ran").exists()
    if command in (["resume"], ["train"]):
        # After a yes it is made, as any environment is; the other two look at the checkpoint first.
        with contextlib.suppress(Exception):
            run([*command, "run", "--trust"])
        assert (tmp_path / "ran").exists()


CONFIGS = {
    "mine.yaml": "env: {env_id: 'gymnasium.envs.classic_control.cartpole:CartPoleEnv'}\npolicy: {type: ppo}\n",
    "mine.py": "main_config = {'env': {'env_id': 'gymnasium.envs.classic_control.cartpole:CartPoleEnv'}, "
    "'policy': {'type': 'ppo'}}\n",
}


def test_what_the_user_names_needs_no_yes(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.yaml", "mine.py"):
        (tmp_path / name).write_text(CONFIGS[name])
    assert run(["train", "mine.yaml"]) == 2
    assert run(["train", "mine.yaml", "--trust"]) == 0
    assert run(["train", "mine.py"]) == 0
    assert run(["train", "cartpole_ppo", "env.env_id=gymnasium.envs.classic_control.cartpole:CartPoleEnv"]) == 0


@pytest.mark.parametrize(
    ("value", "text"), [(487.46, "487.5"), (-10.04, "-10.0"), (0.0, "0.0"), (-1.0, "-1.0"), (0.69713, "0.6971")]
)
def test_small_returns_have_four_digits_and_round_ones_one(value, text):
    assert number(value) == text
