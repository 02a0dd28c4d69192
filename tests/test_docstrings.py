"""The first line of a public docstring names its subject; it does not describe it by a clause."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("configs", "engine", "envs", "middleware", "policies", "src/minding")
CLAUSE = re.compile(r"(What|How|That of|Those of) ")


def first_lines(source):
    """Name and first line of the docstrings of a module, without those of private names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            text = ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield name, text.partition("\n")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_names_its_subject(folder):
    paths = sorted(path for path in (ROOT / folder).rglob("*.py") if path.is_file())
    assert paths
    clauses = [
        f"{path.relative_to(ROOT)}: {name}: {line}"
        for path in paths
        for name, line in first_lines(path.read_text(encoding="utf-8"))
        if CLAUSE.match(line)
    ]
    assert clauses == []


def test_a_clause_is_found():
    source = '"""What travels."""\n\n\nclass A:\n    """A thing."""\n\n    def b(self):\n        """How it goes."""\n'
    assert [name for name, line in first_lines(source) if CLAUSE.match(line)] == ["module", "b"]
