"""Where a chain is divided, what crosses, and how it looks."""

import dataclasses

import pytest

import minding.middleware as library
from minding.engine import Context, OnlineRLContext, Task
from minding.engine.chain.middleware import declaration_of
from minding.engine.chain.pipeline import Serial, chain_nodes
from minding.engine.lanes.division import divide

KEPT = OnlineRLContext().kept


def stand_in(name):
    """Something with the declaration of a middleware of the library."""

    def middleware(ctx): ...

    middleware.declaration = declaration_of(getattr(library, name))
    return middleware


def user(ctx): ...


def divided(*names, kept=KEPT):
    """Divides a chain of library names and middleware."""
    return divide(chain_nodes([stand_in(name) if isinstance(name, str) else name for name in names]), kept)


def members(part):
    return [node.name for node in part.members]


OFF_POLICY = ("interaction_evaluator", "eps_greedy_handler", "StepCollector", "data_pusher", "OffPolicyLearner")
ON_POLICY = ("interaction_evaluator", "StepCollector", "gae_estimator", "multistep_trainer", "CkptSaver")


def test_the_off_policy_chain_is_divided_before_the_buffer():
    lanes = divided(*OFF_POLICY, "CkptSaver")
    assert members(lanes.collect) == ["eps_greedy_handler", "StepCollector"]
    assert lanes.collect.inputs == ("env_step", "collect_kwargs", "env_episode")
    assert lanes.collect.outputs == ("trajectories", "env_step", "env_episode")
    (evaluate,) = lanes.evaluate
    assert members(evaluate) == ["interaction_evaluator"]
    assert evaluate.inputs == ("clock", "train_iter", "last_eval_iter", "last_eval_clock")
    assert evaluate.outputs == ("eval_value", "last_eval_iter", "last_eval_value", "last_eval_clock")


def test_the_on_policy_chain_estimates_where_it_collects():
    lanes = divided(*ON_POLICY)
    assert members(lanes.collect) == ["StepCollector", "gae_estimator"]
    assert lanes.collect.inputs == ("env_step", "env_episode", "collect_kwargs")
    # The rollout itself is read by nobody else.
    assert lanes.collect.outputs == ("env_step", "env_episode", "train_data")
    lanes = divided(*ON_POLICY, "online_logger")
    assert lanes.collect.outputs == ("episode_stats", "env_step", "env_episode", "train_data")


@pytest.mark.parametrize("place", [0, 1, 6], ids=["before", "between evaluator and collectors", "behind"])
def test_undeclared_middleware_stay_in_the_main_process(place):
    names = [*OFF_POLICY, "CkptSaver"]
    names.insert(place, user)
    lanes = divided(*names)
    assert members(lanes.collect)[-1] == "StepCollector"
    written = ("collect_kwargs", "trajectories", "trajectory_end_idx", "episode_stats", "env_step", "env_episode")
    assert lanes.collect.outputs == written
    assert lanes.evaluate[0].outputs[:2] == ("eval_value", "eval_output")


def test_a_users_middleware_before_the_collector_ends_the_lane():
    lanes = divided("eps_greedy_handler", user, "StepCollector", "gae_estimator", user, "nstep_reward_enhancer")
    assert members(lanes.collect) == ["StepCollector", "gae_estimator"]
    assert lanes.collect.inputs == ("env_step", "env_episode", "collect_kwargs")
    evaluator = "interaction_evaluator"
    lanes = divided("eps_greedy_handler", evaluator, "StepCollector", evaluator, "gae_estimator")
    assert members(lanes.collect) == ["eps_greedy_handler", "StepCollector", "gae_estimator"]
    assert lanes.collect.main.position == "2"
    assert [part.main.position for part in lanes.evaluate] == ["1", "3"]


def test_a_chain_without_a_collector_has_no_collect_lane():
    lanes = divided("interaction_evaluator", user, "data_pusher", "OffPolicyLearner", "eps_greedy_handler")
    assert lanes.collect is None
    assert len(lanes.evaluate) == 1
    assert divided(user).evaluate == ()
    seen = []
    with Task().start(async_mode=True, ctx=OwnContext()) as task:
        task.use(lambda ctx: seen.append(ctx.total_step)).run(max_step=2)
        assert task.lanes.worker_pids == ()
    assert seen == [0, 1]


def test_composites_move_as_a_whole_or_not_at_all():
    collecting = Serial([stand_in("eps_greedy_handler"), Serial([stand_in("StepCollector")])])
    lanes = divided(Serial([stand_in("interaction_evaluator")]), collecting, "gae_estimator", user)
    assert members(lanes.collect) == ["serial", "gae_estimator"]
    assert [leaf.position for leaf in lanes.collect.leaves] == ["1.0", "1.1.0", "2"]
    assert [members(part) for part in lanes.evaluate] == [["serial"]]
    mixed = divided(Serial([stand_in("StepCollector"), stand_in("OffPolicyLearner")]), Serial([]))
    assert (mixed.collect, mixed.evaluate) == (None, ())


@dataclasses.dataclass
class OwnContext(Context):
    """Without most fields of the library's."""

    trajectories: list | None = None


VIEWED = {"collectors": 2, "max_staleness": 1, "pin": "off"}


def test_the_view_shows_lanes_and_what_crosses():
    task = Task().start(async_mode=True, lanes={**VIEWED, "inference": "server"})
    for name in ON_POLICY:
        task.use(stand_in(name))
    task.use(task.serial(user))
    # Without what continues on further lines.
    lines = [line for line in repr(task).splitlines() if not line.startswith(" " * 20)]
    assert lines[0] == "Task (started, 6 middleware, total_step 0)"
    assert [line.split()[:3] for line in lines[2:9]] == [
        ["evaluate", "0", "interaction_evaluator"],
        ["collect", "1", "StepCollector"],
        ["collect", "2", "gae_estimator"],
        ["main", "3", "multistep_trainer"],
        ["main", "4", "CkptSaver"],
        ["main", "5", "serial"],
        ["main", "5.0", "user"],
    ]
    assert lines[10] == (
        "collect lane: 2 processes, networks in an inference server, weights at most 1 learner iterations old"
    )
    assert lines[11] == "  main -> collect: weights, env_step, env_episode, collect_kwargs"
    assert lines[12].startswith("  collect -> main: trajectories, trajectory_end_idx, episode_stats, env_step")
    assert lines[13] == "evaluate lane: 1 process, on a snapshot of the weights"
