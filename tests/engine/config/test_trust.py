"""Which code a run folder may name."""

import sys

import pytest
from easydict import EasyDict

from minding.engine.errors import TrustError
from minding.engine.run.run_dir import RunDir

MODULE = "class Maze: ...\ndef make(): ...\nfrom os import system\nfrom {inner} import Inner\n"


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
    (tmp_path / "own_pack" / "inner.py").write_text("class Inner: ...\n")
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
    "env_id", ["own_maze:Maze", "own_maze:make", "own_maze:Inner", "own_pack:Maze", "own_pack.inner:Inner", "Pong-v5"]
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
        ("own_maze:own_pack:Maze", None),
        ("absent:Maze", "there is no module 'absent'"),
        (".own_maze:Maze", "is not the name of a module"),
        ("own-maze:Maze", "is not the name of a module"),
        ("GymV26Environment-v0", "loads another one by its name"),
        ("own_maze:GymV26Environment-v0", "loads another one by its name"),
    ],
)
def test_code_from_elsewhere_is_refused_before_it_runs(project, env_id, reason):
    run = run_of(env_id, project / "runs" / "maze")
    if reason is None:
        # Leads to nothing callable: whoever makes environments says so.
        assert RunDir.open(run).load_config().env.env_id == env_id
        return
    with pytest.raises(TrustError, match=rf"env\.env_id='{env_id}' in the run folder .*({reason}).*--trust"):
        RunDir.open(run).load_config()
    assert RunDir.open(run, trust=True).load_config().env.env_id == env_id


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


def test_a_folder_that_everybody_may_write_to_is_no_project(project):
    project.chmod(0o1777)
    with pytest.raises(TrustError, match="everybody may write"):
        RunDir.open(run_of("own_maze:Maze", project / "runs" / "maze")).load_config()


def test_a_run_that_was_just_made_is_its_makers_own(project):
    cfg = EasyDict(exp_name="maze", run={"out_dir": "runs"}, env={"env_id": "os:system"})
    assert RunDir.create(cfg).load_config() == cfg
