"""What `import minding.engine` loads, and how long it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from fakes import refuses

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


def test_importing_the_engine_loads_neither_mindspore_nor_gymnasium_and_takes_at_most_0_3_seconds():
    # Processor time where the machine is busy with something else, wall time where NumPy starts threads; best of a few.
    for _ in range(5):
        found = imported()
        assert not {"mindspore", "gymnasium", "torch", "matplotlib"} & set(found["modules"])
        if found["seconds"] <= 0.3:
            return
    raise AssertionError(found["seconds"])


def test_every_exported_name_exists_and_no_other():
    assert all(getattr(minding.engine, name) is not None for name in minding.engine.__all__)
    assert type(minding.engine.task) is minding.engine.Task
    refuses(AttributeError, ("'nothing'", lambda: minding.engine.nothing))
