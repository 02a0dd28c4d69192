"""What type checkers see of the package, as of one that is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.eager

HERE = Path(__file__).resolve().parent
USERS = [HERE / "typed_user_script.py", HERE / "typed_mistakes.py"]
# The others show how little an environment and a game need, without annotations.
EXAMPLES = [
    file
    for file in sorted((HERE.parent / "examples").glob("*.py"))
    if file.name not in ("custom_env.py", "connect_three.py")
]
UNREAD = "gymnasium.wrappers.*,IPython.*,matplotlib.*,PIL.*,rich.*,minigrid.*,cv2.*,pygame.*"
"""Modules of which no type is in what a user sees, and which take two thirds of mypy's time."""


@pytest.fixture(scope="module")
def found(request, tmp_path_factory):
    """What mypy finds in files, one of which has mistakes, as a user of the package runs it; the cache stays."""
    faulty = tmp_path_factory.mktemp("typed") / "faulty.py"
    faulty.write_text(
        "# mypy: disallow-any-expr\n"
        "from minding.envs import describe_space\n"
        "def first(space: str) -> None:\n"
        "    print(describe_space(space)['n'] + 1)\n"
    )
    config = faulty.with_name("mypy.ini")
    config.write_text(f"[mypy]\n[mypy-{UNREAD}]\nfollow_imports = skip\n")
    settings = ["--strict", f"--config-file={config}", "--follow-imports=silent", "--no-error-summary"]
    settings += ["--hide-error-context"]
    # EasyDict has no stubs.
    settings += ["--disable-error-code=import-untyped"]
    # The folders of the package are links in src/.
    settings += ["--explicit-package-bases", "--namespace-packages"]
    settings += [f"--cache-dir={request.config.cache.mkdir('mypy')}"]
    environment = {name: value for name, value in os.environ.items() if name != "MYPY_CACHE_DIR"}
    # In a process of its own: the garbage collector would look through all that mypy leaves.
    command = [sys.executable, "-m", "mypy", *settings, *map(str, [*USERS, *EXAMPLES, faulty])]
    environment["MYPYPATH"] = str(HERE.parent / "src")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_users_script_and_the_examples_see_their_types(found):
    assert [line for line in found if "faulty.py" not in line] == []
    assert any('error: Expression has type "Any"' in line for line in found), found
    assert any('incompatible type "str"' in line for line in found), found


@pytest.mark.parametrize("part", ["outline", pytest.param("runs", marks=pytest.mark.slow)])
def test_the_script_runs(part, tmp_path, monkeypatch):
    import typed_user_script

    monkeypatch.chdir(tmp_path)
    getattr(typed_user_script, part)(tmp_path)
