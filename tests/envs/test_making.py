"""Managers in other processes: as factories, with the same environments in the first and others in the rest."""

import cloudpickle
import gymnasium
import numpy as np
import pytest

from minding.engine.errors import EnvError
from minding.engine.types import LaneContext, Shippable
from minding.envs import make_env_manager
from minding.envs.manager import VectorEnvManager

CASES = {
    "sync": {"env_id": "CartPole-v1", "backend": "sync"},
    "native": {"env_id": "CartPole-v1", "backend": "native"},
    "subprocess": {"env_id": "CartPole-v1", "backend": "subprocess", "workers": 1},
    "wrapped, rescaled": {"env_id": "Pendulum-v1", "max_episode_steps": 5, "normalize_reward": True},
}


@pytest.fixture
def closing():
    """Closes what it was called with."""
    managers = []
    yield lambda manager: managers.append(manager) or manager
    for manager in managers:
        manager.close()


def travelled(manager, index=0):
    """What a worker makes of a manager."""
    factory = cloudpickle.loads(cloudpickle.dumps(manager.factory()))
    return factory(LaneContext(index, {}))


def play(manager, steps=12):
    action = np.zeros(2, np.int64) if "CartPole" in manager._source.name else np.full((2, 1), 0.3, np.float32)
    first, rows = manager.reset(), []
    for _ in range(steps):
        step = manager.step(action)
        rows.append((step.obs.tobytes(), step.reward.tobytes(), step.truncated.tobytes()))
    return [first.tobytes(), *rows]


@pytest.mark.parametrize("case", CASES)
def test_the_first_worker_steps_the_same_environments_and_each_other_one_its_own(case, closing):
    manager = closing(make_env_manager(CASES[case], 2, seed=7))
    here = play(manager)
    # Made anew, however far the manager of this process has come.
    assert play(closing(travelled(manager))) == here
    others = [play(closing(travelled(manager, index))) for index in (1, 2)]
    assert play(closing(travelled(manager, 1))) == others[0]
    assert len({tuple(map(str, rows)) for rows in (here, *others)}) == 3


def test_a_factory_keeps_whether_rewards_are_those_of_training(closing):
    cfg = {"env_id": "Pendulum-v1", "reward_clip": 0.5}
    for training, bound in ((True, 0.5), (False, 20.0)):
        manager = closing(make_env_manager(cfg, 2, seed=0, training=training))
        worker = closing(travelled(manager))
        worker.reset()
        reward = worker.step(np.zeros((2, 1), np.float32)).reward
        assert (abs(reward) <= bound).all()
        assert (abs(reward) > 0.5).any() == (not training)


def test_what_was_made_of_a_factory_can_travel_on(closing):
    manager = closing(make_env_manager(CASES["sync"], 2, seed=3))
    second = closing(travelled(closing(travelled(manager))))
    assert play(second) == play(manager)


def test_an_environment_of_a_function_travels_with_it(closing):
    length = 3

    def build():
        return gymnasium.make("CartPole-v1", max_episode_steps=length)

    manager = closing(make_env_manager({}, 2, seed=0, env_fn=build))
    worker = closing(travelled(manager))
    worker.reset()
    ends = [worker.step(np.zeros(2, np.int64)).truncated.all() for _ in range(3)]
    assert ends == [False, False, True]


def test_a_manager_says_that_it_travels_as_a_factory_and_needs_no_weights(closing):
    manager = closing(make_env_manager(CASES["sync"], 2, seed=0))
    assert isinstance(manager, Shippable)
    assert manager.weights() == {}
    assert len(cloudpickle.dumps(manager.factory())) < 10_000


def test_environments_of_your_own_making_cannot_travel(closing):
    vector_env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    manager = closing(VectorEnvManager(vector_env))
    with pytest.raises(EnvError, match=r"not made by make_env_manager, or .* cannot be rebuilt .* without async_mode"):
        manager.factory()
