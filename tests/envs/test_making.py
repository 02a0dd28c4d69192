"""Managers in other processes: as factories, with the same environments in the first and others in the rest."""

import cloudpickle
import gymnasium
import numpy as np
import pytest
from agent_worlds import Squad
from worlds import Counter, Permit

from minding.engine import Config
from minding.engine.errors import ConfigError, EnvError
from minding.engine.types import LaneContext, Shippable
from minding.envs import check_env, describe_env, make_collector_env, make_env_manager, make_evaluator_env
from minding.envs.backends.native import native_env
from minding.envs.config import env_settings
from minding.envs.manager import VectorEnvManager
from minding.envs.single import env_objects
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


@pytest.mark.parametrize("backend", ["sync", "subprocess"])
def test_a_fault_in_a_shard_has_the_runs_number(backend, closing):
    cfg = {"env_id": "worlds:Faulty", "env_kwargs": {"kind": "nan", "at": 1}, "backend": backend, "workers": 1}
    manager = closing(make_env_manager(cfg, 6, seed=7))
    for index, number in ((1, 2), (2, 4), (4, 2)):
        shard = closing(manager.factory()(LaneContext(index, {}, shards=3)))
        with pytest.raises(EnvError, match=rf"environment {number} \(worlds:Faulty\), step 1 of its episode"):
            shard.step(np.zeros(2, np.int64))


def test_a_fault_in_a_vector_shard_has_the_runs_number(closing):
    manager = closing(make_env_manager(CASES["native"], 6, seed=7))
    shard = closing(manager.factory()(LaneContext(2, {}, shards=3)))
    shard.reset()
    shard._source._env.unwrapped.state[0, 1] = np.nan
    with pytest.raises(EnvError, match="environment 5, step 1 of its episode: observation"):
        shard.step(np.zeros(2, np.int64))


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


def test_a_manager_travels_as_a_factory_without_weights(closing):
    manager = closing(make_env_manager(CASES["sync"], 2, seed=0))
    assert isinstance(manager, Shippable)
    assert manager.weights() == {}
    assert len(cloudpickle.dumps(manager.factory())) < 10_000


def test_environments_of_your_own_making_cannot_travel(closing):
    vector_env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    manager = closing(VectorEnvManager(vector_env))
    with pytest.raises(EnvError, match=r"cannot be rebuilt .* make_env_manager did not make them, .* without"):
        manager.factory()


def one_and_the_same(*wrappers):
    """A function that returns the same environment in each call, wrapped anew in each."""
    world = Counter()

    def make():
        env = world
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return make


@pytest.mark.parametrize("wrappers", [(), (lambda env: gymnasium.wrappers.TimeLimit(env, 9),)])
def test_a_function_that_returns_the_same_again_is_refused(wrappers):
    make = one_and_the_same(*wrappers)
    # The first one is closed by then.
    describe_env({"env_id": env_objects.id_of(make)})
    for role in (make_collector_env, make_evaluator_env):
        with pytest.raises(ConfigError, match=r"returned the same environment as before: .*single_instance=true"):
            role(Config(seed=0, env=env_settings({"env_id": env_objects.id_of(make), "backend": "sync"})))
    (finding,) = [each for each in check_env({}, 20, env_fn=one_and_the_same(*wrappers)) if each.level == "error"]
    assert "returned the same environment as before" in finding.text
    # It is closed by nobody but its user.
    assert make().reset(seed=0)


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


def test_an_argument_of_evaluation_alone_is_named_as_its_own():
    settings = env_settings({"env_id": "CartPole-v1", "evaluator_kwargs": {"render_mod": "x"}})
    message = r"env.evaluator_kwargs=\{'render_mod': 'x'\} does not fit .*did you mean 'render_mode'"
    with pytest.raises(ConfigError, match=message):
        make_env_manager(settings, 1, 0, training=False)
