"""Environments with Tuple and Dict actions take rows, whatever steps them, and their masks cover the choices."""

import gymnasium
import numpy as np
import pytest
from fakes import JUDGED, Judge

from minding.envs import VectorEnvManager, check_env, describe_env, make_env_manager
from minding.envs.games.aim import Aim
from minding.envs.random_play import RandomPlay
from minding.envs.single.parallel_envs import AgentOptions, AgentsEnv
from minding.envs.single.wrappers import join_actions
from minding.envs.spaces.actions import JoinedActions
from minding.envs.spaces.info import sample_action

AIM = {"env_id": "minding/Aim-v0", "env_kwargs": {"blocked": 2}, "info_keys": ["action_mask"]}


@pytest.mark.parametrize(
    ("kind", "backend"),
    # A vector environment of Gymnasium makes the arrays of a Box () NumPy scalars, and warns of them.
    [
        ("tuple", "sync"),
        ("dict", "sync"),
        ("tuple", "vector"),
        pytest.param("dict", "subprocess", marks=pytest.mark.slow),
    ],
)
def test_every_backend_gives_actions_of_the_space(kind, backend):
    cfg = {"env_id": "fakes:Judge", "env_kwargs": {"kind": kind}}
    if backend == "vector":
        manager = VectorEnvManager(gymnasium.vector.SyncVectorEnv([lambda: Judge(kind)] * 3))
    else:
        manager = make_env_manager({**cfg, "backend": backend}, 3, 0)
    play = RandomPlay(manager, describe_env(cfg))
    manager.reset()
    env, codec = Judge(kind), JoinedActions(JUDGED[kind]).codec
    env.reset()
    for _ in range(3):
        rows = play.action()
        step = manager.step(rows)
        # The reward tells which action the environment was given.
        told = [env.step(codec.split(row))[1] for row in manager._adapter(rows)]
        np.testing.assert_allclose(step.reward, told, rtol=1e-5)
    manager.close()


def test_a_mask_covers_the_choices_and_random_play_obeys_it():
    description = describe_env(AIM)
    assert description["observation"]["spaces"]["action_mask"] == {"kind": "action_mask", "counts": [4]}
    manager = make_env_manager(AIM, 3, 0)
    play = RandomPlay(manager, description)
    manager.reset()
    for _ in range(25):
        # The game raises for blocked directions.
        play.step()
    env, rng = Aim(blocked=2), np.random.default_rng(0)
    obs, info = env.reset(seed=0)
    joined = join_actions(env)
    drawn = [sample_action(joined, obs, info, rng) for _ in range(50)]
    assert {int(row[0]) for row in drawn} == set(np.flatnonzero(info["action_mask"]).tolist())
    assert check_env(AIM, steps=50)


def test_the_perfect_throw_and_a_blocked_direction():
    env = Aim(blocked=1)
    obs, _ = env.reset(seed=3)
    direction = int(np.argmax([obs[0], obs[1], -obs[0], -obs[1]]))
    assert env.step((direction, np.linalg.norm(obs, keepdims=True)))[1] == pytest.approx(1.0)
    _, info = env.reset(seed=3)
    with pytest.raises(ValueError, match="is blocked: expected one that"):
        env.step((int(np.argmin(info["action_mask"])), np.zeros(1)))
    own = Aim(own_forces=True)
    own.reset(seed=0)
    forces = [np.full(1, force) for force in (0.1, 0.2, 0.3, 0.4)]
    direction, distance = own._direction, own._distance
    assert own.step((direction, *forces))[1] == pytest.approx(1.0 - 2.0 * abs(0.1 * (direction + 1) - distance))
    with pytest.raises(ValueError, match="expected 0 to 3"):
        Aim(blocked=4)


class Judges:
    """A team whose agents are rewarded as `Judge` rewards one."""

    def __init__(self, **kinds):
        self.judges, self.possible_agents, self.agents = (
            {name: Judge(kind) for name, kind in kinds.items()},
            [*kinds],
            [],
        )

    def observation_space(self, agent):
        return self.judges[agent].observation_space

    def action_space(self, agent):
        return self.judges[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents
        told = {name: judge.reset(seed=seed) for name, judge in self.judges.items()}
        return {name: each[0] for name, each in told.items()}, {name: {} for name in told}

    def step(self, actions):
        told = {name: self.judges[name].step(action) for name, action in actions.items()}
        return tuple({name: each[k] for name, each in told.items()} for k in range(5))


@pytest.mark.parametrize("kind", ["tuple", "dict", "tuple of choices", "dict of numbers"])
def test_each_agent_of_a_team_gets_an_action_of_its_space(kind):
    env, single = AgentsEnv(Judges(a=kind, b=kind), "judges", AgentOptions()), Judge(kind)
    env.reset(seed=0)
    single.reset()
    for _ in range(3):
        rows = env.action_space.sample()
        assert rows.shape == (2, len(rows[0]))
        told = [single.step(env.single_action_space.codec.split(row))[1] for row in rows]
        np.testing.assert_allclose(env.step(rows)[1], told, rtol=1e-5)
