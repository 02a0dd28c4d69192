"""What middleware asks of settings, policies and buffers before the first step."""

import inspect

import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv, ReadingLearner, tiny_config

from minding import middleware as library
from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.data.batch import Field
from minding.engine.errors import MiddlewareError
from minding.middleware import (
    EpisodeCollector,
    OffPolicyLearner,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    offline_data_fetcher,
    sqil_data_pusher,
    trajectory_trainer,
)

NUMBER = {"number": Field()}
ACT = AgePolicy()
THIRDS = {"policy.learn.n_minibatch": 3}


class ThreeSteps:
    """Recorded data."""

    digest = "a"

    def __len__(self):
        return 3


def learner(fields=NUMBER, learn=None, sequences=None, warmup=9, **buffer):
    """An OffPolicyLearner of a policy that reads a number, whose buffer holds 9 rows of these fields."""
    learn = ReadingLearner(NUMBER) if learn is None else learn
    if sequences is not None:
        learn.sequences = sequences
    return lambda cfg: OffPolicyLearner(
        cfg(**{"policy.learn.warmup": warmup}), learn, ReplayBuffer(9, fields, **buffer)
    )


REFUSED = {
    "an evaluator that explores": (
        lambda cfg: interaction_evaluator(cfg(), ACT.collect_mode, CountingEnv()), "policy.eval_mode"
    ),
    "episodes in uneven shares": (
        lambda cfg: EpisodeCollector(cfg("ppo"), ACT.collect_mode, CountingEnv(), n_episode=3), "n_episode=3"
    ),
    "advantages without values": (
        lambda cfg: gae_estimator(cfg("ppo"), AgePolicy(value=False).collect_mode), "state value"
    ),
    "uneven minibatches of rows": (
        lambda cfg: multistep_trainer(cfg("ppo", **THIRDS), ReadingLearner(NUMBER)), "use policy.collect.n_sample=12"
    ),
    "uneven minibatches of environments": (
        lambda cfg: trajectory_trainer(cfg("coma", **THIRDS), ReadingLearner({"cut": Field()})), "n_minibatch=3"
    ),
    "trajectories for a policy of rows": (
        lambda cfg: trajectory_trainer(cfg("coma"), ReadingLearner(NUMBER)), "use gae_estimator"
    ),
    "a minibatch larger than the data": (
        lambda cfg: offline_data_fetcher(tiny_config("bc", **{"policy.learn.batch_size": 4}), ThreeSteps()),
        "policy.learn.batch_size=4",
    ),
    "imitation of sums": (
        lambda cfg: sqil_data_pusher(cfg(**{"policy.learn.nstep": 3}), ReplayBuffer(9, COUNTING_FIELDS), False),
        "policy.learn.nstep=3",
    ),
    "a field of another shape": (learner({"number": Field((2,))}), "'number' is float32"),
    "a field that is missing": (learner({"other": Field()}), "no field 'number'"),
    "a warm-up beyond the buffer": (learner(warmup=10), "policy.learn.warmup=10"),
    "priorities that nobody sets": (learner(priority=Priority()), "policy.other.replay"),
    "rows for a policy of sequences": (learner(sequences=True), "with `sequences`"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_with_the_key_or_part(case, counting_config):
    make, words = REFUSED[case]
    assert [words in problem for problem in make(counting_config).requirements()] == [True]


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
