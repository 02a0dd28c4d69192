"""What environments no longer tell once an episode is over."""

import gymnasium
import numpy as np
import pytest
from agent_worlds import Mixed, Vanishing
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Permit

from minding.engine.errors import EnvError
from minding.envs import VectorEnvManager, make_env_manager
from minding.envs.video import Film

STATE = {"global_state": True, "info_keys": ["action_mask"]}


def manager_of(env=STATE, **kwargs):
    return make_env_manager(env, 1, 0, env_fn=lambda: Vanishing(**kwargs))


def step(manager):
    return manager.step(manager.obs.action_mask.argmax(axis=-1))


@pytest.mark.parametrize("garbage", [False, True])
def test_after_a_true_end_the_last_state_stands(garbage):
    manager = manager_of(length=2, garbage=garbage)
    start = manager.obs.state[0, 0]
    first, second = step(manager), step(manager)
    assert first.next_obs.state.tolist() == [[start, 1, 3]]
    assert second.terminated.tolist() == [True]
    assert second.next_obs.state.tolist() == [[start, 1, 3]]
    assert not second.next_obs.alive.any()
    assert second.next_obs.action_mask.all()
    assert second.obs.state[0, 1:].tolist() == [0, 3]
    assert second.obs.action_mask.sum(axis=-1).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(("garbage", "what"), [(False, "raised AttributeError: 'NoneType'"), (True, "returned None")])
def test_a_time_limit_without_the_state_is_a_fault(garbage, what):
    manager = manager_of({"global_state": True}, length=3, garbage=garbage)
    manager.reset()
    for _ in range(2):
        manager.step(np.zeros((1, 3), np.int64))
    with pytest.raises(EnvError, match=rf"step 3 of its episode: state\(\) {what}.* set env.max_episode_steps below"):
        manager.step(np.zeros((1, 3), np.int64))


@pytest.mark.parametrize("length", [2, 3])
def test_joined_observations_replace_a_missing_state(length):
    manager = make_env_manager({"global_state": True}, 1, 0, env_fn=lambda: Mixed(length=length))
    start = manager.obs.state[0, 0]
    for _ in range(length):
        last = manager.step(np.zeros((1, 3), np.int64))
    assert last.truncated.tolist() == [length == 3]
    # The state after a true end is not used; agents that a time limit cuts off are still present.
    cut_off = [start, length, start, length, 1, 5, start, length, 2]
    assert last.next_obs.state.tolist() == [cut_off if length == 3 else [0] * 9]


class NoMaskAtTheEnd(Permit):
    """Its last info holds no mask."""

    def say(self, terminated):
        info = super().say(terminated)
        return {key: value for key, value in info.items() if key != "action_mask" or self.steps < self.length}


def make_single():
    return make_env_manager({"info_keys": ["action_mask"]}, 2, 1, env_fn=NoMaskAtTheEnd)


def make_vector():
    env = SyncVectorEnv([NoMaskAtTheEnd] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorEnvManager(env, {"info_keys": ["action_mask"]}, 1)


@pytest.mark.parametrize("make", [make_single, make_vector])
def test_a_mask_may_be_missing_only_where_terminated(make):
    def play(manager):
        manager.reset()
        for _ in range(60):
            answer = step(manager)
            counts = answer.next_obs.action_mask.sum(axis=1)
            assert counts.tolist() == np.where(answer.terminated, 3, 1).tolist()
            ends.append(answer.terminated.sum())

    ends = []
    # Sooner or later an episode is truncated, whose successor needs its mask.
    with pytest.raises(EnvError, match="info has no entry 'action_mask'"):
        play(make())
    assert sum(ends) > 0


class Dark(gymnasium.Env):
    """Shows nothing after the end of its episodes, of two steps."""

    steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, 0.0, self.steps == 2, False, {}

    def render(self):
        if self.steps == 2 or self.steps == self.broken:
            raise AttributeError("the window is closed")
        return np.full((2, 2, 3), self.steps, np.uint8)

    broken = None


def test_a_film_ends_before_a_picture_that_is_no_longer_there():
    film = Film(Dark())
    film.reset()
    for _ in range(2):
        film.step(0)
    assert [frame[0, 0, 0] for frame in film.frames] == [0, 1]
    film = Film(Dark())
    film.env.broken = 1
    film.reset()
    with pytest.raises(AttributeError, match="closed"):
        film.step(0)
