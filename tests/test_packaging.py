"""The tree as a package: links, wheel, versions, contracts, and pages that are current."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import minding
from minding.engine.process.packages import NEEDED
from minding.policies import ALGORITHMS, kernels

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("configs", "engine", "envs", "middleware", "policies")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ADDED = ("build", "dist", "*.egg-info", "*_cache", "__pycache__", ".hypothesis", "rank_*", "kernel_meta")
"""Folders that working in the tree leaves behind."""
GENERATED = re.compile(r"<!-- (generated|results):.*?<!-- /\1 -->", re.S)
# Absolute paths of one machine. Assembled, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.:/~$}])/(?:" + "|".join(("home", "root", "Users", "work", "mnt")) + r")/\w")


def tracked_files():
    """Files that git tracks or would add, without the links; skips where this is no checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for name in names if (path := ROOT / name).is_file() and not path.is_symlink()]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_imported_under_one_name_only(name):
    importlib.import_module(f"minding.{name}")
    assert name not in sys.modules


def test_the_versions_checked_on_import_are_the_required_ones():
    required = {each.name: each.specifier for each in map(Requirement, PYPROJECT["project"]["dependencies"])}
    for name, needed in NEEDED.items():
        assert required[name] == SpecifierSet(needed)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('__version__ = "0.29.1"', "minding needs gymnasium>=1.1,<2, but version 0.29.1 is installed"),
        ('__version__ = "1.0.0rc1"', "minding needs gymnasium>=1.1,<2, but version 1.0.0rc1 is installed"),
        ('raise ModuleNotFoundError(name="gymnasium")', "gymnasium is not installed"),
    ],
)
def test_a_version_that_does_not_fit_is_one_line_with_the_fix(source, message, tmp_path):
    (tmp_path / "gymnasium.py").write_text(source)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    program = [sys.executable, "-m", "minding", "train", "ppo", "--env=CartPole-v1"]
    ended = subprocess.run(program, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, f"minding: {message}: pip install 'gymnasium>=1.1,<2'\n")


BEFORE_GYMNASIUM_1_4 = """
import gymnasium.vector as vector

def not_generic(cls, parts):
    raise TypeError(f"{cls} is not a generic class")

vector.VectorWrapper.__class_getitem__ = classmethod(not_generic)
import minding.envs.backends.native, minding.envs.manager
"""


def test_environments_load_by_the_oldest_gymnasium():
    subprocess.run([sys.executable, "-c", BEFORE_GYMNASIUM_1_4], cwd=ROOT, check=True, timeout=60)


def test_constraints_and_requirements_can_be_met_together():
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    lines = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    wanted = {}
    for requirement in map(Requirement, lines):
        wanted.setdefault(requirement.name, []).append(requirement.specifier)
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    candidates = [Version(f"{major}.{minor}") for major in range(60) for minor in range(60)]
    for line in constraints:
        if line.startswith("#"):
            continue
        constraint = Requirement(line)
        fitting = [each for each in candidates if constraint.specifier.contains(each)]
        for specifier in wanted.get(constraint.name, []):
            assert any(specifier.contains(each) for each in fitting) or str(specifier) == str(constraint.specifier), (
                f"no version of {constraint.name} fits constraints.txt ({constraint.specifier}) and "
                f"pyproject.toml ({specifier})"
            )


def test_the_generated_tables_of_the_pages_are_current():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    pages = sorted((ROOT / "docs").rglob("*.md"))
    stale = [page.name for page in pages if generate.filled(page.read_text()) != page.read_text()]
    assert stale == [], "run: make docs"


def test_no_file_names_all_algorithms():
    """Whatever must know them finds them by their files: adding one touches its own five files only."""
    words = [re.compile(rf"\b({name}|{each.class_name})\b") for name, each in ALGORITHMS.items()]
    kinds = (".py", ".toml", ".md", ".yaml", ".cfg", "")
    texts = {path: path.read_text(encoding="utf-8") for path in tracked_files() if path.suffix in kinds}
    written = {path: GENERATED.sub("", text) for path, text in texts.items()}
    assert [str(path) for path, text in written.items() if all(word.search(text) for word in words)] == []


def test_no_file_holds_a_path_of_one_machine():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in MACHINE_PATH.finditer(text)]
    assert found == []


def test_each_folder_of_code_has_a_test_folder_of_the_same_name():
    folders = {path.parent.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    folders |= {Path("cli"), Path("training")}
    tests = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders - tests == set()
    of_others = {".", "contract", "faults", "docs", "examples", "benchmarks", "proofs"}
    assert tests - folders == {Path(name) for name in of_others}


def test_names_of_tests_are_short():
    names = [name for file in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", file.read_text())]
    assert len(names) > 1500
    assert [name for name in names if len(name) > 60] == []


@pytest.mark.slow
def test_the_source_distribution_is_whole_and_its_wheel_imports(tmp_path):
    setuptools = importlib.import_module("setuptools")
    if Version(setuptools.__version__) < Version("77"):
        pytest.skip("building needs setuptools 77: pip install -c constraints.txt -e '.[dev]'")
    # A build leaves folders behind: not in the checkout.
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv*", "runs", *ADDED, "*.so"))
    code = "import setuptools.build_meta; setuptools.build_meta.build_sdist('..')"
    out = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    with tarfile.open(tmp_path / f"minding-{minding.__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / f"minding-{minding.__version__}"
    assert {name: os.readlink(tree / "src" / "minding" / name) for name in (*PACKAGES, "zoo")} == {
        name: f"../../{name}" for name in (*PACKAGES, "zoo")
    }
    held = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
    if (ROOT / ".git").exists():
        assert {path.relative_to(ROOT) for path in tracked_files()} - held == set()
    # That the kernels compile is known of the checkout. Of its files each has to find its headers; what they become is
    # in the wheel like the library.
    compiler = tmp_path / "compiler"
    touch = 'for word; do if [ "$before" = -o ]; then touch "$word"; fi; before="$word"; done'
    compiler.write_text(f'#!/bin/sh\n{sysconfig.get_config_var("CXX") or "c++"} -E "$@" && {touch}\n')
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    env = {**os.environ, "CC": str(compiler), "CXX": str(compiler)}
    env |= {"LDSHARED": f"{compiler} -shared", "LDCXXSHARED": f"{compiler} -shared"}
    out = subprocess.run(
        [*command, "-w", str(tmp_path), str(tree)], env=env, capture_output=True, text=True, timeout=300
    )
    assert out.returncode == 0, out.stderr
    (wheel,) = tmp_path.glob("minding-*.whl")
    # The library belongs to no version of Python.
    assert wheel.name.startswith(f"minding-{minding.__version__}-py3-none-linux_")
    names = zipfile.ZipFile(wheel).namelist()
    for name in PACKAGES:
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / name).rglob("*.py")}
        assert {f"minding/{file}" for file in files} <= set(names)
    agents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "zoo").rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("minding/zoo/")} == {f"minding/{file}" for file in agents}
    assert {"minding/py.typed", "minding/__main__.py"} <= set(names)
    assert ("minding/policies/kernels/_kernels.so" in names) == kernels.compiled()
    assert {name.split("/")[0] for name in names} == {"minding", f"minding-{minding.__version__}.dist-info"}
    code = "import minding.engine, minding.envs.single.factory, minding.configs; print(minding.__file__)"
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(wheel)}, capture_output=True, text=True
    )
    assert wheel.name in out.stdout, out.stderr


EXTRAS = PYPROJECT["project"]["optional-dependencies"]
LIBRARY = ("engine", "envs", "middleware", "policies", "configs", "src/minding/cli", "src/minding/training")
MODULES = {"opencv-python-headless": "cv2", "di-treetensor": "treetensor", "open_spiel": "pyspiel"}
"""What a package is imported as, where that is not its name with underscores."""


def library_text():
    return "\n".join(path.read_text() for folder in LIBRARY for path in (ROOT / folder).rglob("*.py"))


def test_every_package_of_an_extra_is_used():
    text = library_text()
    for extra in EXTRAS.keys() - {"dev", "all"}:
        for line in EXTRAS[extra]:
            requirement = Requirement(line)
            module = MODULES.get(requirement.name.lower(), requirement.name.replace("-", "_"))
            assert re.search(rf"\b{module}\b", text), (
                f"the extra {extra!r} installs {requirement.name}, which nothing uses"
            )


def test_every_extra_that_a_page_or_a_message_names_exists():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    text = library_text() + "\n".join(path.read_text() for path in pages)
    named = {
        *re.findall(r"minding\[(\w+)\]", text),
        *re.findall(r"\bextras? `(\w+)`", text),
        *re.findall(r"\(extra `?(\w+)`?\)", text),
        *re.findall(r'MissingExtraError\([^()]*?"[\w-]+", "(\w+)"', text),
        *(name for names in re.findall(r"'\.\[([\w,]+)\]'", text) for name in names.split(",")),
    }
    assert len(named) > 8
    assert named <= EXTRAS.keys(), sorted(named - EXTRAS.keys())


def test_every_page_and_command_that_a_message_names_exists():
    from minding.cli import cli
    from minding.cli.listing import pages

    text = library_text()
    named = set(re.findall(r"\b(?:docs/|see (?:docs/)?)([\w/]+)\.md\b", text))
    named |= {topic for topic in re.findall(r"`minding docs\s+([\w/]+)`", text) if topic != "TOPIC"}
    assert named
    known = pages()
    assert named <= {*known, *(topic.rpartition("/")[2] for topic in known)}
    named = set(re.findall(r"`minding ([a-z][a-z-]*)", text))
    assert named
    assert named <= cli.commands.keys(), sorted(named - cli.commands.keys())


def test_every_setting_that_a_message_names_exists():
    from minding.engine.config.compiler import RUN_SCHEMA
    from minding.envs import config_schema

    known = {"policy.type", *(f"env.{key}" for key in config_schema())}

    def add(schema, path):
        for key, node in schema.items():
            known.add(f"{path}{key}")
            if isinstance(node, dict):
                add(node, f"{path}{key}.")

    add(RUN_SCHEMA, "")
    for algorithm in ALGORITHMS.values():
        add(algorithm.config_schema(), "policy.")
    texts = re.findall(r"\"[^\"\n]*\"", library_text())
    named = {key for text in texts for key in re.findall(r"\b((?:env|run|lanes|policy)\.[a-z_]+(?:\.[a-z_]+)?)=", text)}
    named = {".".join(key.split(".")[:2]) if key.startswith("env.env_kwargs") else key for key in named}
    assert len(named) > 20
    assert named <= known, sorted(named - known)


def test_no_text_installs_minding_from_where_it_is_not():
    """It is not on any index yet: it is installed from a clone."""
    texts = [
        path
        for folder in ("docs", "src", "engine", "envs", "policies", "middleware", "configs", "examples", "zoo")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".ipynb")
    ]
    found = [
        path for path in {*texts, *ROOT.glob("*.md")} if re.search(r"pip install (-U )?['\"]?minding", path.read_text())
    ]
    assert (found, len(texts) > 500) == ([], True)
