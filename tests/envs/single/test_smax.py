"""SMAX: the battles of JaxMARL, with small worlds in NumPy that have the interface of the compiled ones."""

import sys

import numpy as np
import pytest

from minding.engine.errors import ConfigError, MissingExtraError
from minding.envs import describe_env, make_env_manager
from minding.envs.single.parallel_envs import AgentOptions, AgentsEnv
from minding.envs.single.smax import MAPS, JaxWorlds, SmaxVector, View, battle_of

LIMIT = 5


class SmallWorlds:
    """Two allies against an enemy with 4 points, of which action 1 takes one; the second ally dies in the third step.

    The parts are the steps, the enemy's points and a number that the seed draws.
    """

    allies, enemies, limit, sight, actions, state_size, parts = 2, 1, LIMIT, 2, 3, 3, 3

    def begin(self, seed, count):
        drawn = np.random.default_rng(seed).integers(9, size=count)
        return self._with_view(np.zeros(count, np.int64), np.full(count, 4), drawn)

    def step(self, seed, parts, actions):
        steps, points, drawn = parts
        damage = np.minimum((actions == 1).sum(axis=1), points)
        parts, view = self._with_view(steps + 1, points - damage, (drawn + seed) % 9)
        return parts, view, (damage / 4).astype(np.float32)

    def _with_view(self, steps, points, drawn):
        allies = np.stack([np.ones_like(steps), steps < 3], 1).astype(bool)
        seen = np.stack([np.stack([steps, points], 1)] * 2, 1).astype(np.float32) * allies[..., None]
        mask = np.ones((len(steps), 2, 3), bool)
        mask[:, :, 2] = allies & (steps % 2 == 0)[:, None]
        state = np.stack([steps, points, drawn], 1).astype(np.float32)
        return (steps, points, drawn), View(seen, mask, allies, (points > 0)[:, None], state, steps >= self.limit)


def small():
    return battle_of(SmallWorlds())


small.vector_env = lambda num_envs, max_episode_steps=None, global_state=False, team_reward=False: SmaxVector(
    num_envs, SmallWorlds(), global_state=global_state
)
KEYS = ["battle_won", "dead_allies", "dead_enemies"]


def manager_of(backend, keys=KEYS):
    settings = {"env_id": "test_smax:small", "info_keys": keys, "global_state": True, "backend": backend}
    return make_env_manager(settings, 3, 0)


def test_no_world_is_compiled_to_learn_the_space_of_the_state(monkeypatch):
    monkeypatch.setattr(SmallWorlds, "begin", None)
    env = AgentsEnv(small(), "small", AgentOptions(global_state=True))
    assert env.observation_space.state.shape == (3,)


def test_the_space_and_the_limit_are_those_of_the_map():
    described = describe_env({"env_id": "test_smax:small", "global_state": True})
    assert described["agents"]["names"] == ["unit_0", "unit_1"]
    assert described["agents"]["team_reward"]
    assert described["agents"]["state"]["shape"] == [3]
    assert described["max_episode_steps"] == LIMIT


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_a_victory_is_an_end_and_the_limit_a_truncation(backend):
    manager = manager_of(backend)
    # Of two shooters, one shooter and none.
    actions = np.array([[1, 1], [1, 0], [0, 0]])
    found = [manager.step(actions) for _ in range(LIMIT)]
    assert [step.reward.tolist() for step in found[:2]] == [[0.5, 0.25, 0]] * 2
    assert [step.terminated.tolist() for step in found[1:4]] == [[True, False, False], [False] * 3, [True, True, False]]
    assert found[4].truncated.tolist() == [False, False, True]
    ends = {(end.env_id, end.episode_length): (end.episode_return, end.info) for end in found[3].episodes}
    assert ends[1, 4] == (1, {"battle_won": 1, "dead_allies": 1, "dead_enemies": 1})
    assert found[4].episodes[0].info == {"battle_won": 0, "dead_allies": 1, "dead_enemies": 0}
    assert [step.next_obs.alive[2].tolist() for step in found] == [[True, True]] * 2 + [[True, False]] * 3
    assert not found[1].next_obs.alive[0].any()
    # The absent may do anything; others obey their masks.
    assert [step.next_obs.action_mask[2].astype(int).tolist() for step in found[:3]] == [
        [[1, 1, 0], [1, 1, 0]],
        [[1, 1, 1], [1, 1, 1]],
        [[1, 1, 0], [1, 1, 1]],
    ]
    assert found[4].next_obs.observation[2].tolist() == [[5, 4], [0, 0]]
    assert found[4].next_obs.state[2, :2].tolist() == [5, 4]
    assert found[4].obs.observation[2].tolist() == [[0, 4], [0, 4]]
    # The other worlds go on.
    assert found[4].obs.observation[1].tolist() == [[1, 3], [1, 3]]


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_worlds_are_resumed_exactly(backend):
    first, second = manager_of(backend, []), manager_of(backend, [])
    rng = np.random.default_rng(0)
    for _ in range(7):
        first.step(rng.integers(0, 2, (3, 2)))
    assert first.resume_guarantee == "exact"
    second.load_state_dict(first.state_dict())
    for _ in range(12):
        actions = rng.integers(0, 2, (3, 2))
        one, other = first.step(actions), second.step(actions)
        assert np.array_equal(one.obs.state, other.obs.state)
        assert np.array_equal(one.next_obs.state, other.next_obs.state)
        assert np.array_equal(one.reward, other.reward)
        # A world that ends begins again, and the others go on.
        assert np.array_equal(one.obs.observation[:, 0, 0], first.episode_steps)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(MissingExtraError, match=r"'jaxmarl'.*pip install -e '.\[smax\]'"):
        describe_env({"env_id": "smax/3m"})


def test_an_unknown_map_names_the_nearest_in_any_case():
    with pytest.raises(ConfigError, match="no such map; did you mean '5m_vs_6m'"):
        describe_env({"env_id": "smax/5m_v_6m"})


@pytest.mark.slow
def test_compiled_worlds_are_those_of_jaxmarl():
    jax = pytest.importorskip("jax", reason="needs the extra 'smax'")
    smax = pytest.importorskip("jaxmarl.environments.smax", reason="needs the extra 'smax'")
    assert {*MAPS} == smax.smax_env.MAP_NAME_TO_SCENARIO.keys()
    scenario, seed = smax.smax_env.MAP_NAME_TO_SCENARIO["5m_vs_6m"], 3
    worlds, env = JaxWorlds(scenario, None, {}), smax.HeuristicEnemySMAX(scenario=scenario)
    (parts, view), keys = worlds.begin(seed, 2), jax.random.split(jax.random.PRNGKey(seed), 2)
    theirs = [env.reset(key) for key in keys]
    assert (worlds.allies, worlds.enemies, worlds.actions, worlds.limit) == (5, 6, 11, 100)
    rng = np.random.default_rng(0)
    for _ in range(20):
        for n, (obs, world) in enumerate(theirs):
            legal = env.get_avail_actions(world)
            for m, name in enumerate(env.agents):
                np.testing.assert_allclose(view.observation[n, m], obs[name], atol=1e-5)
                assert np.array_equal(view.mask[n, m], np.asarray(legal[name]) > 0)
            np.testing.assert_allclose(view.state[n], obs["world_state"], atol=1e-4)
        actions = (rng.random(view.mask.shape) * view.mask).argmax(axis=2)
        parts, view, reward = worlds.step(seed, parts, actions)
        steps = [
            env.step_env(key, world, dict(zip(env.agents, actions[n])))
            for n, (key, (_, world)) in enumerate(zip(keys, theirs))
        ]
        assert [float(step[2]["ally_0"]) for step in steps] == pytest.approx(reward.tolist(), abs=1e-6)
        assert [bool(step[3]["__all__"]) for step in steps] == [
            not (a.any() and e.any()) or bool(late) for a, e, late in zip(view.allies, view.enemies, view.late)
        ]
        theirs = [step[:2] for step in steps]
