"""The sampler behind ``python -m benchmarks.profile``, on functions that take a known time."""

from __future__ import annotations

import inspect
import signal
import sys
import time
from pathlib import Path

import pytest

# At the end: the root's `engine` and the like must never shadow another package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import profile
from benchmarks.cases import CASES
from benchmarks.profile import PARTS, REST, Sampler
from benchmarks.window import Measurement

ROOT = Path(__file__).resolve().parents[2]


def spend(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def collect() -> None:
    spend(0.04)


def learn() -> None:
    spend(0.06)


def test_time_counts_for_the_innermost_part_and_nothing_is_lost():
    with Sampler({"collecting": (":collect",), "learning": (":learn",)}) as sampler:
        start = time.process_time()
        collect()
        learn()
        spend(0.03)
        used = time.process_time() - start
    assert set(sampler.seconds) == {"collecting", "learning", REST}
    for part, seconds in (("collecting", 0.04), ("learning", 0.06), (REST, 0.03)):
        assert sampler.seconds[part] >= seconds - 0.015
    assert sum(sampler.seconds.values()) == pytest.approx(used, abs=0.02)
    assert sampler.looks > 5
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_library_counts_for_the_part_that_calls_it():
    sampler, parts = Sampler({"sorting": (":by_key",), "others": ("/no/such/file/",)}), []

    def by_key(x: int) -> int:
        parts.append(sampler.part_of(inspect.currentframe().f_back))
        parts.append(sampler.part_of(inspect.currentframe()))
        return x

    sorted([1], key=by_key)
    assert parts == [REST, "sorting"]


def test_shares_are_of_the_whole_and_times_of_an_iteration():
    sampler = Sampler(PARTS["minding"])
    sampler.looks = 4000
    sampler.seconds.update({"environment library": 1.0, "update: compiled call": 3.0})
    lines = profile.table(CASES["dqn_cartpole"], Measurement("dqn_cartpole", "minding", 8000, 4.0, 4.0, 100.0), sampler)
    assert "| environment library | 25.0 % | 0.500 |" in lines
    assert "| update: compiled call | 75.0 % | 1.500 |" in lines
    assert lines.endswith("| total | 2,000 iterations, 4,000 looks | 2.000 |")


def test_the_files_of_our_parts_exist():
    patterns = [pattern for part in list(PARTS["minding"].values())[1:] for pattern in part]
    assert [pattern for pattern in patterns if not any(ROOT.glob(f"{pattern.strip('/')}*"))] == []
