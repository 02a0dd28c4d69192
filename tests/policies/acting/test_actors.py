"""What all actors share."""

import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, env_action, space_of

from minding.engine.errors import ShapeError
from minding.engine.process import floats
from minding.policies.acting.actors import Actor, StochasticActor
from minding.policies.acting.sampling import Categorical

SPEC = {"observation": VECTOR, "action": space_of(4), "env_action": env_action(space_of(4))}


class Passing(Actor):
    """Its actions and values are the outputs of its network."""

    def explore(self, outputs, mask=None, **collect_kwargs):
        return {"action": outputs[0]}

    def decide(self, outputs):
        return outputs[0]


@pytest.mark.skipif(not floats.supported(), reason="the mode cannot be set on this system")
def test_acting_computes_with_denormal_numbers_as_zero():
    actor = Passing("passing", lambda leaves: (leaves[0] * np.float32(0.9),), SPEC, np.random.default_rng(0))
    denormal = np.full((2, 4), 6e-45, np.float32)
    assert actor.network([denormal])[0].all()
    assert not actor.collect(denormal)["action"].any()
    assert not actor.act(denormal).any()
    critic = StochasticActor("critic", actor.network, SPEC, np.random.default_rng(0), Categorical())
    assert not critic.value(denormal).any()


def passing(observation):
    spec = {"observation": observation, "action": discrete(2), "env_action": env_action(discrete(2))}
    return Passing("passing", tuple, spec, np.random.default_rng(0))


@pytest.mark.parametrize("obs", [np.zeros(4), np.zeros((2, 5)), np.zeros((2, 4, 1)), {"a": np.zeros((2, 4))}, 1.0])
def test_an_observation_of_another_shape_is_an_error_with_the_expected_one(obs):
    with pytest.raises(ShapeError, match=r"expected \(N, 4\), one row per environment, got .*") as error:
        passing(VECTOR).act(obs)
    assert ("obs[None]" in str(error.value)) == (np.shape(obs) == (4,))


def test_an_observation_may_be_given_as_the_space_nests_it():
    actor = passing(dict_of(a=VECTOR, b={"kind": "tuple", "spaces": [discrete(3), space_of(2)]}))
    a, first, second = np.ones((2, 4)), np.array([1, 2]), np.zeros((2, 2))
    given = [leaf.tolist() for leaf in actor.outputs({"b": (first, second), "a": a})]
    assert given == [a.tolist(), first.tolist(), second.tolist()]
    message = r"expected a \(N, 4\), b\.0 \(N,\), b\.1 \(N, 2\), .* got a \(2, 4\), b\.0 \(3,\)"
    with pytest.raises(ShapeError, match=message):
        actor.outputs({"b": (np.zeros(3), second), "a": a})
