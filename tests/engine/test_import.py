"""What `import minding.engine` loads, and how long it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import minding.engine

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
SCRIPT = """
import json, sys, time
cpu, wall = time.process_time(), time.perf_counter()
import minding.engine
seconds = min(time.process_time() - cpu, time.perf_counter() - wall)
print(json.dumps({"seconds": seconds, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def imported():
    command = [sys.executable, "-c", SCRIPT]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=ENV).stdout)


def test_importing_the_engine_loads_neither_mindspore_nor_gymnasium():
    assert not {"mindspore", "gymnasium", "torch", "matplotlib"} & set(imported()["modules"])


def test_importing_the_engine_takes_at_most_0_3_seconds():
    # Processor time where the machine is busy with something else, wall time where NumPy starts threads; best of a few.
    assert min(imported()["seconds"] for _ in range(5)) <= 0.3


def test_every_exported_name_exists():
    for name in minding.engine.__all__:
        assert getattr(minding.engine, name) is not None


def test_the_global_task_is_an_object_and_not_the_module():
    from minding.engine import Task, task

    assert isinstance(task, Task)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'minding\.engine' has no attribute 'nothing'"):
        _ = minding.engine.nothing
