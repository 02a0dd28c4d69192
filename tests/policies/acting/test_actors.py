"""What all actors share."""

import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, env_action, space_of

from minding.engine.errors import ShapeError
from minding.policies.acting.actors import Actor
from minding.policies.acting.memory import Memory
from minding.policies.acting.sampling import uniform_noise

SPEC = {"observation": VECTOR, "action": space_of(4), "env_action": env_action(space_of(4))}


class Passing(Actor):
    """Its actions and values are the outputs of its network."""

    def explore(self, outputs, mask=None, **collect_kwargs):
        return {"action": outputs[0]}

    def decide(self, outputs):
        return outputs[0]


def passing(observation):
    spec = {"observation": observation, "action": discrete(2), "env_action": env_action(discrete(2))}
    return Passing("passing", tuple, spec, np.random.default_rng(0))


def test_an_observation_may_be_given_as_the_space_nests_it():
    actor = passing(dict_of(a=VECTOR, b={"kind": "tuple", "spaces": [discrete(3), space_of(2)]}))
    a, first, second = np.ones((2, 4)), np.array([1, 2]), np.zeros((2, 2))
    given = [leaf.tolist() for leaf in actor.outputs({"b": (first, second), "a": a})]
    assert given == [a.tolist(), first.tolist(), second.tolist()]
    message = r"expected a \(N, 4\), b\.0 \(N,\), b\.1 \(N, 2\), .* got a \(2, 4\), b\.0 \(3,\)"
    with pytest.raises(ShapeError, match=message):
        actor.outputs({"b": (np.zeros(3), second), "a": a})


# What is remembered of actions, and random numbers for the network


class Recalling(Passing):
    """Decides for action 0, or for zeros; explores with another one."""

    remembers_action = True


def recalling(action, taken):
    """An actor with two numbers of memory, the mean of all it saw and the count, before the action."""
    size = action["n"] if action["kind"] == "discrete" else int(np.prod(action["shape"]))

    def network(leaves):
        obs, rows = leaves
        kept = rows[:, :2] + np.stack([obs.mean(axis=1), np.ones(len(obs))], axis=1)
        return np.resize(taken, (len(obs), *np.shape(taken))), np.concatenate([kept, np.zeros((len(obs), size))], 1)

    spec = {"observation": VECTOR, "action": action, "env_action": env_action(action)}
    actor = Recalling("recalling", network, spec, np.random.default_rng(0))
    actor.memory = Memory(2 + size, "recalling")
    return actor


@pytest.mark.parametrize(
    ("action", "taken", "rows"),
    [(discrete(3), 2, [0.0, 0.0, 1.0]), (space_of(2, 1), np.float32([[0.5], [-1.0]]), [0.5, -1.0])],
    ids=["discrete", "box"],
)
def test_the_taken_action_is_remembered_and_a_reset_zeroes(action, taken, rows):
    actor, obs = recalling(action, taken), np.ones((3, 4), np.float32)
    first = actor.collect(obs)
    assert not first["memory"].any()
    assert actor.newest_memory.tolist() == [[1.0, 1.0, *rows]] * 3
    random = actor.collect(obs, random=True)
    assert random["memory"].tolist() == [[1.0, 1.0, *rows]] * 3
    given = random["action"]
    expected = np.eye(3)[given] if action["kind"] == "discrete" else given.reshape(3, -1)
    assert np.array_equal(actor.newest_memory[:, 2:], expected.astype(np.float32))
    assert actor.newest_memory[:, :2].tolist() == [[2.0, 2.0]] * 3
    # Not all took the same.
    assert len(np.unique(given)) > 1
    actor.reset([1])
    assert [row.any() for row in actor.newest_memory] == [True, False, True]
    assert len(random["memory"]) == 3
    assert random["memory"][1].any()


def test_random_numbers_come_first_and_only_to_explore():
    seen = []

    def network(leaves):
        seen.append([leaf.shape for leaf in leaves])
        return np.zeros((len(leaves[0]), 4), np.float32), leaves[-1]

    actor = Passing("passing", network, SPEC, np.random.default_rng(0))
    actor.memory, actor.noise_size, actor.draw_noise = Memory(2, "passing"), 5, uniform_noise
    obs = np.zeros((3, 4), np.float32)
    actor.collect(obs)
    actor.act(obs)
    assert seen == [[(3, 4), (3, 5), (3, 2)], [(3, 4), (3, 2)]]
