"""The duel: both teams see the battle as their own, and earn what the other one loses."""

import numpy as np
import pytest

from minding.envs import describe_env
from minding.envs.games.battle.duel import Duels, DuelVector
from minding.envs.games.battle.rules import BattleMap

STAY, NORTH, SOUTH, EAST, WEST, SHOOT = range(1, 7)
FIELD = BattleMap(2, 2, width=10, height=8)


def placed(*units):
    duels = Duels(FIELD, 1)
    duels.battles.units[:] = np.array(units, np.float32)
    duels.look()
    return duels


def test_each_team_sees_itself_on_the_left():
    # The second team stands where the first one does, seen from the other side.
    duels = placed((1, 1, 40, 0), (2, 5, 24, 1), (8, 1, 40, 0), (7, 5, 24, 1))
    seen = duels.observe()[0]
    assert np.array_equal(seen[:2], seen[2:])
    assert np.array_equal(duels.legal[0, :2], duels.legal[0, 2:])
    # Which is why both go east to meet.
    duels.step(np.array([[EAST, NORTH, EAST, NORTH]]))
    assert duels.battles.units[0, :, :2].tolist() == [[2, 1], [2, 4], [7, 1], [7, 4]]


def test_a_team_earns_what_the_other_loses():
    duels = placed((1, 1, 40, 0), (1, 3, 40, 0), (4, 1, 40, 0), (4, 3, 8, 0))
    step = duels.step(np.array([[SHOOT, SHOOT + 1, STAY, SHOOT]]))
    assert duels.battles.units[0, :, 2].tolist() == [32, 40, 32, 0]
    # 16 damage and a kill, less 8 damage, for two units.
    gained = (16 + 10 - 8) * 20 / 300 / 2
    assert step.reward[0] == pytest.approx([gained, gained, -gained, -gained])
    assert (step.score[0], step.over[0]) == (0.5, False)
    # The dead forgo it.
    duels.battles.units[0, 2, 2:] = 8, 0
    duels.battles.units[0, :2, 3] = 0
    duels.look()
    step = duels.step(np.array([[SHOOT, STAY, STAY, 0]]))
    gained = (8 + 10 + 200) * 20 / 300 / 2
    assert step.reward[0] == pytest.approx([gained, gained, -gained, 0])
    assert (step.score[0], step.over[0]) == (1.0, True)


def test_the_rewards_of_both_teams_are_summed_where_asked():
    each, both = (DuelVector(6, team_reward=summed) for summed in (False, True))
    rng, paid = np.random.default_rng(0), 0
    obs, both_obs = each.reset(seed=2)[0], both.reset(seed=2)[0]
    for _ in range(12):
        assert np.array_equal(obs["observation"], both_obs["observation"])
        mask = obs["action_mask"]
        actions = np.where(mask, rng.random(mask.shape), -1).argmax(axis=-1)
        obs, reward, *_ = each.step(actions)
        both_obs, total, *_ = both.step(actions)
        assert total == pytest.approx(reward.sum(axis=1))
        paid += np.count_nonzero(reward)
    assert paid
    assert not both.single_observation_space.reward_shape


def test_a_duel_needs_teams_of_one_size():
    spec = describe_env({"env_id": "minding/Duel-v0", "env_kwargs": {"map_name": "5v5"}})
    assert spec["num_agents"] == 10
    with pytest.raises(ValueError, match="a duel needs teams of one size"):
        DuelVector(2, "5v6")
