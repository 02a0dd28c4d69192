"""Bounds of a Box that stand for none."""

import numpy as np
import pytest
from agent_worlds import Squad
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Counter

from minding.engine.data.actions import ActionAdapter
from minding.engine.errors import SpaceError
from minding.engine.types import LaneContext
from minding.envs import VectorEnvManager, check_env, describe_env, make_env_manager
from minding.envs.spaces.actions import NO_BOUND, describe_actions, policy_action_space, without_placeholders
from minding.policies.settings import Algorithm

F32, F64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)
PLACEHOLDERS = [(F32, np.float32), (F32, np.float64), (F64, np.float64), (65504.0, np.float16), (2.0**63, np.float32)]
THIRD = np.full((1, 2), 1 / 3, np.float32)


def box(high, dtype=np.float32, low=None):
    return spaces.Box(-high if low is None else low, high, (2,), dtype)


@pytest.mark.parametrize(("high", "dtype"), PLACEHOLDERS)
def test_the_largest_numbers_of_a_dtype_are_no_bounds(high, dtype):
    described = describe_actions(box(high, dtype), rescale=True)
    assert (described["low"], described["high"], described["rescaled"]) == (-np.inf, np.inf, False)
    adapter = ActionAdapter(described)
    assert adapter(THIRD)[0] == pytest.approx(1 / 3, rel=1e-3)
    assert adapter.invert(adapter(THIRD)) == pytest.approx(THIRD, rel=1e-3)
    assert policy_action_space(box(high, dtype), rescale=True).high.tolist() == [np.inf, np.inf]
    assert policy_action_space(box(high, dtype), rescale=False).high.tolist() == [np.inf, np.inf]


def test_the_limit_is_as_stated_and_one_bound_is_enough():
    below = np.nextafter(NO_BOUND, 0)
    assert describe_actions(box(below, np.float64), rescale=True)["rescaled"]
    assert not describe_actions(box(NO_BOUND, np.float64), rescale=True)["rescaled"]
    half = describe_actions(box(F32, low=0.0), rescale=True)
    assert (half["low"], half["high"], half["rescaled"]) == (0.0, np.inf, False)
    assert ActionAdapter(half)(np.float32([[-1.0, 0.5]])).tolist() == [[0.0, 0.5]]


@pytest.mark.parametrize("space", [box(1e9), spaces.Box(0, 255, (2,), np.uint8), box(np.inf)])
def test_a_box_without_placeholders_stays_the_same_object(space):
    assert without_placeholders(space) is space


class Pushed(Counter):
    """Observes its action; its Box has placeholders for bounds."""

    high = F32

    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(-self.high, self.high, (2,), type(self).dtype)

    dtype = np.float32

    def step(self, action):
        _, *rest = super().step(0)
        return np.asarray(action, np.float32), *rest


class PushedFar(Pushed):
    """The same in float64, whose range no sampling can span."""

    high, dtype = F64, np.float64


@pytest.mark.parametrize("world", [Pushed, PushedFar])
def test_actions_arrive_as_decided_and_the_check_warns(world):
    assert make_env_manager({}, 1, 0, env_fn=world).obs.shape == (1, 2)
    manager = make_env_manager({}, 1, 0, env_fn=world)
    manager.reset()
    assert manager.step(THIRD).next_obs.tolist() == THIRD.tolist()
    vector = VectorEnvManager(SyncVectorEnv([world], autoreset_mode=AutoresetMode.SAME_STEP))
    vector.reset()
    assert vector.step(THIRD).next_obs.tolist() == THIRD.tolist()
    found = check_env({}, 20, env_fn=world)
    assert not [each.text for each in found if each.level == "error"]
    (told,) = [each for each in found if "actions are not rescaled" in each.text]
    assert "bounds too large to limit anything (9.0e15 or more)" in told.text
    assert (told.level, told.fix) == ("warn", "give the Box the limits of the actuators")


def test_a_run_says_once_that_actions_are_not_rescaled(caplog):
    collector = make_env_manager({}, 1, 0, env_fn=Pushed)
    collector.factory()(LaneContext(0, {}))
    collector.factory()(LaneContext(1, {}))
    make_env_manager({}, 1, 0, env_fn=Pushed, training=False)
    assert caplog.text.count("actions are not rescaled") == 1
    caplog.clear()
    VectorEnvManager(SyncVectorEnv([Pushed], autoreset_mode=AutoresetMode.SAME_STEP))
    assert caplog.text.count("actions are not rescaled") == 1


def test_an_algorithm_between_limits_is_refused_with_the_fix():
    described = describe_env({}, env_fn=Pushed)
    assert described["action"]["high"] == [np.inf, np.inf]
    with pytest.raises(SpaceError, match="give the action space finite bounds"):
        Algorithm._check_limits(type("Named", (), {"name": "sac"})(), described["action"])


class Pushers(Squad):
    """Each acts in a Box of its own."""

    highs = dict.fromkeys("abc", F32)

    def action_space(self, agent):
        return spaces.Box(-self.highs[agent], self.highs[agent], (2,), np.float32)

    def step(self, actions):
        self.pushed = actions
        return super().step(dict.fromkeys(actions, 5))


class OneUnbounded(Pushers):
    """Only 'b' has placeholders."""

    highs = {"a": 1.0, "b": F32, "c": 1.0}  # noqa: RUF012


def test_teams_are_treated_alike():
    described = describe_env({}, env_fn=Pushers)
    assert (described["env_action"]["rescaled"], described["env_action"]["high"]) == (False, np.inf)
    made = []
    manager = make_env_manager({}, 1, 0, env_fn=lambda: made.append(Pushers()) or made[-1])
    manager.reset()
    manager.step(np.full((1, 3, 2), 1 / 3, np.float32))
    assert [action.tolist() for action in made[-1].pushed.values()] == [THIRD[0].tolist()] * 3
    with pytest.raises(SpaceError, match=r"'a' .*'b' .*spaces of one kind"):
        describe_env({}, env_fn=OneUnbounded)
