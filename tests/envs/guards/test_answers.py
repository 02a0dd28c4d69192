"""The form of what environments return: single ones, vector environments, teams."""

import gymnasium
import numpy as np
import pytest
from agent_worlds import Squad
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Counter, answering

from minding.engine.errors import EnvError
from minding.envs import VectorEnvManager, make_env_manager
from minding.envs.guards.answers import as_flag

ZEROS = np.zeros(1, np.int64)


@pytest.mark.parametrize("flag", [True, np.bool_(True), 1, np.int64(1), np.uint8(1), np.array(True), np.array([True])])
def test_a_flag_is_a_bool_or_one_of_the_integers_0_and_1(flag):
    for each in (flag, np.logical_not(flag)):
        found = as_flag(each, "terminated")
        assert type(found) is bool
        assert found == (each is flag)


@pytest.mark.parametrize(("place", "what"), [*enumerate(["observation", "reward", "termination", "truncation"])])
def test_a_team_without_a_dict_is_told_what_is_expected(place, what):
    lists = answering(Squad, lambda answer: (*answer[:place], list(answer[place].values()), *answer[place + 1 :]))
    with pytest.raises(EnvError, match=rf"the {what}s of a step are \[.*; expected a dict with one entry per agent"):
        make_env_manager({}, 1, 0, env_fn=lists).step(np.zeros((1, 3), np.int64))


def old(world):
    """Its steps return four values."""
    return answering(world, lambda answer: answer[:4])


OLD = {
    "single": (lambda on_error: make_env_manager({"on_error": on_error}, 1, 0, env_fn=old(Counter)), 1),
    "vector": (lambda on_error: VectorEnvManager(old(SyncVectorEnv)([Counter]), {"on_error": on_error}), 1),
    "team": (lambda on_error: make_env_manager({"on_error": on_error}, 1, 0, env_fn=old(Squad)), (1, 3)),
}


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("kind", OLD)
def test_four_values_end_the_run_at_once_with_the_fix(kind, on_error):
    make, shape = OLD[kind]
    manager = make(on_error)
    manager.reset()
    text = (
        r"step returned 4 values, as in the old Gym interface; expected \(observation, reward, .*return truncated=True"
    )
    with pytest.raises(EnvError, match=text):
        manager.step(np.zeros(shape, np.int64))
    assert manager.fault_count == 0


class Silent(Counter):
    """Its info is None, from its first step or from the second reset on."""

    def __init__(self, quiet):
        super().__init__()
        self.quiet, self.calls = quiet, 0

    def say(self, answer):
        self.calls += 1
        return *answer[:-1], None if self.calls > self.quiet else {"success": 1.0}

    def step(self, action):
        return self.say(super().step(action))

    def reset(self, *, seed=None, options=None):
        return self.say(super().reset(seed=seed))


NO_DICT = "info is None; expected a dict with 'success', which env.info_keys declares"


@pytest.mark.parametrize("quiet", [0, 2])
def test_info_that_is_none_is_told_where_a_key_is_declared(quiet):
    def env_fn():
        return Silent(quiet)

    where = "env_fn: " if not quiet else r"environment 0 \(env_fn\), step 2 of its episode: "

    def play():
        manager = make_env_manager({"info_keys": ["success"]}, 1, 0, env_fn=env_fn)
        manager.reset()
        for _ in range(2):
            manager.step(ZEROS)

    with pytest.raises(EnvError, match=where + NO_DICT):
        play()
    make_env_manager({}, 1, 0, env_fn=env_fn).step(ZEROS)


@pytest.mark.parametrize("quiet", [0, 1])
def test_vector_info_that_is_none_is_told_if_declared(quiet):
    class Vector(SyncVectorEnv):
        steps = 0

        def step(self, actions):
            self.steps += 1
            *answer, _ = super().step(actions)
            return *answer, None if self.steps > quiet else {"success": np.ones(2)}

    def play():
        manager = VectorEnvManager(Vector([Counter] * 2), {"info_keys": ["success"]})
        manager.reset()
        manager.step(np.zeros(2, np.int64))

    with pytest.raises(EnvError, match=rf"Vector.*: {NO_DICT}"):
        play()


def test_a_vector_reset_that_gives_one_value_is_told():
    class Vector(SyncVectorEnv):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0]

    env = Vector([Counter] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    with pytest.raises(EnvError, match=r"failed in reset: TypeError: expected \(observation, info\), got ndarray"):
        VectorEnvManager(env).reset()

    class Single(Counter):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0]

    # No step has been taken.
    with pytest.raises(EnvError, match=r"environment 0 \(Single\): failed in reset: TypeError: expected"):
        make_env_manager({}, 1, 0, env_fn=Single).reset()
