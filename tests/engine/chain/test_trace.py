"""What ran when: spans by lane, and the file that a browser shows."""

import itertools
import json
import time

from minding.engine import Task
from minding.engine.chain.trace import Span, Trace


def test_the_file_has_a_row_per_lane_and_times_from_the_start(tmp_path):
    trace = Trace()
    trace.add("main", [Span("learn", 100.5, 100.75)])
    trace.add("collector", [Span("collect", 100.25, 100.5), Span("explore", 100.5, 100.500001)])
    trace.write(tmp_path / "trace.json")
    content = json.loads((tmp_path / "trace.json").read_text())
    assert content["displayTimeUnit"] == "ms"
    assert content["traceEvents"] == [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "main"}},
        {"ph": "X", "name": "learn", "pid": 0, "tid": 0, "ts": 250000.0, "dur": 250000.0},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "collector"}},
        {"ph": "X", "name": "collect", "pid": 0, "tid": 1, "ts": 0.0, "dur": 250000.0},
        {"ph": "X", "name": "explore", "pid": 0, "tid": 1, "ts": 250000.0, "dur": 1.0},
    ]


def test_a_remote_lane_states_the_precision_of_its_times(tmp_path):
    trace = Trace()
    for error in (0.0002, 0.00045, 0.0003):
        trace.add("collector", [Span("collect", 1.0, 2.0)], error)
    trace.write(tmp_path / "trace.json")
    name = json.loads((tmp_path / "trace.json").read_text())["traceEvents"][0]["args"]["name"]
    assert name == "collector (another clock, ± 0.45 ms)"
    Trace().write(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []
    trace = Trace(limit=3)
    for k in range(3):
        trace.add("main", [Span(f"{k}", k, k + 1)] * 2)
    assert [span.name for span in trace.lanes["main"]] == ["0", "0", "1"]


def test_a_synchronous_run_is_one_row_in_the_order_of_the_chain(tmp_path):
    before = time.monotonic()
    with Task().start(trace=True) as task:
        task.use(lambda ctx: None).use(task.serial(lambda ctx: None)).run(max_step=2)
        task.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"][1:]
    assert [event["name"] for event in events] == ["<lambda>", "serial"] * 2
    for earlier, later in itertools.pairwise(events):
        assert earlier["ts"] + earlier["dur"] <= later["ts"] + 0.2
    assert events[-1]["ts"] < 1e6 * (time.monotonic() - before)
