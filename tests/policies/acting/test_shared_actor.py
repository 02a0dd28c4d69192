"""One actor that the agents of an environment share."""

import numpy as np
import pytest
from fakes import space_of, tiny_config
from treevalue import FastTreeValue

from minding.engine.data.agent_axis import with_identity
from minding.engine.errors import SpaceError
from minding.policies import get_algorithm
from minding.policies.dqn import DQN
from minding.policies.ppo import PPO

SEEN = {"kind": "dict", "spaces": {"observation": space_of(3)}}
NAMES = ["a", "b"]


def team_config(algorithm="ppo", **kwargs):
    cfg = tiny_config(algorithm, SEEN, **kwargs)
    cfg.env.spec.update(num_agents=2, agents={"names": NAMES, "state": None, "team_reward": False})
    return cfg


@pytest.fixture(scope="module")
def policies():
    """The policy of a team, and of one agent with the same weights and random stream."""
    return PPO(team_config(), modes=("collect", "eval")), PPO(tiny_config("ppo", SEEN), modes=("collect", "eval"))


def team_obs(num_envs=4, seed=0):
    seen = np.random.default_rng(seed).standard_normal((num_envs, 2, 3)).astype(np.float32)
    return FastTreeValue({"observation": seen, "alive": np.ones((num_envs, 2), bool)}), seen.reshape(-1, 3)


def test_each_agent_acts_as_a_single_one_does(policies):
    team, single = policies
    obs, rows = team_obs()
    rows = FastTreeValue({"observation": rows})
    made, expected = team.collect_mode.forward(obs), single.collect_mode.forward(rows)
    assert made.keys() == expected.keys() == {"action", "log_prob", "value"}
    for name, values in made.items():
        assert values.shape == (4, 2)
        assert np.array_equal(values.reshape(-1), expected[name])
    assert np.array_equal(team.collect_mode.value(obs).reshape(-1), single.collect_mode.value(rows))
    assert np.array_equal(team.eval_mode.forward(obs).reshape(-1), single.eval_mode.forward(rows))


def test_agents_act_by_their_numbers_and_opponents_by_ours():
    seen = with_identity(SEEN, 2)
    spec = {"num_agents": 2, "agents": {"names": NAMES, "state": None, "team_reward": False}}
    cfg = tiny_config("ppo", seen)
    cfg.env.spec.update(spec)
    obs = FastTreeValue({"observation": np.ones((4, 2, 3), np.float32), "alive": np.ones((4, 2), bool)})
    first, second = PPO(cfg, modes=("eval", "collect")).collect_mode.forward(obs)["value"].T
    assert len({*first}) == len({*second}) == 1
    assert first[0] != second[0]
    cfg.league.opponents = ["a"]
    assert PPO(cfg, modes=("eval", "collect")).collect_mode.forward(obs)["value"].tolist() == [[second[0]] * 2] * 4


def test_an_evaluation_may_draw_and_each_draws_the_same():
    obs, rows = team_obs(num_envs=2000)
    drawn, likeliest = (
        PPO(team_config(**{"policy.eval.deterministic": given}), modes=("eval",)).eval_mode for given in (False, True)
    )
    before = drawn.forward(obs)
    drawn.reset([0])
    later = drawn.forward(obs)
    drawn.reset()
    assert np.array_equal(drawn.forward(obs), before)
    assert (later != before).any()
    logits = drawn.actor.actor.outputs({"observation": rows})[1]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    counts, expected = np.bincount(before.ravel(), minlength=odds.shape[1]), odds.sum(axis=0)
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()
    assert np.array_equal(likeliest.forward(obs).ravel(), logits.argmax(axis=1))


def test_random_actions_have_the_axis(policies):
    assert policies[0].collect_mode.forward(team_obs()[0], random=True)["action"].shape == (4, 2)


def test_a_memory_belongs_to_each_agent_and_its_environment():
    memory = {"policy.model.memory": "gru", "policy.model.memory_dim": 4}
    mode = PPO(team_config(**memory), modes=("collect",)).collect_mode
    obs, _ = team_obs()
    assert mode.memory is None
    assert not mode.forward(obs)["memory"].any()
    remembered = mode.memory.copy()
    assert remembered.shape == (4, 2, 4)
    assert np.array_equal(mode.forward(obs)["memory"], remembered)
    kept = mode.memory[[0, 3]].copy()
    mode.reset(np.array([1, 2]))
    assert not mode.memory[[1, 2]].any()
    assert np.array_equal(mode.memory[[0, 3]], kept)
    final = FastTreeValue({"observation": obs.observation[:2], "alive": obs.alive[:2]})
    assert mode.value(final, remembered[:2]).shape == (2, 2)


def test_algorithms_for_one_agent_say_so():
    with pytest.raises(SpaceError, match=r"policy.type='dqn' learns for one agent, but the environment has 2: .*'ppo'"):
        DQN(team_config("dqn"))
    for name in ("sac", "impala", "a3c", "dqn"):
        assert get_algorithm(name).agents == "one"
