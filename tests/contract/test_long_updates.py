"""Updates past the point at which moments become denormal are the same with and without a resume among them."""

import subprocess
import sys
from pathlib import Path

import pytest

from minding.policies import ALGORITHMS

SCRIPT = Path(__file__).with_name("long_updates.py")
ALL = tuple(ALGORITHMS)
CASES = [
    ("one dispatch thread", ("sac",)),
    *(
        pytest.param(setting, algorithms, marks=pytest.mark.slow)
        for setting, algorithms in (
            ("one dispatch thread", tuple(name for name in ALL if name != "sac")),
            ("two dispatch threads", ALL),
            ("two kernel threads", ALL),
            ("no kernels", ALL),
        )
    ),
]


@pytest.mark.parametrize(("setting", "algorithms"), CASES)
def test_over_a_thousand_updates_are_the_same_with_a_resume_and_without(setting, algorithms, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(entry for entry in sys.path if entry))
    command = [sys.executable, str(SCRIPT), setting, *algorithms]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    # No denormal number when the run was cut, no difference at the end.
    assert result.stdout.splitlines() == [f"{name} 0" for name in algorithms]
