"""Managers in other processes: as factories, with the same environments in the first and others in the rest."""

import cloudpickle
import gymnasium
import numpy as np
import pytest
from agent_worlds import Squad
from worlds import Counter, Permit

from minding.engine import ConfigError
from minding.engine.types import LaneContext
from minding.envs import VectorEnvManager, make_env_manager
from minding.envs.backends.native import native_env
from minding.envs.config import env_settings
from minding.envs.single.factory import env_factory

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
def test_the_first_worker_keeps_its_environments(case, closing):
    manager = closing(make_env_manager(CASES[case], 2, seed=7))
    here = play(manager)
    # Made anew, however far the manager of this process has come.
    assert play(closing(travelled(manager))) == here
    others = [play(closing(travelled(manager, index))) for index in (1, 2)]
    assert play(closing(travelled(manager, 1))) == others[0]
    assert len({tuple(map(str, rows)) for rows in (here, *others)}) == 3


def test_a_shard_steps_its_share_as_all_would_be(closing):
    # Eight are stepped by the vector version, two by themselves would not be.
    manager = closing(make_env_manager({"env_id": "CartPole-v1"}, 8, seed=7))
    shards = [closing(manager.factory()(LaneContext(index, {}, shards=4))) for index in (0, 1)]
    two = closing(make_env_manager({"env_id": "CartPole-v1"}, 2, seed=7))
    assert [each.num_envs for each in shards] == [2, 2]
    kinds = [type(each) is VectorEnvManager for each in (manager, *shards, two)]
    assert kinds == [True, True, True, False]
    assert play(shards[0]) != play(shards[1])
    loop = closing(make_env_manager({"env_id": "CartPole-v1", "backend": "sync"}, 8, seed=7))
    # Of single environments the first worker has the first ones.
    assert play(closing(loop.factory()(LaneContext(0, {}, shards=4)))) == play(two)


class KaiWu(Permit):
    """Gives the legal actions under another name."""

    def say(self, terminated):
        info = super().say(terminated)
        return {"legal_action": info.pop("action_mask"), **info}


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (Permit, {}, "Permit: info has 'action_mask', which is ignored: set env.info_keys=[action_mask], unless"),
        (KaiWu, {}, "info has 'legal_action', which is ignored: return it as info['action_mask'], and set env.info_k"),
        (Permit, {"info_keys": ["action_mask"]}, ""),
        (Permit, {"single_instance": True}, ""),
        (Counter, {}, ""),
    ],
)
def test_a_mask_that_is_not_declared_is_reported_once(make, given, said, closing, caplog):
    cfg = {"backend": "sync", **given}
    manager = closing(make_env_manager(cfg, 1, seed=0, env_fn=make, watch=["action_mask"]))
    closing(travelled(manager))
    assert [said in record.getMessage() for record in caplog.records] == [True] * bool(said)


def test_a_factory_keeps_whether_rewards_are_those_of_training(closing):
    cfg = {"env_id": "Pendulum-v1", "reward_clip": 0.5}
    for training, bound in ((True, 0.5), (False, 20.0)):
        manager = closing(make_env_manager(cfg, 2, seed=0, training=training))
        worker = closing(travelled(manager))
        worker.reset()
        reward = worker.step(np.zeros((2, 1), np.float32)).reward
        assert (abs(reward) <= bound).all()
        assert (abs(reward) > 0.5).any() == (not training)


def one_and_the_same(*wrappers):
    """A function that returns the same environment in each call, wrapped anew in each."""
    world = Counter()

    def make():
        env = world
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return make


def test_one_environment_taken_in_turns_is_no_fault(closing):
    single = {"single_instance": True}
    make = one_and_the_same()
    collector, evaluator = (closing(make_env_manager(single, 1, 0, env_fn=make)) for _ in range(2))
    assert collector.reset().shape == evaluator.reset().shape
    for _ in range(50):
        make_env_manager({}, 2, 0, env_fn=Counter).close()


def test_the_same_vector_version_again_is_refused(monkeypatch):
    vector = gymnasium.make_vec("CartPole-v1", 8, vectorization_mode="vector_entry_point")
    monkeypatch.setattr(Squad, "vector_env", lambda **kwargs: vector, raising=False)
    factory = env_factory(env_settings({}), Squad)
    assert native_env(factory, 8) is vector
    with pytest.raises(ConfigError, match="vector_env returned the same environments as before"):
        native_env(factory, 8)


def test_environments_for_evaluation_may_have_other_arguments(closing):
    cfg = {"env_id": "minding/TicTacToe-v0", "env_kwargs": {"first": True}, "evaluator_kwargs": {"first": False}}
    for training, stones in ((True, 0), (False, 1)):
        manager = closing(make_env_manager(cfg, 1, 0, training=training))
        assert np.asarray(manager.reset().observation).sum() == stones
