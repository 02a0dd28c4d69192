"""The check of a user's environment."""

import re
import threading

import numpy as np
import pytest
import worlds
from gymnasium import spaces
from worlds import Counter, Recycler, Small, Torque, Unseeded

from minding.envs import check, check_env


def troubles(env_fn, steps=100, **env):
    """{text: finding} of the warnings and errors, without the speed."""
    findings = check_env(env, steps, env_fn=env_fn)
    return {found.text: found for found in findings if found.level != "ok" and "steps/s" not in found.text}


def test_a_sound_environment_has_nothing_but_ok():
    assert troubles(Small) == {}


def test_overwritten_observations_are_found():
    assert any("check_env: " in text and "share an object" in text for text in troubles(Recycler))


def test_an_environment_that_ignores_its_seed_is_found():
    texts = list(troubles(Unseeded))
    assert any("check_env: " in text and "seed" in text for text in texts)
    assert any("resumed run begins new episodes" in text for text in texts)


@pytest.mark.parametrize(
    ("world", "what"),
    [
        ("Clocked", "observation"),
        ("normalized_obs", "observation"),
        ("normalized_reward", "reward"),
        ("Shortening", "end"),
    ],
)
def test_an_environment_that_does_not_repeat_is_found(world, what):
    told = f"after others, an episode with the same seed and actions has another {what}"
    found = troubles(getattr(worlds, world))[f"a resumed run begins new episodes: {told}"]
    assert "set policy.model.normalize_obs=true" in found.fix
    assert "env.normalize_reward=true" in found.fix


def test_endless_environments_and_infinite_bounds_are_found():
    def endless():
        return Torque(np.inf)

    found = troubles(endless)
    assert "no episode ended in 100 steps" in found
    assert found["no episode ended in 100 steps"].fix == "set env.max_episode_steps"
    assert any("infinite bounds" in text for text in found)
    assert "a random policy met no reward but 0" in found


def test_wrong_dtypes_bounds_and_large_rewards_are_found():
    class Sloppy(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs.astype(np.float64), reward * 1000, *rest

    texts = " ".join(troubles(Sloppy))
    assert "outside the observation space, in bounds, dtype or shape" in texts
    assert "check_env: The first element returned by `env.reset()` is not within the observation space" in texts
    assert "rewards lie in [1e+03" in texts


def test_boards_of_bytes_are_numbers_and_flags_of_numpy_fit():
    class Board(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Dict(board=spaces.Box(0, 9, (24, 18), np.uint8))

        def step(self, action):
            obs, reward, *ends, info = super().step(action)
            return obs, np.int64(reward), *map(np.bool_, ends), info

        def observe(self):
            return {"board": np.full((24, 18), self.steps, np.uint8)}

    text = " ".join(troubles(Board))
    assert "board (24, 18) uint8 is taken as" in text


def test_large_numbers_are_found_before_training():
    found = troubles(worlds.Stock, 1000)
    observation, reward = (next(text for text in found if word in text) for word in ("observation[0]", "rewards lie"))
    assert re.match(r"observation\[0\] is of about 1.8e\+04 beside observation\[2\] of about 20, and", observation)
    assert found[observation].fix.startswith("set policy.model.normalize_obs=true")
    assert "discounted returns vary by" in reward
    assert found[reward].fix.startswith("set env.normalize_reward=true")
    assert troubles(worlds.Queue, 1000, normalize_reward=True) == {}


class HangsInClose(Counter):
    """Hangs in `close` after `quick` environments that do not."""

    closed, quick = 0, 0

    def close(self):
        HangsInClose.closed += 1
        if HangsInClose.closed > HangsInClose.quick:
            threading.Event().wait()


@pytest.mark.parametrize("quick", [0, 1])
def test_an_environment_that_hangs_in_close_is_not_fit(quick, monkeypatch):
    monkeypatch.setattr(HangsInClose, "closed", 0)
    monkeypatch.setattr(HangsInClose, "quick", quick)
    last = check_env({"step_timeout": 0.2}, 10, env_fn=HangsInClose)[-1]
    assert (last.level, HangsInClose.closed) == ("error", quick + 1)
    assert "close: close() did not return within 0.2 s (env.step_timeout)" in last.text


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"env_id": "worlds:Mixed"}, ["3 agents, each with its own reward: a (2 numbers, discrete 2), b (4 numbers"]),
        ({"env_id": "worlds:Squad", "env_kwargs": {"mask": "info"}}, ["action_mask that is not declared"]),
        ({"env_id": "minding/Battle-v0"}, ["unit_0, unit_1, unit_2", "limit 60", "passes PettingZoo's"]),
        ({"env_id": "worlds:OfPettingZoo"}, ["parallel_api_test: observation_space should return the exact same"]),
    ],
)
def test_environments_of_several_agents_are_fit(env, words):
    findings = check_env(env, steps=130)
    assert not [finding.text for finding in findings if finding.level == "error"]
    texts = " ".join(finding.text for finding in findings)
    assert all(word in texts for word in words)
    assert "can be resumed exactly" in texts


class Clock:
    """Seconds that pass only where an environment says so; stands in for the module `time`."""

    now = 0.0

    def __init__(self, monkeypatch):
        for module in ("check", "random_play"):
            monkeypatch.setattr(f"minding.envs.{module}.time", self)

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def environment(self, step, made=0.0):
        """What makes environments that take so many seconds to be made and for a step."""

        class Slow(Counter):
            def __init__(env):
                super().__init__()
                self.now += made

            def step(env, action):
                self.now += step
                return super().step(action)

        return Slow


def test_the_check_keeps_its_limit_and_states_what_is_shortened(monkeypatch):
    clock = Clock(monkeypatch)
    findings = check_env({}, 1000, env_fn=clock.environment(step=0.034), seconds=30)
    assert 20 < clock.now < 30
    told = [found.text for found in findings]
    assert "442 of 1,000 steps were tried in 15 s" in told
    assert [found.tried for found in findings if found.tried] == ["442 of 1,000 steps"]
    assert "passes Gymnasium's check_env" in told
    assert "a running episode can be resumed exactly, from its seed and actions" in told
    assert told[-1] == "29 steps/s with 1 environment, 29 steps/s with 8 (env.backend=auto)"
    fix = "raise the limit of 30 s: minding check-env --seconds, or check_env(..., seconds=)"
    assert [found.level for found in findings if found.fix == fix] == ["warn"]


def test_what_there_is_no_time_for_is_named(monkeypatch):
    clock = Clock(monkeypatch)
    findings = check_env({}, 1000, env_fn=clock.environment(step=0.5, made=6.0), seconds=60)
    assert clock.now < 60
    assert [found.text for found in findings if found.left_out] == [
        "the time did not suffice to check the environment with Gymnasium's and PettingZoo's own tests",
        "the time did not suffice to check whether a running episode can be resumed",
        "the time did not suffice to check the speed of 8 environments",
    ]
    assert not [found for found in findings if "steps/s" in found.text]


def test_findings_come_as_they_are_made():
    steps = []

    class Counted(Small):
        def step(self, action):
            steps.append(action)
            return super().step(action)

    findings = check.iter_findings({}, 100, env_fn=Counted)
    assert (next(findings).text, steps) == ("observation Box (2,) float32, action discrete 2", [])
    assert next(findings).text.startswith("24 episodes")
    assert len(steps) == 100
    assert "check_env" in [next(findings).text for _ in range(2)][-1]
    assert 100 < len(steps) < 110
