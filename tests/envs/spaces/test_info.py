"""Declared keys of info, and action masks, in every backend and autoreset mode."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Counter, Permit, answering

from minding.engine.data.observation import masked_obs, random_legal
from minding.engine.errors import ConfigError, EnvError
from minding.envs import VectorEnvManager, check_env, describe_env, make_env_manager
from minding.envs.envpool import EnvPoolVectorEnv
from minding.envs.normalize import NORMALIZE_OBS

KEYS = ["action_mask", "success", "spot"]
MODES = list(AutoresetMode)


def single(make, backend, place, num_envs=3, **env):
    keys = KEYS if place == "info" else KEYS[1:]
    return make("Permit", num_envs, backend=backend, info_keys=keys, env_kwargs={"place": place, **env})


def vector(mode, place, num_envs=3, **env):
    keys = KEYS if place == "info" else KEYS[1:]
    made = SyncVectorEnv([lambda: Permit(place, **env)] * num_envs, autoreset_mode=mode)
    return VectorEnvManager(made, {"info_keys": keys})


def the_legal_ones(obs):
    return obs.action_mask.argmax(axis=1)


def play(manager, steps):
    for _ in range(steps):
        manager.step(the_legal_ones(manager.obs))


@pytest.fixture(params=["sync", "subprocess", *MODES], ids=str)
def manager(request, make, place):
    made = vector(request.param, place) if request.param in MODES else single(make, request.param, place)
    yield made
    made.close()


@pytest.mark.parametrize("place", ["info", "obs"])
def test_the_mask_belongs_to_its_observation(manager):
    obs, ends = manager.obs, {"terminated": 0, "truncated": 0}
    for _ in range(40):
        # The environment raises at an illegal action.
        step = manager.step(the_legal_ones(obs))
        valid = np.ones(3, bool) if step.valid is None else step.valid
        for n in np.flatnonzero(valid):
            start, steps = step.next_obs.observation[n]
            expected = np.zeros(3, bool)
            expected[Permit.rule(start, steps)] = not step.terminated[n]
            assert step.next_obs.action_mask[n].tolist() == expected.tolist()
            assert step.info["spot"][n].tolist() == [start, steps]
            assert step.info["success"][n] == (step.terminated[n] or step.truncated[n])
        assert not step.info["success"][~valid].any()
        assert not step.info["spot"][~valid].any()
        for end in step.episodes:
            assert end.info == {"success": 1.0}
            ends["terminated" if step.terminated[end.env_id] else "truncated"] += 1
        obs = step.obs
        going = (obs.observation == step.next_obs.observation).all(axis=1) & step.terminated
        start, steps = obs.observation.T
        assert np.array_equal(the_legal_ones(obs)[~going], Permit.rule(start, steps)[~going])
    assert min(ends.values()) > 3
    assert step.info["success"].dtype == bool
    assert obs.action_mask.dtype == bool


BAD = {
    "empty": r"observation 'action_mask' allows no action",
    "float": "observation 'action_mask': expected bool, or integers 0 and 1, got float64",
    "shape": r"observation 'action_mask': expected shape .*3,?\), got .*2,?\)",
    "two": "observation 'action_mask': expected bool, or integers 0 and 1, got int8 with values from 0 to 2",
    "missing": "info has no entry 'action_mask', which env.info_keys declares",
}


@pytest.mark.parametrize(("kind", "backend"), [*((kind, "sync") for kind in BAD), ("missing", "subprocess")])
def test_an_unusable_mask_names_the_environment(make, backend, kind):
    manager = single(make, backend, "info", bad=kind)
    manager.reset()
    with pytest.raises(EnvError, match=rf"environment \d \(worlds:Permit\), step \d of its episode: .*{BAD[kind]}"):
        play(manager, 9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["empty", "two"])
def test_a_vector_environment_is_judged_alike(mode, kind):
    manager = vector(mode, "info", bad=kind)
    manager.reset()
    with pytest.raises(EnvError, match=BAD[kind]):
        play(manager, 9)


def test_a_restart_after_a_fault_brings_a_mask(make):
    manager = make("Permit", 2, info_keys=KEYS, env_kwargs={"bad": "empty"}, on_error="restart")
    manager.reset()
    for _ in range(8):
        step = manager.step(the_legal_ones(manager.obs))
        assert step.obs.action_mask.sum(axis=1).tolist() == [1, 1]
    assert manager.fault_count > 1


def test_a_declared_text_is_refused():
    worded = answering(Counter, lambda answer: (*answer[:4], {"position": "Long"}))
    with pytest.raises(ConfigError, match="gives 'Long' under 'position'; expected a number"):
        make_env_manager({"info_keys": ["position"]}, 1, 0, env_fn=worded)


def troubles(findings):
    """What is not ok, but for the scale of observations: these worlds show numbers of up to a million."""
    return [found for found in findings if found.level != "ok" and not found.fix.startswith(NORMALIZE_OBS)]


def test_check_env_obeys_masks_and_reports_them():
    findings = check_env({"env_id": "worlds:Permit", "info_keys": KEYS}, steps=100)
    assert troubles(findings) == []
    assert any("the action mask leaves 33% of the actions on average" in f.text for f in findings)
    broken = check_env({"env_id": "worlds:Permit", "info_keys": KEYS, "env_kwargs": {"bad": "empty"}}, steps=100)
    assert broken[-1].level == "error"
    assert "allows no action" in broken[-1].text


# Drawing


def test_random_actions_are_legal_and_equally_likely():
    rng = np.random.default_rng(0)
    mask = np.array([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]], bool)
    drawn = np.stack([random_legal(mask, [5], rng) for _ in range(6000)])
    assert np.bincount(drawn[:, 0], minlength=5)[[0, 2]].tolist() == [0, 0]
    assert np.abs(np.bincount(drawn[:, 0], minlength=5)[[1, 3, 4]] - 2000).max() < 150
    assert (drawn[:, 1:] == [0, 4]).all()
    pairs = np.stack([random_legal(mask, [2, 3], rng)[:1] for _ in range(3000)])
    assert set(map(tuple, pairs[:, 0])) == {(1, 1), (1, 2)}
    assert random_legal(np.zeros((2, 3), bool), [3], rng).tolist() == [0, 0]


def test_a_mask_joins_an_observation_in_the_policys_form():
    mask = np.ones((1, 2), bool)
    assert masked_obs(np.zeros((1, 4)), mask, ["action_mask", "observation"]).observation.shape == (1, 4)
    tree = masked_obs({"a": np.zeros(1), "b": np.ones(1)}, mask, ["a", "action_mask", "b"])
    assert sorted(tree.keys()) == ["a", "action_mask", "b"]
    pair = masked_obs((np.zeros(1), np.ones(1)), mask, ["action_mask", "observation.0", "observation.1"])
    assert sorted(pair.observation.keys()) == ["0", "1"]


def test_check_env_finds_a_mask_that_is_not_declared():
    first, *others = check_env({"env_id": "worlds:Permit"}, steps=50)
    assert (first.level, "an action_mask that is not declared" in first.text) == ("warn", True)
    assert "env.info_keys=[action_mask]" in first.fix
    assert troubles(others) == []


class Late(Permit):
    """Only the last step of an episode has `is_success`, as Stable-Baselines3 wants it, and `where`."""

    kind = bool

    def say(self, terminated):
        info = super().say(terminated)
        info = {"action_mask": info["action_mask"], "steps": self.steps}
        if self.steps == self.length:
            info |= {"is_success": self.kind(terminated), "where": np.array([self.start, self.steps])}
        return info


class LateScalar(Late):
    """Its `is_success` is a scalar of NumPy."""

    kind = np.bool_


LATE = {"info_keys": ["action_mask", "steps", "is_success", "where"]}


@pytest.mark.parametrize("world", [Late, LateScalar])
@pytest.mark.parametrize("backend", ["sync", *MODES], ids=str)
def test_keys_of_the_last_step_are_zero_in_the_others(backend, world):
    if backend == "sync":
        manager = make_env_manager(LATE, 3, 0, env_fn=world)
    else:
        manager = VectorEnvManager(SyncVectorEnv([world] * 3, autoreset_mode=backend), LATE)
    ends = []
    for _ in range(40):
        step = manager.step(the_legal_ones(manager.obs))
        over = step.terminated | step.truncated
        assert step.info["is_success"].tolist() == step.terminated.tolist()
        assert step.info["where"][~over].tolist() == [[0, 0]] * int((~over).sum())
        assert (step.info["where"][over] == step.next_obs.observation[over]).all()
        ends += [end.info["is_success"] for end in step.episodes]
    assert set(ends) == {0.0, 1.0}
    manager.close()


def test_a_key_counts_as_a_number_if_no_episode_ends(monkeypatch, caplog):
    monkeypatch.setattr("minding.envs.spaces.info._LONGEST", 50)

    endless = answering(Counter, lambda answer: (*answer[:2], False, False, {}))
    description = describe_env({"info_keys": ["is_success"]}, endless)
    assert description["info"] == {"is_success": {"shape": [], "dtype": "float32"}}
    assert "has no 'is_success' (env.info_keys): it is taken for a number" in caplog.text


class Methodical(Permit):
    """Its mask is the answer of the method that sb3-contrib calls."""

    def say(self, terminated):
        self.terminated = terminated
        return {"success": self.steps == self.length}

    def action_masks(self):
        return self.mask(self.terminated).astype(bool)


@pytest.mark.parametrize("backend", ["sync", AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED], ids=str)
def test_the_mask_of_a_method_is_read(backend):
    keys = {"info_keys": ["action_mask", "success"]}
    if backend == "sync":
        manager = make_env_manager(keys, 3, 0, env_fn=lambda: gymnasium.wrappers.RecordEpisodeStatistics(Methodical()))
    else:
        manager = VectorEnvManager(SyncVectorEnv([Methodical] * 3, autoreset_mode=backend), keys)
    ends = 0
    for _ in range(40):
        obs = manager.obs
        assert (the_legal_ones(obs) == Permit.rule(*obs.observation.T))[obs.action_mask.any(axis=1)].all()
        # The environment raises at an illegal action.
        ends += len(manager.step(the_legal_ones(obs)).episodes)
    assert ends > 10
    manager.close()


class Pool:
    """What EnvPool gives: spaces of one environment, info as arrays, resets in the next step."""

    def __init__(self, seed):
        self.envs = SyncVectorEnv([Permit] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
        self.observation_space, self.action_space = self.envs.single_observation_space, spaces.Discrete(3, start=2)
        self.seed = seed

    def reset(self):
        return self.envs.reset(seed=self.seed)

    def step(self, actions):
        return self.envs.step(actions)

    def close(self):
        self.envs.close()


def test_masks_and_info_of_envpool_travel_too():
    manager = VectorEnvManager(EnvPoolVectorEnv(Pool, 3, 5), {"info_keys": KEYS})
    ends = 0
    for _ in range(30):
        step = manager.step(the_legal_ones(manager.obs))
        ends += len(step.episodes)
        assert [end.info for end in step.episodes] == [{"success": 1.0}] * len(step.episodes)
    assert ends > 10
    manager.close()
