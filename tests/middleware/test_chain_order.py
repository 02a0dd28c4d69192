"""Every pair of library middleware: in which order does one spoil, lose or miss what the other does?"""

import dataclasses
import itertools

import pytest

import minding.middleware as library
from minding.engine import OnlineRLContext, Task
from minding.engine.chain.check import order_problems
from minding.engine.chain.middleware import Declaration, declaration_of
from minding.engine.chain.pipeline import chain_nodes

DECLARED = {name: declaration_of(getattr(library, name)) for name in library.__all__}
USERS = (
    "data_pusher",
    "gae_estimator",
    "her_data_enhancer",
    "montecarlo_return_estimator",
    "sqil_data_pusher",
    "trajectory_trainer",
)
SPOILED = {
    # Rewards were learned from, or pushed, without those of the model, and rollouts without the earlier ones.
    **{name: {"reward_estimator", "rollout_queue"} for name in USERS},
    # Rewards are n-step returns.
    "nstep_reward_enhancer": {
        *USERS,
        "nstep_reward_enhancer",
        "offline_data_saver",
        "reward_estimator",
        "rollout_queue",
    }
    - {"data_pusher"},
    # Rewards of the model would be replaced, or be taken for the environment's.
    "reward_estimator": {"her_data_enhancer", "offline_data_saver", "sqil_data_pusher"},
    # Priorities would be those of other rewards, or of another function.
    "priority_calculator": {"priority_calculator", "reward_estimator"},
}
ESTIMATES = {"gae_estimator", "montecarlo_return_estimator", "offline_data_fetcher"}
LOST = {
    **{name: ESTIMATES for name in ESTIMATES},
    "StepCollector": {"StepCollector"},
    # They write the episodes that a symmetry_enhancer added to.
    **{
        name: {"EpisodeCollector", "SelfPlayCollector"}
        for name in ("EpisodeCollector", "SelfPlayCollector", "symmetry_enhancer")
    },
    "nstep_reward_enhancer": {"StepCollector"},
    "priority_calculator": {"StepCollector"},
    "reward_estimator": {"StepCollector"},
    "rollout_queue": {"StepCollector"},
}
COLLECTORS = {"EpisodeCollector", "StepCollector"}
EVALUATORS = {"arena_evaluator", "interaction_evaluator"}
TRAINERS = {"OffPolicyLearner", "multistep_trainer", "trainer", "trajectory_trainer"}
LEARNERS = {*TRAINERS, "opponent_rater", "reward_estimator"}
MISSED = {
    **{name: EVALUATORS for name in ("CkptSaver", "model_pool", "reward_timer", "termination_checker")},
    **{name: {"eps_greedy_handler", "eps_greedy_masker"} for name in COLLECTORS},
    **{name: {"rollout_queue"} for name in TRAINERS},
    "online_logger": {"SelfPlayCollector", "rollout_queue", *EVALUATORS, *COLLECTORS, *LEARNERS},
}
WORDS = {"cannot work on": SPOILED, "overwrites": LOST, "never finds it": MISSED}


class Declared:
    """A middleware of which only the declaration counts."""

    def __init__(self, declaration):
        self.declaration = declaration

    def __call__(self, ctx): ...


def found(*declarations, context=OnlineRLContext, reads=True):
    fields = tuple(field.name for field in dataclasses.fields(context)) if reads else ()
    # What comes last reads everything.
    chain = [Declared(each) for each in (*declarations, *([Declaration("last", reads=fields)] if reads else []))]
    return list(order_problems(chain_nodes(chain), context))


@pytest.mark.parametrize("words", WORDS)
def test_exactly_the_wrong_orders_of_two_are_refused(words):
    wrong = {}
    for first, second in itertools.product(DECLARED, repeat=2):
        for text in found(DECLARED[first], DECLARED[second]):
            if words in text:
                assert first in text
                assert second in text
                wrong.setdefault(first, set()).add(second)
    assert wrong == WORDS[words]


def test_a_rollout_that_is_collected_afresh_has_no_past():
    collector, enhancer = DECLARED["StepCollector"], DECLARED["nstep_reward_enhancer"]
    estimator, pusher = DECLARED["reward_estimator"], DECLARED["data_pusher"]
    assert found(collector, enhancer, pusher, collector, estimator, enhancer, pusher) == []
    assert len(found(collector, enhancer, pusher, estimator, pusher)) == 1


def test_returns_of_one_step_are_rewards_as_they_were(counting_config):
    def chain(n):
        cfg = counting_config("dqn", **{"policy.learn.nstep": n})
        return [declaration_of(library.nstep_reward_enhancer(cfg)), DECLARED["reward_estimator"]]

    assert found(*chain(1)) == []
    assert len(found(*chain(3))) == 1


def test_a_limit_without_a_target_needs_no_evaluation():
    def first(**limits):
        return declaration_of(library.termination_checker(1, task=Task(), **limits))

    evaluator = DECLARED["interaction_evaluator"]
    assert found(first(), evaluator) == []
    assert len(found(first(stop_value=1.0), evaluator)) == 1
