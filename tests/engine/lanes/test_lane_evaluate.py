"""Evaluations beside training: of which weights, when, and what is left at the end."""

import time

import pytest
from lane_toys import Record, ToyCollector, ToyContext, ToyEnv, ToyEvaluator, ToyLearner, ToyPolicy, run, toy_explorer

from minding.engine import Task


def evaluations(outcome):
    """(iteration it came in, gradient steps it measured, value, its number)"""
    rows = [row for row in outcome.record.rows if row["eval_value"] is not None]
    return [(row["total_step"], row["last_eval_iter"], row["eval_value"], row["eval_output"]["number"]) for row in rows]


class Watch:
    """Keeps the weights that were measured, an entry an iteration."""

    def __init__(self):
        self.params = []

    def __call__(self, task, ctx):
        self.params.append(ctx.eval_params)


def test_without_staleness_every_result_is_waited_for():
    watch = Watch()
    sync, lanes = run(9, eval_freq=4), run(9, {"max_staleness": 0}, eval_freq=4, also=[watch])
    assert lanes.rows == sync.rows
    assert [row[:2] + row[3:] for row in evaluations(lanes)] == [(2, 4, 0), (4, 8, 1), (6, 12, 2), (8, 16, 3)]
    biases = lanes.record.column("bias")
    for step, train_iter, value, _ in evaluations(lanes):
        assert value == biases[train_iter // 2 - 1]
        # They are the weights as they stood before the iteration learned.
        assert float(watch.params[step]["bias"]) == value
        assert watch.params[step]["weight"].tolist() == lanes.record.rows[step]["eval_output"]["weight"].tolist()
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
        if ctx.eval_value is not None:
            task.stop()


def test_training_goes_on_meanwhile_and_the_result_tells_which_policy_it_measured(tmp_path):
    held, watch = Held(tmp_path, until=8), Watch()
    outcome = run(100_000, {"max_staleness": 1}, eval_freq=4, eval_event=held, also=[watch, held.watch])
    ((step, train_iter, value, number),) = evaluations(outcome)
    # Due at 4 gradient steps, before the third iteration.
    assert (train_iter, number) == (4, 0)
    assert step > 8
    assert value == outcome.record.column("bias")[1]
    assert (float(watch.params[-1]["bias"]), watch.params[:-1]) == (value, [None] * step)
    assert outcome.task.stop_reason == "finish"


def test_an_evaluation_under_way_at_the_end_is_waited_for():
    seen = []

    class Finish:
        def __call__(self, ctx): ...

        def finish(self, ctx):
            seen.append((ctx.total_step, ctx.eval_value, ctx.last_eval_iter, float(ctx.eval_params["bias"])))

    policy, task = ToyPolicy(), Task()
    with task.start(True, ToyContext(), lanes={"max_staleness": 1}):
        task.use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv())).use(ToyLearner(policy))
        record = Record(policy)
        # Behind the learner: due in the last iteration.
        task.use(task.serial(ToyEvaluator(policy.mode, 6))).use(record).use(Finish()).run(max_step=3)
    assert seen == [(3, record.rows[-1]["bias"], 6, record.rows[-1]["bias"])]
    assert task.stop_reason == "max_step"


def test_several_evaluators_in_one_composite_run_where_any_of_them_is_due():
    policy, task = ToyPolicy(), Task()
    numbers = []
    with task.start(True, ToyContext(), lanes={"max_staleness": 0}):
        pair = task.serial(ToyEvaluator(policy.mode, 4), ToyEvaluator(policy.mode, 6))
        task.use(pair).use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv()))
        task.use(ToyLearner(policy)).use(lambda ctx: numbers.append(ctx.last_eval_iter)).run(max_step=5)
        assert len(task.lanes.worker_pids) == 2
    assert numbers == [-1, -1, 4, 4, 8]


@pytest.mark.parametrize(
    ("behind", "counted", "guarantee"), [(True, 6, "mid-iteration"), (False, 4, "exact")], ids=["behind", "before"]
)
def test_an_iteration_that_is_given_up_after_it_learned_is_no_exact_place_to_resume(
    behind, counted, guarantee, tmp_path
):
    held, policy, task = Held(tmp_path, until=-1), ToyPolicy(), Task()

    def ask(ctx):
        if ctx.total_step == 2:
            task.interrupt("SIGTERM")

    found = []
    with task.start(True, ToyContext(), lanes={"max_staleness": 0}):
        evaluator = ToyEvaluator(policy.mode, counted, held)
        if not behind:
            task.use(ask).use(evaluator)
        task.use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv())).use(ToyLearner(policy))
        if behind:
            task.use(ask).use(evaluator)
        task.on("finish", lambda: found.append((task.ctx.total_step, task.ctx.train_iter, task.resume_guarantee)))
        task.run(max_step=5)
        held.file.touch()
    assert found == [(2, counted, guarantee)]


def test_a_signal_while_the_last_evaluation_is_awaited_gives_it_up(tmp_path, monkeypatch):
    held, hooks = Held(tmp_path, until=-1), []
    policy, task = ToyPolicy(), Task()
    with task.start(True, ToyContext(), lanes={"max_staleness": 1}):
        task.use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv())).use(ToyLearner(policy))
        task.use(ToyEvaluator(policy.mode, 6, held))
        task.on("finish", lambda: hooks.append(task.ctx.eval_value))
        task.run(max_step=1)
        settle = task.lanes.settle

        def signalled(ctx):
            task.interrupt("SIGTERM")
            settle(ctx)

        monkeypatch.setattr(task.lanes, "settle", signalled)
        task.run(max_step=3)
        held.file.touch()
    assert hooks == [None, None]
    assert (task.stop_reason, task.interrupted_by, task.ctx.last_eval_iter) == ("max_step", "SIGTERM", -1)
