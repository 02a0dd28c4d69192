"""Updates past the point at which moments become denormal are the same with and without a resume among them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("long_updates.py")
# What these numbers go through is the same for all algorithms: the optimizer, the update and the loader of states.
# SAC has several groups of an optimizer, and targets that follow slowly.
# IMPALA has one group, and rows in the order of time.
CASES = [("two dispatch threads", "sac"), ("two kernel threads", "impala")]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "algorithm"), CASES)
def test_a_thousand_updates_are_the_same_with_a_resume(setting, algorithm, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(entry for entry in sys.path if entry))
    command = [sys.executable, str(SCRIPT), setting, algorithm]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    # No denormal number when the run was cut, no difference at the end.
    assert result.stdout == f"{algorithm} 0\n"
