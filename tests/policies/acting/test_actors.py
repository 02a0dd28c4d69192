"""What all actors share."""

import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, env_action, space_of

from minding.engine.errors import ShapeError
from minding.policies.acting.actors import Actor


class Passing(Actor):
    """Its actions and values are the outputs of its network."""

    def explore(self, outputs, mask=None, **collect_kwargs):
        return {"action": outputs[0]}

    def decide(self, outputs):
        return outputs[0]


def test_an_observation_may_be_given_as_the_space_nests_it():
    observation = dict_of(a=VECTOR, b={"kind": "tuple", "spaces": [discrete(3), space_of(2)]})
    spec = {"observation": observation, "action": discrete(2), "env_action": env_action(discrete(2))}
    actor = Passing("passing", tuple, spec, np.random.default_rng(0))
    a, first, second = np.ones((2, 4)), np.array([1, 2]), np.zeros((2, 2))
    given = [leaf.tolist() for leaf in actor.outputs({"b": (first, second), "a": a})]
    assert given == [a.tolist(), first.tolist(), second.tolist()]
    message = r"expected a \(N, 4\), b\.0 \(N,\), b\.1 \(N, 2\), .* got a \(2, 4\), b\.0 \(3,\)"
    with pytest.raises(ShapeError, match=message):
        actor.outputs({"b": (np.zeros(3), second), "a": a})
