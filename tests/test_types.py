"""What type checkers see of the package, as of one that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.shared_graphs

HERE = Path(__file__).resolve().parent


@pytest.fixture
def run_mypy(request, monkeypatch):
    """Checks files as a user of the package does, with a cache that outlives the test run."""
    from mypy import api

    monkeypatch.setenv("MYPYPATH", str(HERE.parent / "src"))
    monkeypatch.delenv("MYPY_CACHE_DIR", raising=False)
    settings = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    # EasyDict has no stubs.
    settings += ["--disable-error-code=import-untyped"]
    # The folders of the package are links in src/.
    settings += ["--explicit-package-bases", "--namespace-packages", f"--python-executable={sys.executable}"]

    def run(*files):
        out, problems, _ = api.run([*settings, f"--cache-dir={request.config.cache.mkdir('mypy')}", *map(str, files)])
        assert not problems
        return out.splitlines()

    return run


def test_a_users_script_sees_no_any_and_the_types_that_it_expects(run_mypy):
    assert run_mypy(HERE / "typed_user_script.py", HERE / "typed_mistakes.py") == []


def test_the_examples_pass_a_strict_check(run_mypy):
    # Which show how little an environment and a game need, without annotations.
    untyped = ("custom_env.py", "connect_three.py")
    assert (
        run_mypy(*(file for file in sorted((HERE.parent / "examples").glob("*.py")) if file.name not in untyped)) == []
    )


def test_what_checks_the_script_finds_an_any_of_ours(run_mypy, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "# mypy: disallow-any-expr\n"
        "from minding.envs import describe_space\n"
        "def first(space: str) -> None:\n"
        "    print(describe_space(space)['n'] + 1)\n"
    )
    found = run_mypy(script)
    assert any('error: Expression has type "Any"' in line for line in found), found
    assert any('incompatible type "str"' in line for line in found), found


@pytest.mark.parametrize("part", ["outline", pytest.param("runs", marks=pytest.mark.slow)])
def test_the_script_runs(part, tmp_path, monkeypatch):
    import typed_user_script

    monkeypatch.chdir(tmp_path)
    getattr(typed_user_script, part)(tmp_path)
