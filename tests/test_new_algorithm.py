"""Adding an algorithm touches five files: everything else finds it by its entry and the names of its files."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWN = {
    "policies/dqn.py": "policies/twin.py",
    "configs/cartpole_dqn.py": "configs/cartpole_twin.py",
    "tests/policies/test_dqn.py": "tests/policies/test_twin.py",
    "docs/algorithms/dqn.md": "docs/algorithms/twin.md",
}
"""What another algorithm's files are called here; the fifth file is the module of settings of its family."""
PLAN = "from proofs import run; print(*run.plan(run.parse_arguments(['--only', 'cartpole_twin', '--seeds', '1'])))"
TABLE = "import minding.policies as p; print(p.get_policy_class('twin').__name__, p.ALGORITHMS['twin'].chain)"
LISTS = "from minding.cli import run; [(print('listed:'), run(['list', each])) for each in ('presets', 'algorithms')]"
COLLECTED = [
    "tests/policies/test_contract.py",
    "tests/contract/test_resume.py",
    "tests/contract/test_kill.py",
    "tests/configs/test_keys.py",
    "tests/configs/test_presets.py",
    "tests/policies/test_learning.py",
]


def copy(folder):
    """The tree as it is checked in, with the links to its folders."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def add(tree, own):
    """Adds an algorithm: files of its own, and its entry among those of its family."""
    for model, name in own:
        (tree / name).write_text((tree / model).read_text().replace("dqn", "twin").replace("DQN", "Twin"))
    family = tree / "policies/settings/q_learning.py"
    entry = 'Algorithm("twin", "Twin", TransitionSettings, DISCRETE, "off_policy"),'
    family.write_text(family.read_text().replace("ALGORITHMS = (", f"ALGORITHMS = (\n    {entry}"))


def run(tree, *command):
    env = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(tree / "src"), "HOME": str(tree)}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_an_algorithm_of_five_files_is_found_by_everything(tmp_path):
    tree = copy(tmp_path)
    pages = {page: page.read_text() for page in (tree / "docs").rglob("*.md")}
    add(tree, OWN.items())
    code, out = run(tree, sys.executable, "-c", f"{TABLE}; {PLAN}; {LISTS}")
    # MindSpore says things of its own before it, and MuJoCo warns after it.
    assert (code, {"Twin off_policy", "learning cartpole_twin seed 0"} - {*out.splitlines()}) == (0, set()), out
    assert ["twin" in text for text in out.split("listed:")[1:]] == [True, True]

    # Nothing but the generated tables is written: those of its own page, and its row among all algorithms.
    page = tree / "docs/algorithms/twin.md"
    page.write_text(page.read_text().replace("`double`", "nothing"))
    assert run(tree, sys.executable, "docs/generate.py") == (0, "")
    assert "`double`" in page.read_text()
    assert "cartpole_twin" in page.read_text()
    overview = tree / "docs/algorithms/README.md"
    assert "(twin.md)" in overview.read_text()
    # Its search space is generated as well, in both languages.
    others = pages.keys() - {overview, *(tree / "docs").rglob("howto/hyperparameter_search.md")}
    assert {each: each.read_text() for each in others} == {each: pages[each] for each in others}

    _, out = run(tree, sys.executable, "-m", "pytest", "--collect-only", "-q", *COLLECTED)
    found = {line.partition("::")[0] for line in out.splitlines() if "twin" in line.lower()}
    assert found == set(COLLECTED), out[-2000:]


@pytest.mark.slow
def test_the_import_contracts_hold_a_new_algorithm_too(tmp_path):
    importlib.metadata.version("import-linter")
    tree = copy(tmp_path)
    add(tree, list(OWN.items())[:1])
    lint = str(Path(sys.executable).with_name("lint-imports"))
    assert run(tree, lint, "--no-cache")[0] == 0
    with open(tree / "policies/twin.py", "a") as file:
        file.write("\nfrom minding.policies.dqn import DQN\n")
    code, out = run(tree, lint, "--no-cache")
    assert code == 1
    assert "minding.policies.twin -> minding.policies.dqn" in out
