"""Which code a run folder may name."""

import sys
from pathlib import Path

import pytest
import yaml

from minding.configs import load_user_config
from minding.engine import Config
from minding.engine.config import trust
from minding.engine.errors import TrustError
from minding.engine.run.run_dir import RunDir

MODULE = """
import gymnasium as gym, os
from os import system
from {inner} import Inner

class Maze(gym.Env): ...
class Tool:
    def run(self, command): os.system(command)
class Formed:
    action_space = None
    def __init__(self): self.observation_space = None
    def reset(self): ...
    def step(self, action): ...
class Half(Formed): ...
def make(size=1) -> Maze: ...
def make_text(size=1) -> "gym.Env[int, int] ": ...
def parallel_env(size=1): ...
def tool(command): os.system(command)
def number() -> int: ...
alias = os.system
class Twice(gym.Env): ...
if True:
    Twice = os.system
gym.register("Own-v0", Maze)
gym.register(id="Other-v0", entry_point=Maze)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A user's project as the current folder; modules that a test imports are forgotten again."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, inner in (("own_maze", "own_pack.inner"), ("own_pack/__init__", "own_pack.inner")):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(MODULE.format(inner=inner))
    (tmp_path / "own_pack" / "inner.py").write_text(
        "from gymnasium.core import Env\nclass Base(Env): ...\nclass Inner(Base): ...\n"
    )
    (tmp_path / "mindings_script.py").write_text("raise SystemExit('a script ran')\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def run_of(env_id, folder):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"env: {{env_id: '{env_id}'}}\n")
    return folder


def write(path, text="open('ran', 'w')\nclass Env: ...\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "env_id",
    [
        *("own_maze:Maze", "own_maze:make", "own_maze:make_text", "own_maze:parallel_env", "own_maze:Formed"),
        *("own_maze:Half", "own_maze:Inner", "own_pack:Maze", "own_pack.inner:Inner", "Pong-v5"),
        *("own_maze:Own-v0", "own_maze:Other-v0"),
    ],
)
def test_code_of_the_users_project_needs_no_yes(project, env_id):
    assert RunDir.open(run_of(env_id, project / "runs" / "maze")).load_config().env.env_id == env_id


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("os:system", "part of Python|not below the current folder"),
        ("posix:system", "part of Python"),
        ("sys:exit", "part of Python"),
        ("subprocess:call", "not below the current folder"),
        ("os.path:join", "part of Python|not below"),
        ("minding.envs:register_env", "not below the current folder"),
        ("gymnasium:make", "not below the current folder"),
        ("own_maze:system", "part of Python|is not below"),
        ("own_maze:own_pack:Maze", "does not define a class or function"),
        ("own_maze:Tool", "the class own_maze:Tool is not an environment according to its source"),
        (
            "own_maze:tool",
            r"does not declare that it makes an environment: annotate .* def tool\(...\) -> gymnasium.Env",
        ),
        ("own_maze:number", "does not declare that it makes an environment"),
        ("own_maze:alias", "is not a class or function"),
        ("own_maze:Twice", "is not a class or function"),
        ("own_maze:os", "is not a class or function"),
        ("own_maze:absent", "does not define a class or function 'absent' and does not register such an id"),
        ("own_maze:CartPole-v1", "does not register such an id"),
        ("mindings_script:Env", "does not define a class or function"),
        (".own_maze:Maze", "is not the name of a module"),
        ("own-maze:Maze", "is not the name of a module"),
        ("GymV26Environment-v0", "loads another one by its name"),
        ("own_maze:GymV26Environment-v0", "loads another one by its name"),
    ],
)
def test_code_from_elsewhere_is_refused_before_it_runs(project, env_id, reason):
    run = run_of(env_id, project / "runs" / "maze")
    with pytest.raises(TrustError, match=rf"env\.env_id='{env_id}' in .* may not run: .*({reason}).*--trust"):
        RunDir.open(run).load_config()
    assert RunDir.open(run, trust=True).load_config().env.env_id == env_id
    assert "mindings_script" not in sys.modules


def test_a_module_that_is_not_there_is_no_question_of_trust(project):
    with pytest.raises(
        TrustError, match=r"cannot be used: there is no module 'absent' in .*project's folder"
    ) as caught:
        RunDir.open(run_of("absent:Maze", project / "runs" / "maze")).load_config()
    assert "--trust" not in str(caught.value)


def test_code_that_came_with_the_run_is_refused_wherever_the_run_lies(project):
    write(project / "runs" / "__init__.py")
    for folder in ("runs/evil", "runs"):
        write(project / folder / "payload.py")
    for run, name in (("runs/evil", "runs.evil.payload"), ("runs/other", "runs.payload")):
        write(project / run / "__init__.py")
        (project / run / "config.yaml").write_text(f"env: {{env_id: '{name}:Env'}}\n")
        with pytest.raises(TrustError, match="may have come with the run"):
            RunDir.open(run).load_config()
    assert not (project / "ran").exists()


def test_code_beside_a_run_that_is_the_current_folder_is_refused(project, monkeypatch):
    run = run_of("payload:Env", project / "runs" / "evil")
    write(run / "payload.py")
    monkeypatch.chdir(run)
    for path in (".", run):
        with pytest.raises(TrustError, match="may have come with the run"):
            RunDir.open(path).load_config()
    assert not (run / "ran").exists()


def test_a_folder_without_init_is_not_a_package_of_the_project(project):
    # The parts of an unpacked download would be importable so.
    write(project / "downloads" / "payload.py")
    with pytest.raises(TrustError, match=r"'downloads' is a folder without __init__\.py"):
        RunDir.open(run_of("downloads.payload:Env", project / "runs" / "evil")).load_config()
    assert not (project / "ran").exists()


def test_installed_packages_below_the_project_are_not_its_own(project, monkeypatch):
    packages = project / ".venv" / "lib" / "site-packages"
    write(packages / "installed_maze.py")
    monkeypatch.syspath_prepend(str(packages))
    with pytest.raises(TrustError, match="is an installed package"):
        RunDir.open(run_of("installed_maze:Env", project / "runs" / "evil")).load_config()
    assert not (project / "ran").exists()


def test_a_link_to_code_elsewhere_counts_as_elsewhere(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "linked_maze.py"
    write(outside)
    (project / "linked_maze.py").symlink_to(outside)
    with pytest.raises(TrustError, match="not below the current folder"):
        RunDir.open(run_of("linked_maze:Env", project / "runs" / "evil")).load_config()
    assert not (project / "ran").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o773])
def test_a_folder_that_everybody_may_write_to_is_no_project(project, mode):
    run = run_of("own_maze:Maze", project / "runs" / "maze")
    project.chmod(mode)
    with pytest.raises(TrustError, match=f"everyone can write to '{project}'"):
        RunDir.open(run).load_config()
    project.chmod(0o775)
    assert RunDir.open(run).load_config()


@pytest.mark.parametrize("name", ["own_pack", "own_pack/inner.py"])
def test_neither_is_code_that_everybody_may_change(project, name):
    run = run_of("own_pack.inner:Inner", project / "runs" / "maze")
    (project / name).chmod(0o777)
    with pytest.raises(TrustError, match=f"everyone can write to '{project / name}'"):
        RunDir.open(run).load_config()


@pytest.mark.parametrize(("mode", "trusted"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_above_the_project_counts_unless_it_is_sticky(project, monkeypatch, mode, trusted):
    inside = project / "inside"
    write(inside / "deep_maze.py", "import gymnasium\nclass Env(gymnasium.Env): ...\n")
    run = run_of("deep_maze:Env", inside / "runs" / "maze")
    monkeypatch.chdir(inside)
    project.chmod(mode)
    if trusted:
        assert RunDir.open(run).load_config()
    else:
        with pytest.raises(TrustError, match=f"everyone can write to '{project}'"):
            RunDir.open(run).load_config()


ROOT = Path(__file__).resolve().parents[3]
OWN = (
    *(
        "proofs.faults:_run",
        "proofs.faults:Flaky",
        "benchmarks.pairs:call",
        "benchmarks.pairs:Env",
        "docs.generate:main",
    ),
    *("engine.process.runtime:load", "envs:register_env", "envs.games.tmaze:TMaze", "src.minding.cli:main"),
    *("minding.cli:main", "minding.envs.games.tmaze:TMaze", "configs:load_preset", "custom_env:Corridor", "fakes:Env"),
)


@pytest.mark.parametrize("env_id", OWN)
def test_code_of_minding_is_not_the_users_where_the_current_folder_is_its_checkout(env_id, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples"), str(ROOT / "tests")])
    with pytest.raises(TrustError, match=r"may not run: .*(a part of minding|without __init__|everyone can write)"):
        RunDir.open(run_of(env_id, tmp_path / "run")).load_config()


def test_another_checkout_of_minding_counts_too_and_modules_beside_its_folders_are_the_users(project):
    write(project / "src" / "minding" / "__init__.py", "")
    write(project / "examples" / "__init__.py", "")
    write(
        project / "examples" / "other_faults.py", "import gymnasium\nopen('ran', 'w')\nclass Env(gymnasium.Env): ...\n"
    )
    with pytest.raises(TrustError, match="'examples' is a part of minding"):
        RunDir.open(run_of("examples:Env", project / "runs" / "evil")).load_config()
    assert not (project / "ran").exists()
    assert RunDir.open(run_of("own_maze:Maze", project / "runs" / "own")).load_config()


def test_every_folder_of_this_checkout_is_mindings():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    known = {name for name in folders if name[0] != "." and name not in ("build", "dist", "runs")}
    assert known <= trust._OWN_FOLDERS


ARGUMENTS = {
    "a command": ("subprocess:call", "it names code"),
    "with dots": ("os.system", "it names code"),
    "a tool of the project": ("own_maze:tool", "does not declare that it makes an environment"),
    "a loader": ("GymV26Environment-v0", "loads another one"),
    "a file that came along": ("runs/maze/evil.pkl", "names a file that came with it"),
    "deep": ({"a": [{"_target_": "os.system"}]}, "it names code"),
    "a key": ({"os.system": 1}, "it names code"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("env_id", ["own_maze:Maze", "CartPole-v1"])
def test_arguments_are_plain_data(project, name, env_id):
    value, reason = ARGUMENTS[name]
    run = run_of(env_id, project / "runs" / "maze")
    write(run / "evil.pkl")
    (run / "config.yaml").write_text(yaml.safe_dump({"env": {"env_id": env_id, "env_kwargs": {"x": value}}}))
    with pytest.raises(TrustError, match=f"is an argument that is not plain data: .*{reason}"):
        RunDir.open(run).load_config()
    assert RunDir.open(run, trust=True).load_config()


@pytest.mark.parametrize(
    "value", ["rgb_array", "ant.xml", "8x8", "12:30", "red:blue", "data/x.csv", "own_maze:Maze", "", "a b"]
)
def test_usual_texts_are_plain_data(project, value):
    run = run_of("own_maze:Maze", project / "runs" / "maze")
    (run / "config.yaml").write_text(yaml.safe_dump({"env": {"env_id": "own_maze:Maze", "env_kwargs": {"x": value}}}))
    assert RunDir.open(run).load_config().env.env_kwargs.x == value


def test_a_yaml_file_is_held_to_the_same(project):
    text = "policy: {type: ppo}\nenv: {env_id: '%s'}\n"
    for place in (project, project / "downloads"):
        write(place / "some.yaml", text % "os:system")
        with pytest.raises(TrustError, match="may not run"):
            load_user_config(place / "some.yaml")
        assert load_user_config(place / "some.yaml", trust=True)
    write(project / "own.yaml", text % "own_maze:Maze")
    assert load_user_config(project / "own.yaml").env.env_id == "own_maze:Maze"
    write(project / "downloads" / "__init__.py", "import gymnasium\nopen('ran', 'w')\nclass Env(gymnasium.Env): ...\n")
    write(project / "downloads" / "some.yaml", text % "downloads:Env")
    with pytest.raises(TrustError, match="may have come with"):
        load_user_config(project / "downloads" / "some.yaml")
    assert not (project / "ran").exists()


def test_a_run_that_was_just_made_is_its_makers_own(project):
    cfg = Config(exp_name="maze", run={"out_dir": "runs"}, env={"env_id": "os:system"})
    assert RunDir.create(cfg).load_config() == cfg
