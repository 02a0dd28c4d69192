"""Fixtures for the whole suite; ``fakes`` next to this file becomes importable by its presence."""

import gc
import os
import signal

import compiled_once
import fakes
import pytest

from minding.engine.process import runtime

# A shell without job control starts its background jobs with SIGINT ignored, and all that they start inherits it. Tests
# send that signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


shared = compiled_once.shared
shared.install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Gives each worker an equal share of the slow tests, and those first: what is left at the end is short.

    Workers begin with equal shares of the list, in order, and then take from the end of each other's.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        # Tests of one module stay together.
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    fast = [item for item in items if not item.get_closest_marker("slow")]
    count, items[:] = len(items), []
    for left in range(workers, 0, -1):
        share = len(slow) // left
        others = (count - len(items)) // left - share
        items += [*slow[:share], *fast[:others]]
        slow, fast = slow[share:], fast[others:]


def pytest_runtest_setup(item):
    # That of a test comes before that of its module.
    kind = next((mark.name for mark in item.iter_markers() if mark.name in ("eager", "shared_graphs")), None)
    shared.on, shared.eager = kind == "shared_graphs", kind == "eager"


def pytest_collection_finish():
    """Each compilation collects garbage: without this it would look through thousands of collected tests each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """What libraries keep of a module's tests is not looked through again, either: that took a tenth of the suite."""
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture(scope="session", autouse=True)
def prepared():
    """Graphs that tests compile themselves run as those of policies do."""
    if runtime.is_loaded():
        runtime.load()


@pytest.fixture
def counting_config(tiny_config):
    """A maker of configurations for chains over `fakes.CountingEnv` with two environments."""

    def make(algorithm="dqn", **overrides):
        return tiny_config(algorithm, fakes.space_of(3), **{"policy.collect.n_sample": 8, **overrides})

    return make


@pytest.fixture(scope="session")
def tiny_config():
    """A maker of small compiled configurations for spaces that no environment has to back.

    ``tiny_config("dqn", observation=..., action=..., **{"policy.learn.gamma": 0.9})``; hidden layers of 8.
    """
    return fakes.tiny_config


@pytest.fixture
def printed(capsys):
    """Runs a command that must succeed; returns what it prints on standard output."""
    from minding.cli import run

    def run_printed(*arguments):
        capsys.readouterr()
        assert run([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    return run_printed


@pytest.fixture
def refused(capsys):
    """Runs a command that must end as bad input does, with exit code 2; returns its one line on standard error."""
    from minding.cli import run

    def run_refused(*arguments):
        capsys.readouterr()
        assert run([*map(str, arguments)]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert error.startswith("minding: ")
        assert error.count("\n") == 1
        return error

    return run_refused
