"""What is refused, and in which words: each `refusals.txt` beside the tests has calls and the error that each raises.

A paragraph is a test. Its lines after `>>>` run with the names and fixtures of the test module in the heading above
and of `conftest.py`; a call that must fail is followed by its error. Where words change on purpose, write them anew
with ``WRITE_REFUSALS=1 python -m pytest tests/test_refusals.py`` and read the difference.
"""

import builtins
import contextlib
import doctest
import importlib
import inspect
import os
import re
import runpy
import types
from pathlib import Path

import pytest

pytestmark = pytest.mark.eager

HERE = Path(__file__).parent
VARYING = {
    r"/[^\s'\"]*pytest-\d+/(popen-gw\d+/)?[a-z_]+\d+": "TMP",
    r"/[^\s'\"]*recorded-\w+": "RECORDED",
    r"(?<=\.py:)\d+|(?<=refusals.txt:)\d+|(?<=pid )\d+|(?<=process )\d+": "*",
    r"(?<=-)[0-9a-f]{8}(?=\.)|(?<=0x)[0-9a-f]{6,}": "*",
    r"(python/\w+(-v\d+)?)-\d+\b": r"\1",
}
"""Folders, lines, processes, what files are named after, and the numbers of environments of one name: what is written
in their place."""
FIXTURE = type(pytest.fixture(lambda: None))


def paragraphs():
    """Each paragraph, as (file, heading, text); lines that stand under a heading run before each of its paragraphs."""
    for file in sorted(HERE.rglob("refusals.txt")):
        heading = None
        for text in file.read_text(encoding="utf-8").strip("\n").split("\n\n"):
            if text.startswith("["):
                heading = text
            elif ">>>" in text:
                module, title = heading.split("]")[0][1:], text.split("\n", 1)[0].removeprefix("# ")
                yield pytest.param(file, heading, text, id=f"{module}: {title}")


def scope_of(file, module, monkeypatch):
    """The names of a test module and of the `conftest.py` of its folders, which fixtures are among."""
    folders = [each for each in file.parents if each.is_relative_to(HERE) and each != HERE]
    monkeypatch.syspath_prepend(file.parent)
    conftests = [runpy.run_path(each / "conftest.py") for each in folders if (each / "conftest.py").exists()]
    return {name: value for each in [*conftests, vars(importlib.import_module(module))] for name, value in each.items()}


def fixture(name, names, request):
    """The value of a fixture, which pytest itself knows in its own module and folder only."""
    if not isinstance(names.get(name), FIXTURE):
        return request.getfixturevalue(name)
    make = inspect.unwrap(names[name])
    value = make(*(fixture(each, names, request) for each in inspect.signature(make).parameters))
    if inspect.isgenerator(value):
        request.addfinalizer(lambda steps=value: next(steps, None))
        value = next(value)
    return value


def names_in(code):
    """All names that compiled code reads, also in functions of its own."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from names_in(each)


def lasting(line):
    """A line of output without what differs between machines and runs."""
    line = line.replace(f"{HERE.parent}/", "")
    for pattern, instead in VARYING.items():
        line = re.sub(pattern, instead, line)
    return line.rstrip()


def is_plain(value):
    """Whether a value is of numbers and strings only."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return isinstance(value, (bool, int, float, str))


def output(source, names):
    """What an interactive session prints: a plain value or an error, with its notes."""
    try:
        try:
            value = eval(compile(source, "refusals.txt", "eval"), names)  # noqa: S307
        except SyntaxError:
            exec(compile(source, "refusals.txt", "exec"), names)  # noqa: S102
            return []
        return [repr(value)] if is_plain(value) else []
    except Exception as error:
        lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
        # What another process says of its own stack changes with every line of code.
        text = "\n".join(line.split("\nTraceback (")[0] for line in lines)
        return text.replace("\n\n", "\n<BLANKLINE>\n").rstrip("\n").split("\n")


@pytest.mark.parametrize(("file", "heading", "text"), [*paragraphs()])
def test_it_is_refused_in_these_words(file, heading, text, request, tmp_path, monkeypatch):
    names = scope_of(file, heading.split("]")[0][1:], monkeypatch)
    for part in (heading, text):
        found = [part.split("\n", 1)[0]] if part.startswith(("#", "[")) else []
        for example in doctest.DocTestParser().get_examples(part + "\n"):
            source = example.source.rstrip("\n")
            for name in names_in(compile(source, "refusals.txt", "exec")):
                if isinstance(names.get(name), FIXTURE) or not (name in names or hasattr(builtins, name)):
                    with contextlib.suppress(pytest.FixtureLookupError):
                        names[name] = fixture(name, names, request)
            found += [f">>> {source}".replace("\n", "\n... ")]
            found += map(lasting, [line.replace(str(tmp_path), "TMP") for line in output(source, names)])
    found = "\n".join(found)
    if os.environ.get("WRITE_REFUSALS"):
        file.write_text(file.read_text(encoding="utf-8").replace(text, found), encoding="utf-8")
    else:
        assert found == text
