"""What middleware asks of settings, policies and buffers before the first step."""

import inspect

import pytest
from fakes import AgePolicy, CountingEnv, ReadingLearner

from minding import middleware as library
from minding.engine.buffers import ReplayBuffer, Sequences
from minding.engine.data.batch import Field
from minding.engine.errors import MiddlewareError
from minding.middleware import OffPolicyLearner, gae_estimator, interaction_evaluator

NUMBER = {"number": Field()}
ACT = AgePolicy()


def learner(fields=NUMBER, learn=None, sequences=None, warmup=9, **buffer):
    """An OffPolicyLearner of a policy that reads a number, whose buffer holds 9 rows of these fields."""
    learn = ReadingLearner(NUMBER) if learn is None else learn
    if sequences is not None:
        learn.sequences = sequences
    return lambda cfg: OffPolicyLearner(
        cfg(**{"policy.learn.warmup": warmup}), learn, ReplayBuffer(9, fields, **buffer)
    )


class Anything:
    def __getattr__(self, name):
        return self


def parts(name):
    """The arguments of a middleware that are a policy, one of its modes, a buffer or environments."""
    found = {"policy", "buffer", "env"} & inspect.signature(getattr(library, name)).parameters.keys()
    return sorted(found - {"env"} if name == "her_data_enhancer" else found)


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in library.__all__ for part in parts(name)])
def test_a_part_of_another_kind_is_refused(name, part):
    make = getattr(library, name)
    needed = [each for each, about in inspect.signature(make).parameters.items() if about.default is about.empty]
    expected = {"policy": r"(policy\.|the policy)", "buffer": "a buffer", "env": "environments"}[part]
    with pytest.raises(MiddlewareError, match=rf"^{name}: {part} must be {expected}.*, got a object$"):
        make(**{**dict.fromkeys(needed, Anything()), part: object()})


def test_what_fits_is_not_refused(counting_config):
    fitting = [
        interaction_evaluator(counting_config(), ACT.eval_mode, CountingEnv()),
        gae_estimator(counting_config("ppo"), ACT.collect_mode),
        learner({**NUMBER, "other": Field()})(counting_config),
    ]
    assert [each.requirements() for each in fitting] == [[]] * 3


def test_sequences_are_refused_by_a_policy_that_learns_from_rows(counting_config):
    learn = ReadingLearner(NUMBER)
    buffer = ReplayBuffer(100, NUMBER, sequences=Sequences(4))
    for wants, refused in ((False, True), (True, False), (None, False)):
        learn.sequences = wants
        made = OffPolicyLearner(counting_config(**{"policy.learn.warmup": 1}), learn, buffer)
        assert bool(made.requirements()) is refused
