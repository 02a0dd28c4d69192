"""Evaluations beside training: of which weights, when, and what is left at the end."""

import os
import signal
import time

import pytest
from lane_toys import ToyEvaluator, ToyPolicy, run, toy_explorer

from minding.engine import Task

THREADS = {"transport": "threads"}


def evaluations(outcome):
    """(iteration it came in, gradient steps it measured, value, its number)"""
    rows = [row for row in outcome.record.rows if row["eval_value"] is not None]
    return [(row["total_step"], row["last_eval_iter"], row["eval_value"], row["eval_output"][0].env_id) for row in rows]


class Watch:
    """Keeps the weights that were measured, an entry an iteration."""

    def __init__(self):
        self.params = []

    def __call__(self, task, ctx):
        self.params.append(ctx.eval_params)


def test_without_staleness_every_result_is_waited_for():
    watch = Watch()
    sync, lanes = run(9, eval_freq=4), run(9, {**THREADS, "max_staleness": 0}, eval_freq=4, also=[watch])
    assert lanes.rows == sync.rows
    assert [row[:2] + row[3:] for row in evaluations(lanes)] == [(2, 4, 0), (4, 8, 1), (6, 12, 2), (8, 16, 3)]
    biases = lanes.record.column("bias")
    for step, train_iter, value, _ in evaluations(lanes):
        assert value == biases[train_iter // 2 - 1]
        # They are the weights as they stood before the iteration learned.
        assert float(watch.params[step]["bias"]) == value
        (episode,) = lanes.record.rows[step]["eval_output"]
        assert watch.params[step]["weight"].tolist() == list(episode.info.values())
    assert [step for step, params in enumerate(watch.params) if params is not None] == [2, 4, 6, 8]


class Held:
    """Holds the first evaluation until training has come to an iteration."""

    def __init__(self, folder, until):
        self.file, self._until = folder / "open", until

    def __call__(self, evaluator, count):
        while count == 0 and not self.file.exists():
            time.sleep(0.001)

    def watch(self, task, ctx):
        if ctx.total_step == self._until:
            self.file.touch()


def test_training_continues_until_the_next_evaluation_is_due(tmp_path):
    held, watch = Held(tmp_path, until=5), Watch()
    outcome = run(9, {**THREADS, "max_staleness": 1}, eval_freq=8, eval_event=held, also=[watch, held.watch])
    # Due at 8 gradient steps, before the fifth iteration, and again at 16, before the ninth.
    ((step, train_iter, value, number),) = evaluations(outcome)
    assert (step, train_iter, number) == (8, 8, 0)
    assert value == outcome.record.column("bias")[3]
    assert (float(watch.params[-1]["bias"]), watch.params[:-1]) == (value, [None] * 8)


@pytest.mark.slow
def test_an_evaluator_that_dies_early_is_restarted_at_once(tmp_path, caplog):
    held = Held(tmp_path, until=-1)
    restarts = []

    def kill(task, ctx):
        if ctx.total_step == 2:
            held.file.touch()
            os.kill(task.lanes.worker_pids[-1], signal.SIGKILL)
            os.waitid(os.P_PID, task.lanes.worker_pids[-1], os.WEXITED | os.WNOWAIT)
        restarts.append(task.lanes.restarts)

    lanes = {"max_staleness": 1}
    killed = run(8, lanes, eval_freq=4, eval_event=held, also=[kill])
    assert restarts[2:5] == [0, 1, 1]
    assert killed.rows == run(8, lanes, eval_freq=4).rows


def test_an_evaluation_under_way_at_the_end_is_waited_for():
    seen = []

    class Finish:
        def __call__(self, ctx): ...

        def finish(self, ctx):
            seen.append((ctx.total_step, ctx.eval_value, ctx.last_eval_iter, float(ctx.eval_params["bias"])))

    policy, task, lanes = ToyPolicy(), Task(), {**THREADS, "max_staleness": 1}
    # After the learner: due in the last iteration.
    last = [task.serial(ToyEvaluator(policy.mode, 6)), Finish()]
    found = run(3, lanes, policy=policy, task=task, end=last)
    assert seen == [(3, found.record.rows[-1]["bias"], 6, found.record.rows[-1]["bias"])]
    assert task.stop_reason == "max_step"


def test_several_evaluators_in_one_run_when_any_is_due():
    numbers = []

    def two(policy, task):
        return task.serial(ToyEvaluator(policy.mode, 4), ToyEvaluator(policy.mode, 6))

    def look(task, ctx):
        numbers.append((ctx.last_eval_iter, len(task.lanes.worker_pids)))

    run(5, {"max_staleness": 0}, evaluator=two, also=[look])
    assert numbers == [(-1, 1), (-1, 1), (4, 2), (4, 2), (8, 2)]


@pytest.mark.parametrize(
    ("behind", "counted", "guarantee"), [(True, 6, "mid-iteration"), (False, 4, "exact")], ids=["behind", "before"]
)
def test_an_aborted_iteration_that_learned_is_no_exact_place(behind, counted, guarantee, tmp_path):
    held, policy, task, found = Held(tmp_path, until=-1), ToyPolicy(), Task(), []

    def ask(ctx):
        if ctx.total_step == 2:
            task.interrupt("SIGTERM")

    def note(ctx):
        found.append((task.ctx.total_step, task.ctx.train_iter, task.resume_guarantee))

    ask.finish = note
    members = [ask, ToyEvaluator(policy.mode, counted, held)]
    place = {"end": members} if behind else {"before": [*members, toy_explorer()]}
    run(5, {"max_staleness": 0}, policy=policy, task=task, **place)
    held.file.touch()
    assert found == [(2, counted, guarantee)]
