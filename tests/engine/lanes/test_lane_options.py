"""Settings of an asynchronous run, and the processor cores of its lanes."""

import os

import pytest
from fakes import refuses

from minding.engine import ConfigError, Task, declare
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.lanes import LaneOptions
from minding.engine.lanes.options import plan_cores


class Learner:
    """Says how old its data may be."""

    declaration = declare(role="learn")(lambda: None).declaration

    def __init__(self, staleness):
        self.staleness = staleness

    def __call__(self, ctx): ...


def resolved(*staleness, cores=8, **given):
    made = LaneOptions(**given).resolve(chain_nodes([Learner(value) for value in staleness]), cores - 2)
    return made.max_staleness, made.collectors


def test_open_settings_follow_from_learners_cores_and_shards():
    assert resolved() == (1, 1)
    assert resolved(4, 2, None) == (2, 2)
    assert resolved(4, cores=4) == (4, 2)
    assert resolved(4, cores=1) == (4, 1)
    assert resolved(0) == (0, 1)
    assert resolved(4, max_staleness=0) == (0, 1)
    assert resolved(4, collectors=5, cores=1) == (4, 5)
    assert resolved(1, cores=2, shards=4) == (1, 4)
    # As many rows of collectors as there are cores for, and as staleness keeps busy.
    assert resolved(4, cores=10, shards=2) == (4, 8)
    assert resolved(4, cores=12, shards=4) == (4, 8)
    assert resolved(1, collectors=8, shards=4) == (1, 8)
    refuses(
        ConfigError,
        ("collectors=3", lambda: resolved(1, collectors=3)),
        ("lanes.shards=4, at most 8", lambda: resolved(1, collectors=12, shards=4)),
    )


def cores_of(pin, count, cores):
    plan = plan_cores(LaneOptions(collectors=count, pin=pin), range(cores))
    return sorted(plan.learner), [sorted(own) for own in plan.collectors], sorted(plan.evaluator)


def test_each_lane_gets_its_own_cores_or_shares_them():
    assert cores_of("auto", 1, 2) == ([], [[]], [])
    assert cores_of("auto", 1, 3) == ([0, 1], [[2]], [2])
    assert cores_of("auto", 1, 4) == ([0, 1], [[3]], [2])
    assert cores_of("auto", 3, 8) == ([0, 1, 2, 3], [[5], [6], [7]], [4])
    assert cores_of("auto", 4, 4) == ([], [[]] * 4, [])
    assert cores_of("off", 3, 8) == ([], [[]] * 3, [])
    assert cores_of("on", 1, 2) == ([0], [[1]], [1])
    assert cores_of("on", 3, 2) == ([0], [[1]] * 3, [1])
    assert cores_of("on", 2, 1) == ([], [[]] * 2, [])


def test_a_pinned_run_gives_the_main_process_its_cores_back():
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core")
    seen = []
    with Task().start(async_mode=True, lanes={"pin": "on"}) as task:
        task.use(lambda ctx: seen.append(os.sched_getaffinity(0))).run(max_step=1)
    assert seen[0] < before
    assert os.sched_getaffinity(0) == before
