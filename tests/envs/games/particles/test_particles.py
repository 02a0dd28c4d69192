"""simple_spread and simple_tag for many worlds: number for number the games of mpe2."""

import numpy as np
import pytest

from minding.engine.data import obs_trees
from minding.engine.errors import ConfigError
from minding.envs import make_env_manager
from minding.envs.games.particles import simple_spread

pytest.importorskip("mpe2", reason="needs the extra 'mpe'")

STEPS = 60
GAMES = {
    "spread": {},
    "spread of 5": {
        "env_kwargs": {"N": 5, "continuous_actions": True, "local_ratio": 0.3, "dynamic_rescaling": False},
        "team_reward": True,
    },
    "tag": {"max_episode_steps": STEPS, "team_reward": True},
    "tag, 4 against 2": {
        "env_kwargs": {
            **{"num_good": 2, "num_adversaries": 4, "num_obstacles": 0},
            **{"continuous_actions": True, "terminate_on_success": True},
        }
    },
}


def settings(name, **env):
    own_limit = 2 * STEPS if "max_episode_steps" in env else STEPS
    kwargs = {"max_cycles": own_limit, **env.pop("env_kwargs", {})}
    return {"env_id": f"mpe2/simple_{name}_v3", "env_kwargs": kwargs, **env}


def own_worlds(manager):
    """The worlds of mpe2 behind a manager."""
    return [env.unwrapped.parallel.unwrapped.world for env in manager._source._group._envs]


def pair(env, num_envs):
    """A native manager and one of mpe2's own worlds, in equal states with little room."""
    native, single = (make_env_manager({**env, "backend": backend}, num_envs, 3) for backend in ("native", "sync"))
    native.reset()
    single.reset()
    vector = native._source._env
    assert vector.single_observation_space == single._source._group._envs[0].observation_space
    assert vector.single_observation_space.team == single._source._group._envs[0].observation_space.team
    vector.positions *= 0.25
    vector.velocities[:] = np.random.default_rng(0).normal(0, 0.5, vector.velocities.shape)
    for world, positions, velocities in zip(own_worlds(single), vector.positions, vector.velocities):
        for entity, position in zip(world.entities, positions):
            entity.state.p_pos = position.copy()
        for agent, velocity in zip(world.agents, velocities):
            agent.state.p_vel = velocity.copy()
    return native, single


def drawn(manager, rng):
    shape = manager.obs.alive.shape
    if manager._adapter.continuous:
        # Beyond the bounds as well.
        return rng.uniform(-1.3, 1.3, (*shape, 5)).astype(np.float32)
    return rng.integers(0, 5, shape)


def in_contact(vector):
    """In which worlds agents touch each other."""
    agents = vector.velocities.shape[1]
    size = np.array(vector.scenario.bodies().size)[:agents]
    apart = vector.positions[:, :agents, None] - vector.positions[:, None, :agents]
    return (np.linalg.norm(apart, axis=-1) + 9 * np.eye(agents) < size[:, None] + size).any(axis=(1, 2))


def assert_same_rows(one, other, rows):
    for (path, a), (_, b) in zip(obs_trees.leaves(one), obs_trees.leaves(other), strict=True):
        assert a.dtype == b.dtype, path
        assert np.array_equal(a[rows], b[rows]), path


@pytest.mark.parametrize("game", GAMES)
def test_steps_are_those_of_mpe2_bit_by_bit(game):
    count = 4
    native, single = pair(settings(game[: 3 if "tag" in game else 6], **GAMES[game], global_state=True), count)
    vector, worlds = native._source._env, own_worlds(single)
    rng, going, contacts, ends = np.random.default_rng(1), np.ones(count, bool), 0, np.zeros(2, int)
    for _ in range(STEPS):
        action = drawn(native, rng)
        one, other = native.step(action), single.step(action)
        assert_same_rows(one.next_obs, other.next_obs, going)
        for part in ("reward", "terminated", "truncated"):
            assert np.array_equal(getattr(one, part)[going], getattr(other, part)[going]), part
        ends += one.terminated[going].sum(), one.truncated[going].sum()
        # New episodes begin elsewhere.
        going &= ~(one.terminated | one.truncated)
        for n in np.flatnonzero(going):
            assert np.array_equal(vector.positions[n], [entity.state.p_pos for entity in worlds[n].entities])
            assert np.array_equal(vector.velocities[n], [agent.state.p_vel for agent in worlds[n].agents])
        contacts += in_contact(vector)[going].sum()
    assert contacts > 5
    assert ends.sum() == count
    assert (ends[0] > 0) == (game == "tag, 4 against 2")
    native.close()
    single.close()


def test_spread_ends_when_covered_or_out_of_time():
    vector = simple_spread(3, max_cycles=4, terminate_on_success=True, N=2)
    vector.reset(seed=0)
    vector.positions[:] = [[0, 0], [5, 5], [5, 5.05], [0, 0.05]]
    vector.positions[1, 3] = 0, 0.3
    vector.steps[2] = 3
    obs, reward, terminated, truncated, _ = vector.step(np.zeros((3, 2), np.int64))
    assert terminated.tolist() == [True, False, False]
    assert truncated.tolist() == [False, False, True]
    assert obs["alive"].tolist() == [[False] * 2, [True] * 2, [True] * 2]
    assert reward[:, 0] == pytest.approx([-0.05, -0.175, -0.05])


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [({"curriculum": True}, "curriculum=True is for single worlds alone"), ({"num_agent_neighbors": 1}, "neighbors=1")],
)
def test_what_only_single_worlds_have_is_played_by_mpe2(kwargs, reason, caplog):
    env = settings("spread", env_kwargs=kwargs)
    make_env_manager(env, 6, 0).close()
    assert reason in caplog.text
    assert "env.backend=auto steps single environments" in caplog.text
    with pytest.raises(ConfigError, match=f"its vector version cannot be made: ValueError: .*{reason}.*; use 'sync'"):
        make_env_manager({**env, "backend": "native"}, 6, 0)
