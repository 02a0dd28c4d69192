"""What members of a lane may do besides writing the fields that they declare, and what is refused."""

import os

import pytest
from lane_toys import ToyCollector, ToyContext, ToyEnv, ToyEvaluator, ToyLearner, ToyPolicy, run, toy_explorer

from minding.engine import Task, declare
from minding.engine import task as global_task

EXACT = {"max_staleness": 0, "transport": "threads"}
AHEAD = {"max_staleness": 2, "collectors": 2, "transport": "threads"}


def play(lanes, *before, steps=6, **options):
    """Runs middleware before the toys' collector; returns record and task."""
    outcome = run(steps, lanes, before=before, **options)
    return outcome.record, outcome.task


def rows(record):
    """What does not say where it was collected."""
    kept = [{**row, "policy_lag": None, "rollout": None} for row in record.rows]
    return kept, [[row["rollout"][name].tolist() for name in ("obs", "action")] for row in record.rows]


@declare(role="collect", reads=("env_step",), writes=("collect_kwargs",))
def herald(end):
    """Tells of each rollout, and ends the run in one of them."""

    def tell(ctx):
        global_task.emit("seen", ctx.env_step, part=1)
        ctx.collect_kwargs = {"eps": 0.5}
        assert global_task.ctx is ctx or not global_task.running
        yield
        global_task.emit("seen", [ctx.trajectories["count"]])
        if ctx.trajectories["count"] == end:
            assert not global_task.finish
            global_task.stop() if end % 2 else setattr(global_task, "finish", True)

    return tell


@pytest.mark.parametrize("end", [2, 3], ids=["finish", "stop"])
def test_a_collectors_events_take_effect_with_its_rollout(end):
    log = []
    record, task = play(EXACT, herald(end), log=log)
    assert log == [
        entry
        for step, counted in enumerate((0, 4, 8, 11)[: end + 1])
        for entry in ((step, (counted,), {"part": 1}), (step, ([step],), {}))
    ]
    assert (task.stop_reason, len(record.rows)) == ("finish", end + 1)


def test_an_end_requested_under_way_waits_for_its_iteration():
    log = []
    record, task = play({**EXACT, "max_staleness": 2}, herald(3), log=log)
    assert (task.stop_reason, len(record.rows)) == ("finish", 4)
    assert [step for step, _, _ in log] == [0, 0, 1, 1, 2, 2, 3, 3]


class Finisher(ToyEvaluator):
    """Ends the run with its second evaluation."""

    def __init__(self, mode, task):
        super().__init__(mode, 4)
        self._task = task

    def __call__(self, ctx):
        super().__call__(ctx)
        if ctx.eval_value is not None and self._count == 2:
            self._task.finish = True
            self._task.emit("seen", "evaluator")


def test_an_evaluator_ends_the_run_with_its_result():
    log, lanes = [], {**EXACT, "max_staleness": 1}
    evaluator = lambda policy, task: Finisher(policy.mode, task)  # noqa: E731
    record, task = play(lanes, toy_explorer(), steps=20, log=log, evaluator=evaluator)
    assert task.stop_reason == "finish"
    assert log == [(6, ("evaluator",), {})]
    assert [row["total_step"] for row in record.rows][-1] == 6


# Undeclared functions with a role


def explore(ctx):
    """Declares nothing."""
    ctx.collect_kwargs["eps"] = 1.0 / (1 + ctx.env_step)
    ctx.note = [os.getpid() if ctx.total_step < 0 else "fresh", ctx.collect_kwargs["eps"]]
    ctx.env_episode += 2


def test_a_role_moves_a_plain_function_into_the_lane():
    sync, lanes = play(None, explore)[0], play(EXACT, explore, role="collect")[0]
    assert rows(lanes) == rows(sync)
    assert [ctx.note for ctx in lanes.contexts] == [ctx.note for ctx in sync.contexts]
    assert [ctx.collect_kwargs for ctx in lanes.contexts] == [ctx.collect_kwargs for ctx in sync.contexts]
    assert [ctx.env_episode for ctx in lanes.contexts] == [2, 4, 6, 8, 10, 12]
    record, _ = play({**EXACT, "max_staleness": 2}, explore, role="collect", steps=5)
    eps = [ctx.collect_kwargs["eps"] for ctx in record.contexts]
    # Three are given out before anything is known of what an iteration counts; later ones expect the last gain.
    assert eps == [1.0, 1.0, 1.0, 1 / 13, 1 / 17]
    assert [ctx.env_episode for ctx in record.contexts] == [2, 4, 6, 8, 10]


# What would be lost


class Tally:
    def __init__(self):
        self.count = 0

    def __call__(self, ctx):
        self.count += 1

    def also(self, ctx):
        self(ctx)


class SavedTally(Tally):
    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_variables_around_a_function_may_be_read():
    settings, own = {"eps": 0.25, "of": [1]}, [0]

    def explore(ctx):
        local = 0

        def add():
            nonlocal local
            local += settings["of"][0] + own[0]

        add()
        ctx.collect_kwargs = {"eps": settings["eps"] * local}

    assert rows(play(EXACT, explore, role="collect")[0]) == rows(play(None, explore)[0])
    saved = SavedTally()
    play(EXACT, saved, role="collect")
    assert saved.count == 0


def test_a_collector_that_cannot_leave_is_reported(caplog):
    policy, task = ToyPolicy(), Task()
    with task.start(True, ToyContext(), lanes=EXACT):
        task.use(task.serial(ToyCollector(policy.mode, ToyEnv()), ToyLearner(policy))).run(max_step=1)
    assert "ToyCollector at position 0.0 collects in the main process: it is composed with" in caplog.text
