"""What `import minding.engine` loads, and how long it takes."""

import json

from fakes import refuses
from fresh import run_fresh

import minding.engine


def test_importing_the_engine_is_quick_and_loads_no_library():
    # Processor time where the machine is busy with something else, wall time where NumPy starts threads; best of a few.
    for _ in range(5):
        found = json.loads(run_fresh(SCRIPT)[0])
        assert not {"mindspore", "gymnasium", "torch", "matplotlib"} & set(found["modules"])
        if found["seconds"] <= 0.3:
            return
    raise AssertionError(found["seconds"])


SCRIPT = """
import json, sys, time
cpu, wall = time.process_time(), time.perf_counter()
import minding.engine
seconds = min(time.process_time() - cpu, time.perf_counter() - wall)
print(json.dumps({"seconds": seconds, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def test_every_exported_name_exists_and_no_other():
    assert all(getattr(minding.engine, name) is not None for name in minding.engine.__all__)
    assert type(minding.engine.task) is minding.engine.Task
    refuses(AttributeError, ("'nothing'", lambda: minding.engine.nothing))
