"""Docstrings and messages: the first line names its subject, and no sentence has a habit of the first drafts."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("configs", "engine", "envs", "middleware", "policies", "src/minding")
CLAUSE = re.compile(r"(What|How|That of|Those of) ")
# Assembled, so that this file does not hold them.
BRITISH = "|".join(
    (
        "[Bb]ehavi" + "our",
        "[Cc]ol" + "our",
        "[Ff]av" + "our",
        "[Nn]eighb" + "our",
        r"[a-z]{3}(?:al|im|ar)" + r"is(?:e[ds]?|ing)\b",
    )
)
# Habits of the first drafts in docstrings and messages, and what is written instead.
HABITS = {
    r"\b(go|goes|going|gone) on\b": "continue",
    r"\bto the bit\b": "bit by bit",
    r"\banew\b": "again, or say what starts",
    r"\b[Ss]o many\b": "that many, or a number",
    r"\bin turns\b": "alternately, synchronously",
    r"\bbroken off\b": "aborted",
    r"(?<!left )(?<!leave )(?<!leaves )\bbehind\b": "after",
    r"\b[Aa]rguments as of\b|: as of ": "as in",
    r"\bas (that|those) of\b.{0,40} (does|do|is|are)\b": "the noun itself",
    r"(?<!there )(?<!There )\b(is|are) no (?!longer\b|more\b)[a-z]": "is not a",
    r"\b(is|are) none$": "is not one",
    r"expected [^:;]*, and (got|it returned)\b": "', got' or ', but it returned'",
    r"\bis no longer there\b": "is no longer stored",
    r"\bholds? no (figures|status) of a run\b": "is not the summary of a run",
    r"\bwhoever (reaches|can reach)\b": "anyone who can reach",
    r"\bthat there can be\b": "that can appear",
    r"\bgames? of turns\b": "turn-based game",
    r"\brenders? no pictures\b": "cannot render images",
    r"\b(is|are) for environments of\b": "needs an environment with",
    r"\bthe initial one if\b": "or its initial value if",
    r"\bgame \{\} runs (but|after)\b": "is not over",
    r"\b[Ii]ts policy is that of\b": "It uses the policy of",
    r"\b[Kk]eys of a reward for what is new\b": "the intrinsic reward for novelty",
    BRITISH: "American spelling, as in MindSpore's own names",
}
# An argument or attribute whose description lacks its noun, as in ``seed: of the run``.
NOUNLESS = re.compile(r"^ +[*a-z_][a-z_0-9, ]*: (?:of (?:a|an|the|its|each)|for (?:a|an|the|its))\b.*", re.M)


def first_lines(source):
    """Name and first line of the docstrings of a module, without those of private names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            text = ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield name, text.partition("\n")[0]


def sources(folder):
    """The modules of a folder, by their path in the tree."""
    paths = sorted(path for path in (ROOT / folder).rglob("*.py") if path.is_file())
    assert paths
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_messages_have_no_early_habits(folder):
    found = []
    for path, source in sources(folder).items():
        found += [f"{path}: {name}: {line}" for name, line in first_lines(source) if CLAUSE.match(line)]
        found += [f"{path}:{line}: {habit}; better: {HABITS[habit]}" for line, habit in habits_in(source)]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = NOUNLESS.finditer(ast.get_docstring(node) or "")
                found += [f"{path}: an argument without a noun: {line[0].strip()}" for line in lines]
    assert found == []


def texts(source):
    """Line and text of the strings of a module that hold several words, docstrings among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, " ".join("".join(parts).split())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def habits_in(source):
    return sorted({(line, habit) for line, text in texts(source) for habit in HABITS if re.search(habit, text)})


def test_a_habit_is_found_in_docstrings_and_in_messages():
    source = (
        '"""Training goes on."""\n\nNAME = f"{len(__name__)}: it is no folder"\nMORE = "move it behind the collector"\n'
    )
    assert [line for line, _ in habits_in(source)] == [1, 3, 4]
