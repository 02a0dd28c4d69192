"""Which code a run folder, a saved agent or a .yaml file may name, and from where optional packages are imported."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

import minding
from minding.configs import load_user_config
from minding.engine import Config, RunDir
from minding.engine.config.compiler import RUN_SCHEMA, setting_paths
from minding.engine.config.named import CODE_KEYS, check_named, code_digests, is_given, load_code, name_of_code
from minding.engine.config.options import MODULE_NAME, setting_at
from minding.engine.config.trust import reaching_settings
from minding.engine.errors import ConfigError, MissingExtraError, TrustError
from minding.engine.process.packages import import_installed, is_installed
from minding.engine.run.loggers import check_loggers
from minding.envs.config import config_schema, env_settings
from minding.envs.envpool import package_of
from minding.envs.single.factory import env_factory
from minding.policies import ALGORITHMS

RAN = "import pathlib\npathlib.Path({place!r}, 'ran').write_text(__name__)\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The current folder, with a module that leaves a file named `ran`; what a test imports is forgotten again."""
    known = set(sys.modules)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_maze.py").write_text(RAN.format(place=str(tmp_path)) + "class Maze: ...\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def settings_with(key, value):
    tree = value
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return tree


def whole(settings):
    """Settings with the environment and the algorithm that every run names."""
    return {
        **settings,
        "env": {"env_id": "CartPole-v1", **settings.get("env", {})},
        "policy": {"type": "ppo", **settings.get("policy", {})},
    }


def run_of(settings, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(whole(settings)))
    return folder


REFUSED = [
    *((key, "own_maze:Maze", "names code") for key in CODE_KEYS),
    *(("env.env_id", text, "names code") for text in ("os:system", "minding.envs:register_env", "gymnasium:make")),
    *(("env.env_id", text, "names code") for text in (".own_maze:Maze", "absent:Maze", "own_maze:CartPole-v1")),
    ("env.env_id", "GymV26Environment-v0", "loads another environment by its name"),
    ("env.env_id", "GymEnvironment", "loads another environment by its name"),
    ("env.env_kwargs", {"env_id": "GymV21Environment-v0"}, "loads another environment by its name"),
    ("env.env_kwargs", {"x": "own_maze.py"}, "is an argument that names a file"),
    ("env.evaluator_kwargs", {"x": "own_maze.py"}, "is an argument that names a file"),
    ("env.env_kwargs", {"a": [{"file://own_maze.py": 1}]}, "is an argument that names a file"),
    ("use", [{"call": "own_maze:Maze", "before": "x"}], "names code"),
]


@pytest.mark.parametrize(("key", "value", "reason"), REFUSED)
def test_code_that_a_run_folder_names_is_not_even_looked_for(project, key, value, reason):
    run, path, modules = run_of(settings_with(key, value), project / "runs" / "maze"), [*sys.path], {*sys.modules}
    with pytest.raises(TrustError, match=rf"{key}.*{reason}\. .*give --trust"):
        RunDir.open(run).load_config(learns=True)
    assert (sys.path, {*sys.modules}) == (path, modules)
    assert not (project / "ran").exists()
    assert RunDir.open(run, trust=True).load_config() == whole(settings_with(key, value))


@pytest.mark.parametrize(
    "settings",
    [
        *({"env": {"env_id": text}} for text in ("CartPole-v1", "ALE/Pong-v5", "mpe2/simple_spread_v3", "python/Maze")),
        {"policy": {"type": "ppo", "model": {"encoder": None}}, "chain": "on_policy", "use": []},
        *({"env": {"env_kwargs": {"x": text}}} for text in ("rgb_array", "ant.xml", "12:30", "os.system", "a\0")),
        {
            "exp_name": "a:b",
            "run": {"loggers": [], "out_dir": "runs", "begin_from": None},
            "lanes": {"insecure": False},
        },
    ],
)
def test_plain_names_and_plain_data_need_no_trust(project, settings):
    run, path = run_of(settings, project / "runs" / "maze"), [*sys.path]
    assert RunDir.open(run).load_config(learns=True) == whole(settings)
    assert sys.path == path


def test_a_yaml_file_is_trusted_alike_wherever_it_lies(project):
    for place in (project, project / "downloads"):
        place.mkdir(exist_ok=True)
        (place / "some.yaml").write_text("policy: {type: ppo}\nenv: {env_id: 'own_maze:Maze'}\n")
        with pytest.raises(TrustError, match="names code"):
            load_user_config(place / "some.yaml")
        assert load_user_config(place / "some.yaml", trust=True).env.env_id == "own_maze:Maze"
    assert not (project / "ran").exists()
    (project / "some.py").write_text("main_config = {'env': {'env_id': 'own_maze:Maze'}}\n")
    assert load_user_config("some.py").env.env_id == "own_maze:Maze"
    assert load_user_config("own_maze:Maze").policy.type == "own_maze:Maze"
    assert load_code("own_maze:Maze", "policy.type").__name__ == "Maze"


def test_a_run_just_made_and_what_a_program_passes_are_ones_own(project):
    cfg = Config(exp_name="maze", run={"out_dir": "runs"}, env={"env_id": "os:system"}, policy={"type": "ppo"})
    assert RunDir.create(cfg).load_config() == cfg
    name = name_of_code(Passed, "encoder")
    assert is_given(name)
    run = run_of({"policy": {"model": {"encoder": name}}}, project / "passed")
    assert RunDir.open(run).load_config().policy.model.encoder == name
    assert load_code(name, "policy.model.encoder") is Passed


class Passed:
    """Is passed to an agent by this program."""


def test_a_setting_that_the_caller_replaces_may_name_anything(project):
    run = RunDir.open(run_of({"env": {"env_id": "os:system"}, "use": []}, project / "run"), own=["env.env_id"])
    assert run.load_config().env.env_id == "os:system"
    run_of({"env": {"env_id": "os:system"}, "use": ["os:system"]}, project / "run")
    with pytest.raises(TrustError, match="use='os:system'"):
        run.load_config()


# Settings that reach out of the run.

REACHING = {
    "run.begin_from": "../private",
    "run.loggers": ["tensorboard", "wandb"],
    "run.out_dir": "/somewhere",
    "lanes.transport": "ray",
    "lanes.address": "127.0.0.1:6399",
    "lanes.insecure": True,
    "lanes.code": "own_code",
    "policy.other.data": "../private",
}
TEXTS = {
    **dict.fromkeys(("exp_name", "league.opponents", "league.score", "policy.eval.opponents"), "names in the run"),
    **dict.fromkeys(("env.info_keys", "env.wrappers"), "names that minding knows"),
    **dict.fromkeys(("env.env_kwargs", "env.evaluator_kwargs"), "arguments, which are checked for files and code"),
    **dict.fromkeys(("policy.model.cnn", "policy.learn.anneal_points", "policy.other.eps.points"), "numbers"),
    "lanes.resources": "no effect without lanes.transport=ray",
}
"""Settings that take any text, and why they do not reach out of the run."""


def choices(option):
    return option.allowed if isinstance(option.allowed, tuple) else ()


def test_settings_of_any_text_declare_whether_they_reach_out():
    assert reaching_settings().keys() == REACHING.keys()
    schemas = [{**RUN_SCHEMA, "env": config_schema()}]
    schemas += [{"policy": algorithm.config_schema()} for algorithm in ALGORITHMS.values()]
    for schema in schemas:
        for path in setting_paths(schema):
            option = setting_at(schema, path)
            if option.kind in (str, list, dict) and (option.allowed is None or MODULE_NAME in choices(option)):
                assert path in {*CODE_KEYS, *REACHING, *TEXTS}, path
            assert bool(option.reaches) == (path in REACHING), path


@pytest.mark.parametrize(("key", "value"), REACHING.items())
def test_anothers_file_starts_no_run_outside_its_folder(project, key, value):
    run = run_of(settings_with(key, value), project / "run")
    for source in (run, run / "config.yaml"):
        with pytest.raises(TrustError, match=rf"{key}=.*{reaching_settings()[key].reaches}"):
            load_user_config(source)
    # What is typed replaces it; to act, it is not needed; --trust lets it through.
    assert setting_at(load_user_config(run, own=(key,)), key) == reaching_settings()[key].default
    assert setting_at(RunDir.open(run).load_config(), key) == reaching_settings()[key].default
    assert setting_at(load_user_config(run, trust=True), key) == value


# The user's own runs.

HELPED = "import own_pack\nclass Maze: ...\n"


@pytest.fixture
def own_run(project):
    """A run that this user made here, whose module imports a package beside it."""
    (project / "own_pack").mkdir()
    (project / "own_pack" / "__init__.py").write_text("")
    (project / "own_pack" / "maze.py").write_text(HELPED)
    cfg = Config(exp_name="maze", run={"out_dir": "made", "loggers": ["wandb"]}, env={"env_id": "own_pack.maze:Maze"})
    return RunDir.create(Config(**cfg, policy={"type": "ppo"}))


def test_a_run_that_this_user_made_here_is_his_own_and_stays_so(own_run, project):
    again = RunDir.open(own_run.path).load_config(learns=True)
    assert again.run.loggers == ["wandb"]
    assert load_user_config(own_run.config) == again
    # Wherever the folder lies, and with settings that this program changes later.
    moved = RunDir.open(shutil.copytree(own_run.path, project / "elsewhere" / "maze"))
    moved.update_config(Config({**again, "seed": 3}))
    assert moved.load_config(learns=True).seed == 3
    status = (project / "state" / "minding" / "key").stat()
    assert (status.st_size, status.st_mode & 0o777) == (32, 0o600)


def changed_module(run, project):
    (project / "own_pack" / "maze.py").write_text(HELPED + "\n")


def changed_package(run, project):
    (project / "own_pack" / "__init__.py").write_text("import os\n")


def module_elsewhere(run, project):
    (project / "own_pack").rename(project / "other")
    sys.path.append(str(shutil.copytree(project / "other", project / "copy" / "own_pack").parent))


def changed_setting(run, project):
    run.config.write_text(run.config.read_text().replace("- wandb", "- mlflow"))


def changed_signature(run, project):
    text = run.config.read_text()
    sign = text.rpartition("# signature: ")[2]
    run.config.write_text(text.replace(sign, ("0" if sign[0] != "0" else "1") + sign[1:]))


def signature_of_another_run(run, project):
    other = RunDir.create(Config(exp_name="other", env={"env_id": "own_maze:Maze"}, run={"out_dir": "made"}))
    sign = other.config.read_text().rpartition("# signature: ")[2]
    text = run.config.read_text()
    run.config.write_text(text.rpartition("# signature: ")[0] + "# signature: " + sign)


def another_key(run, project):
    (project / "state" / "minding" / "key").write_bytes(bytes(32))


def open_key(run, project):
    (project / "state" / "minding" / "key").chmod(0o644)


def no_key(run, project):
    (project / "state" / "minding" / "key").unlink()


def another_owner(run, project):
    os.chown(run.config, 12345, -1)


def another_folder(run, project):
    (project / "inner").mkdir()
    sys.path.append(str(project))
    os.chdir(project / "inner")


FORGED = (changed_module, changed_package, module_elsewhere, changed_setting, changed_signature)
FORGED += (signature_of_another_run, another_key, open_key, no_key, another_owner, another_folder)


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_signed_run_asks_again_once_anything_differs(own_run, project, forge, monkeypatch):
    if forge is another_owner and os.geteuid() != 0:
        pytest.skip("only root can give a file to somebody else")
    monkeypatch.chdir(project)
    forge(own_run, project)
    for run in (own_run.path, shutil.copytree(own_run.path, project / "copied", dirs_exist_ok=True)):
        if forge is another_owner and run != own_run.path:
            continue
        with pytest.raises(TrustError):
            RunDir.open(run).load_config()
    assert "own_pack" not in sys.modules


def test_source_and_digests_are_shown_without_running_them(project):
    (project / "own_pack").mkdir()
    for name in ("__init__", "inner"):
        (project / "own_pack" / f"{name}.py").write_text(RAN.format(place=str(project)) + "from own_maze import Maze\n")
    for text in ("own_maze:Maze", "own_pack.inner:Maze"):
        check_named(text, "policy.model.encoder")
    digests = code_digests({"use": ["own_maze:Maze", {"call": "own_pack.inner:x"}], "env": {"env_id": "absent:Maze"}})
    assert [*digests] == ["own_maze", "own_pack.inner"]
    assert not (project / "ran").exists()
    with pytest.raises(ConfigError, match="has no 'Maize'; did you mean 'Maze'"):
        check_named("own_maze:Maize", "policy.model.encoder")


# Packages that are not installed here, as folders beside a run.

PACKAGES = {"smac": "smac/3m", "smacv2": "smacv2/terran"}
LOGGERS = ("wandb", "mlflow", "swanlab")


@pytest.fixture
def shadowed(project):
    """A folder with packages called like optional ones, in which Python looks first, and a run."""
    for name in (*PACKAGES, *LOGGERS, "envpool"):
        (project / name).mkdir()
        for module in ("__init__", "env"):
            (project / name / f"{module}.py").write_text(RAN.format(place=str(project)))
    sys.path.insert(0, "")
    run_of({"env": {"env_id": "CartPole-v1", "env_kwargs": {"x": "a.b", "y": "smac.env"}}}, project)
    return project


@pytest.mark.parametrize("env_id", PACKAGES.values())
def test_a_folder_is_not_the_package_of_an_environment(shadowed, env_id):
    RunDir.open(".").load_config()
    with pytest.raises(ConfigError, match="needs the package"):
        env_factory(env_settings({"env_id": env_id}))
    run_of({"env": {"env_id": env_id}, "policy": {"type": "qmix"}, "seed": 0}, shadowed)
    with pytest.raises(ConfigError, match="needs the package"):
        minding.load(".")
    assert not (shadowed / "ran").exists()


@pytest.mark.parametrize("name", [*LOGGERS, "envpool"])
def test_a_folder_is_not_the_package_of_a_logger_or_backend(shadowed, name):
    if is_installed(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(MissingExtraError):
        check_loggers([name]) if name in LOGGERS else package_of("CartPole-v1")
    with pytest.raises(ModuleNotFoundError):
        import_installed(f"{name}.env")
    assert not (shadowed / "ran").exists()


def test_an_installed_package_comes_before_a_nearer_folder(shadowed, tmp_path_factory):
    places = tmp_path_factory.mktemp("places")
    (places / "smac").mkdir()
    (places / "smac" / "__init__.py").write_text("WHERE = 'installed'\n")
    sys.path.append(str(places))
    assert is_installed("smac")
    assert import_installed("smac").WHERE == "installed"
    assert not (shadowed / "ran").exists()


STARTED = """
import minding, sys
from minding.engine.process.spawn import WorkerProcess
from minding.engine.process.commands import Command, run_commands
from pathlib import Path

if __name__ == "__main__":
    worker = WorkerProcess(target=print, args=("worker",))
    worker.launch()
    worker.join()
    command = Command("minding.cli:main", ["--version"], Path("logs/out.txt"))
    run_commands([command], 1, lambda: None)
    print(worker.exitcode, command.code)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 looks in the current folder first")
def test_processes_import_nothing_from_the_current_folder(project, tmp_path_factory):
    for name in ("multiprocessing", "ctypes", "click"):
        (project / f"{name}.py").write_text(RAN.format(place=str(project)))
    script = tmp_path_factory.mktemp("scripts") / "starts.py"
    script.write_text(STARTED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["0 0"], done.stderr
    assert not (project / "ran").exists()


def test_the_module_imports_nothing_from_the_current_folder(project):
    (project / "click.py").write_text(RAN.format(place=str(project)))
    done = subprocess.run([sys.executable, "-m", "minding", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (project / "ran").exists()
