"""Asynchronous runs of toys: what comes out, in which order, and how old the weights were."""

import itertools
import json
import resource
import sys
from pathlib import Path

import lane_toys as toys
import numpy as np
import pytest
from fresh import run_fresh
from lane_toys import ToyCollector, ToyEnv, ToyLearner, ToyPolicy, run, toy_explorer

from minding.engine import ChainError, CheckpointError, ConfigError, OnlineRLContext, Task, declare
from minding.engine.lanes import processes

THREADS = {"transport": "threads"}


def lags(outcome):
    assert all(lag["min"] == lag["mean"] == lag["max"] for lag in outcome.record.column("policy_lag"))
    return [lag["max"] for lag in outcome.record.column("policy_lag")]


def test_weights_are_at_most_one_counted_iteration_old():
    found = run(10, {**THREADS, "max_staleness": 1}, event=toys.random_delay)
    assert lags(found) == [0] + [1] * 9
    # Rollout n was collected with the weights after iteration n - 2.
    biases = [0.0, *found.record.column("bias")]
    assert [float(bias) for bias in found.record.column("rollout", "bias")] == [0.0, *biases[:9]]
    assert found.record.column("rollout", "count") == list(range(10))
    # Rows that are no transitions do not count.
    assert found.record.column("env_step") == [4, 8, 11, 15, 19, 22, 26, 30, 33, 37]
    assert found.record.column("train_iter") == list(range(2, 22, 2))
    assert len(set(map(id, found.record.contexts))) == 10
    outcome = run(9, {**THREADS, "max_staleness": 2}, learn_freq=3)
    # Learned in iterations 0, 3 and 6; the rollouts of two later iterations were under way by then.
    assert lags(outcome) == [0, 1, 1, 0, 1, 1, 0, 1, 1]


def test_a_chain_that_was_run_takes_no_more_middleware(monkeypatch, caplog):
    monkeypatch.setattr(toys.ToyCollector, "finish", lambda self, ctx: None, raising=False)
    run(1, {**THREADS, "max_staleness": 0})
    assert "ToyCollector runs in the collect lane, where finish(ctx) is not called" in caplog.text
    assert "resumed(ctx)" not in caplog.text
    with Task().start(True, toys.ToyContext(), lanes={"max_staleness": 0}) as task:
        task.use(lambda ctx: None).run(max_step=1)
        with pytest.raises(ChainError, match="use: the lanes of this asynchronous run already exist"):
            task.use(lambda ctx: None)


class Halves:
    """Members and wrappers whose second halves leave marks."""

    @staticmethod
    @declare(role="collect", reads=("env_step",), writes=("collect_kwargs", "note"))
    def outer():
        def explore(ctx):
            ctx.collect_kwargs, ctx.note = {}, ["before"]
            yield
            ctx.note = [*ctx.note, f"after {ctx.trajectories['count']}"]

        return explore

    @staticmethod
    @declare(role="collect", reads=("trajectories", "note"), writes=("note",))
    def inner():
        def extend(ctx):
            ctx.note = [*ctx.note, "inner"]
            yield
            ctx.note = [*ctx.note, "inner again"]

        return extend


def test_generators_composites_and_the_profile_work_in_lanes():
    log, policy = [], ToyPolicy()

    def around(ctx):
        log.append(("before", ctx.trajectories))
        yield
        log.append(("after", ctx.trajectories["count"], ctx.note))

    def wrapper(middleware):
        def call(ctx):
            log.append("wrapped")
            return middleware(ctx)

        return call

    with Task().start(True, toys.ToyContext(), lanes={**THREADS, "max_staleness": 0}, profile=True) as task:
        task.use(around)
        task.use(task.serial(Halves.outer(), task.serial(task.wrap(ToyCollector(policy.mode, ToyEnv())))))
        task.use(Halves.inner())
        task.use(ToyLearner(policy)).use_wrapper(wrapper)
        task.run(max_step=2)
        profile = task.profile()
        state = task.state_dict()
    # Around, the lane, the learner.
    assert [entry for entry in log if entry == "wrapped"] == ["wrapped"] * 6
    marks = [entry for entry in log if entry != "wrapped"]
    notes = [["before", "inner", "inner again", f"after {count}"] for count in (0, 1)]
    assert marks == [("before", None), ("after", 0, notes[0]), ("before", None), ("after", 1, notes[1])]
    assert [line.split()[0] for line in profile.splitlines()[1:4]] == ["around", "collect", "ToyLearner"]
    # Also the state of members of composites.
    assert state["chain"] == ["0:around", "1.0:outer", "1.1.0.0:ToyCollector", "2:inner", "3:ToyLearner"]
    assert state["middleware"]["1.1.0.0:ToyCollector"]["count"] == 2


SCRIPT = """
import dataclasses, enum, json, sys, weakref
sys.path[:] = {path!r}
# From now on, what is finalized at the end of the interpreter is so after multiprocessing has waited for children.
weakref.finalize(sys, lambda: None)

from minding.engine import Context, declare, task

class Speed(enum.Enum):
    FAST = 1

class OwnError(Exception):
    def __init__(self, count):
        super().__init__("count", count)
        self.count = count

    def __reduce__(self):
        return OwnError, (self.count,)

@dataclasses.dataclass
class MyContext(Context):
    var1: int = 0
    var2: list | None = None
    text: str = "none"
    speed: Speed | None = None
    trajectories: object = None

    def __post_init__(self):
        self.keep("var1", "var2", "text")

@dataclasses.dataclass
class Result:
    speed: Speed
    modules: int

@declare(role="collect", reads=("var1", "text", "speed"), writes=("trajectories", "var1", "text", "speed"))
def collect():
    def call(ctx):
        if ctx.var1 == 30:
            raise OwnError(ctx.var1)
        ctx.trajectories = Result(ctx.speed, "mindspore" in sys.modules)
        ctx.var1 += 10
        ctx.text = "step " + str(ctx.var1)
        ctx.speed = Speed.FAST
    return call

def before(ctx):
    ctx.speed = Speed.FAST

rows = []
def note(ctx):
    result = ctx.trajectories
    assert ctx.text == "step " + str(ctx.var1)
    rows.append([type(result) is Result, result.speed is Speed.FAST, result.modules, ctx.var1])

{body}
print(json.dumps(rows))
"""
IN_A_WITH_BLOCK = """
try:
    with task.start(async_mode=True, ctx=MyContext(), lanes={"max_staleness": 0}):
        task.use(before).use(collect()).use(note)
        task.run(max_step=10)
except OwnError as error:
    rows.append([type(error) is OwnError, error.count, "collect lane" in error.__notes__[1]])
"""
WITHOUT_ONE = """
task.start(async_mode=True, ctx=MyContext(), lanes={"max_staleness": 2})
task.use(before, role="collect").use(collect()).use(note)
task.run(max_step=1)
"""


@pytest.mark.parametrize(
    ("body", "rows"),
    [(IN_A_WITH_BLOCK, [*([True, True, False, k] for k in (10, 20, 30)), [True, 30, True]]),
     (WITHOUT_ONE, [[True, True, False, 10]])],
    ids=["in a with block", "without one"],
)  # fmt: skip
def test_the_users_script_crosses_and_ends_with_its_workers(body, rows):
    (told,) = run_fresh(SCRIPT.format(path=sys.path, body=body))
    assert json.loads(told) == rows


def test_another_start_ends_the_earlier_workers():
    policy, task = ToyPolicy(), Task()
    task.start(True, toys.ToyContext(), lanes={"max_staleness": 0})
    task.use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv())).use(ToyLearner(policy)).run(max_step=1)
    (pid,) = task.lanes.worker_pids
    task.start()
    assert not Path(f"/proc/{pid}").exists()


def test_weights_changed_without_counted_steps_are_sent():
    policy = ToyPolicy()
    biases = []

    def learn(ctx):
        biases.append(float(ctx.trajectories["bias"]))
        policy.weights["bias"] += 1

    with Task().start(True, OnlineRLContext(), lanes={**THREADS, "max_staleness": 0}) as task:
        task.use(own_bias_collector(policy)).use(learn).run(max_step=3)
        policy.weights["bias"][...] = 100
        task.run(max_step=4)
    assert biases == [0.0, 1.0, 2.0, 100.0]


@declare(role="collect", writes=("trajectories",))
def own_bias_collector(policy):
    mode = policy.mode

    def collect(ctx):
        ctx.trajectories = {"bias": np.array(mode.arrays["bias"])}

    return collect


def test_the_trace_has_a_row_for_each_lane(tmp_path):
    begin = toys.time.monotonic()
    outcome = run(6, {**THREADS, "max_staleness": 2, "collectors": 2}, event=toys.random_delay, eval_freq=4, trace=True)
    seconds = toys.time.monotonic() - begin
    outcome.task.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(names.values()) == ["collector 0", "collector 1", "evaluator", "main"]
    rows = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            rows[names[event["tid"]]].append(event)
            assert 0 <= event["ts"] <= event["ts"] + event["dur"] <= 1e6 * seconds
    for row in rows.values():
        for earlier, later in itertools.pairwise(row):
            assert earlier["ts"] + earlier["dur"] <= later["ts"] + 0.2
    assert [event["name"] for event in rows["collector 1"]] == ["toy_explorer", "ToyCollector"] * 3
    assert [event["name"] for event in rows["main"][:4]] == ["evaluate lane", "collect lane", "ToyLearner", "Record"]
    # What a collector was busy with while the main process waited for it.
    assert all(event["dur"] > 100 for event in rows["collector 0"][1::2])


def test_a_loaded_state_reaches_workers_before_their_first_run():
    sync = run(6)
    policy, task = ToyPolicy(), Task()
    with task.start(ctx=toys.ToyContext()):
        task.use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv())).use(ToyLearner(policy)).use(lambda ctx: None)
        task.run(max_step=3)
    again, other = ToyPolicy(), Task()
    with other.start(True, toys.ToyContext(), lanes={**THREADS, "max_staleness": 0}):
        other.use(toy_explorer()).use(ToyCollector(again.mode, ToyEnv())).use(ToyLearner(again))
        record = toys.Record(again)
        other.use(lambda ctx: record(ctx))
        other.load_state_dict(task.state_dict())
        again.load_state_dict(policy.state_dict())
        other.run(max_step=6)
        assert toys.Outcome(record, again, other, 0).rows == sync.rows[3:]
        with pytest.raises(CheckpointError, match="1:ToyCollector already runs in a lane: load"):
            other.load_state_dict(task.state_dict())


def test_the_limit_of_file_descriptors_is_computed_first(monkeypatch):
    before, during = processes.open_files(), []
    run(
        2, {"max_staleness": 1, "collectors": 2},
        also=[lambda task, ctx: during.append(processes.open_files()) if task.lanes.worker_pids else None],
    )  # fmt: skip
    assert during[-1] - before <= 2 * processes._FILES + 8
    monkeypatch.setattr(resource, "getrlimit", lambda which: (processes.open_files() + 52, 4096))
    saved = []
    with pytest.raises(
        ConfigError, match=r"2 workers need 10 file .*, of which \d+ are in use: raise .* `ulimit -n \d+`.*0 workers"
    ):
        run(2, {"max_staleness": 1, "collectors": 2}, also=[lambda task, ctx: saved.append(1)])
    assert not saved
