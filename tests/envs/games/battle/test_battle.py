"""The battle: hand-computed fights, what units see, the three forms of one game, and who wins."""

import warnings

import numpy as np
import pytest

from minding.engine.data import obs_trees
from minding.envs import describe_env, make_env_manager
from minding.envs.games.battle import BattleVector, parallel_env
from minding.envs.games.battle.duel import parallel_env as duel_env
from minding.envs.games.battle.rules import LIFE, MAPS, WAIT, BattleMap, Battles, Orders, Views, attack_nearest, survey
from minding.envs.games.battle.single import UnitsGame

STAY, NORTH, SOUTH, EAST, WEST = 1, 2, 3, 4, 5


def shoot(k):
    return 6 + k


def placed(*units, field=None, count=1):
    """Battles with these units as (x, y, health, wait)."""
    battles = Battles(field or BattleMap(2, 2, width=10, height=8), count)
    battles.units[:] = np.array(units, np.float32)
    return battles


def legal_in(battles):
    return survey(battles.field, battles.units).legal


def step(battles, action, enemies=None):
    now = survey(battles.field, battles.units)
    orders = battles.orders(np.array([action] * battles.count), now)
    still = np.full((battles.count, battles.field.enemies), -1)
    script = attack_nearest(battles.field, now) if enemies == "script" else Orders(still, still, still)
    return battles.step(orders, script)


def test_shots_take_health_and_the_rifle_needs_a_pause():
    battles = placed((1, 1, 40, 0), (1, 3, 40, 0), (4, 1, 40, 0), (9, 7, 40, 0))
    outcome = step(battles, [shoot(0), shoot(0)])
    assert battles.units[0, :, LIFE].tolist() == [40, 40, 24, 40]
    assert battles.units[0, :, WAIT].tolist() == [2, 2, 0, 0]
    # 16 of 300: two enemies with 40 each, 10 for each kill, 200 for the victory.
    assert outcome.reward[0] == pytest.approx(16 * 20 / 300)
    legal = legal_in(battles)
    assert not legal[0, :, 6:].any()
    step(battles, [STAY, STAY])
    step(battles, [STAY, STAY])
    assert legal_in(battles)[0, :, 6:].tolist() == [[True, False], [True, False]]


def test_the_last_kill_is_the_victory_and_brings_twenty_in_all():
    battles = placed((1, 1, 40, 0), (1, 3, 40, 0), (4, 1, 8, 0), (4, 3, 8, 0))
    outcome = step(battles, [shoot(0), shoot(1)], enemies="script")
    # The dead have shot in the same step.
    assert battles.units[0, :, LIFE].tolist() == [33, 33, 0, 0]
    assert (outcome.won.tolist(), outcome.over.tolist()) == ([True], [True])
    assert outcome.reward[0] == pytest.approx((16 + 20 + 200) * 20 / 300)
    assert not battles.units[0, 2:].any()


def test_who_falls_with_the_enemy_has_not_won():
    battles = placed((1, 1, 7, 0), (0, 0, 0, 0), (4, 1, 8, 0), (0, 0, 0, 0))
    outcome = step(battles, [shoot(0), 0], enemies="script")
    assert (outcome.won.tolist(), outcome.over.tolist()) == ([False], [True])


def test_two_units_never_share_a_cell():
    battles = placed((1, 1, 40, 0), (3, 1, 40, 0), (8, 1, 40, 0), (8, 2, 40, 0))
    step(battles, [EAST, WEST])
    # The first takes the cell between them.
    assert battles.units[0, :2, :2].tolist() == [[2, 1], [3, 1]]
    step(battles, [STAY, WEST])
    assert battles.units[0, :2, :2].tolist() == [[2, 1], [3, 1]]
    step(battles, [WEST, WEST])
    assert battles.units[0, :2, :2].tolist() == [[1, 1], [2, 1]]


def test_the_field_ends_where_the_mask_says_so():
    battles = placed((0, 0, 40, 0), (9, 7, 40, 0), (5, 5, 40, 0), (0, 0, 0, 0))
    legal = legal_in(battles)[0]
    # No-op, stay, north, south, east, west.
    assert legal[0, :6].tolist() == [False, True, False, True, True, False]
    assert legal[1, :6].tolist() == [False, True, True, False, False, True]
    assert legal[1, 6:].tolist() == [True, False]
    with pytest.raises(ValueError, match="action 2 of unit 0 in battle 0 is illegal"):
        step(battles, [NORTH, STAY])


def test_the_dead_have_nothing_but_the_action_of_the_dead():
    battles = placed((0, 0, 0, 0), (5, 5, 40, 0), (6, 5, 40, 0), (7, 5, 40, 0))
    distances = survey(battles.field, battles.units).distances
    assert legal_in(battles)[0, 0].tolist() == [True] + [False] * 7
    assert np.isinf(distances[0, 0]).all()
    # Whatever they are told.
    step(battles, [NORTH, STAY])
    assert not battles.units[0, 0].any()


def test_what_a_unit_sees():
    battles = placed((1, 1, 40, 0), (1, 4, 20, 1), (4, 5, 8, 0), (9, 7, 40, 0))
    seen = Views(battles.field).observe(survey(battles.field, battles.units))[0]
    moves, near, far, friend, own = (
        [1, 1, 1, 1],
        [1, 5 / 8, 3 / 8, 4 / 8, 0.2, 1],
        [0] * 6,
        [1, 3 / 8, 0, 3 / 8, 0.5, 0],
        1,
    )
    middle = [(1 - 4.5) / 4.5, (1 - 3.5) / 3.5]
    # Nine cells away is beyond the sight of 8.
    assert seen[0] == pytest.approx([*moves, *near, *far, *friend, own, 1, *middle])
    assert seen[1, -4:] == pytest.approx([0.5, 0, (1 - 4.5) / 4.5, (4 - 3.5) / 3.5])
    battles.units[0, 1] = 0
    seen = Views(battles.field).observe(survey(battles.field, battles.units))[0]
    assert not seen[1].any()
    assert not seen[0, 16:22].any()


def test_the_limit_cuts_off_what_is_not_decided():
    battle = BattleVector(1)
    battle.reset(seed=0)
    battle.steps = np.array([58])
    stay = np.full((1, 3), STAY)
    none = {"battle_won": [False], "dead_allies": [0], "dead_enemies": [0]}
    for late in (False, True):
        _, _, over, truncated, info = battle.step(stay)
        assert (over.tolist(), truncated.tolist()) == ([False], [late])
        assert {key: x.tolist() for key, x in info.items()} == none
    battle.units = np.array([[(1, 1, 40, 0), *[(0, 0, 0, 0)] * 2, (2, 1, 8, 0), *[(0, 0, 0, 0)] * 2]], np.float32)
    battle.steps = np.array([59])
    _, _, over, truncated, info = battle.step(np.array([[shoot(0), 0, 0]]))
    assert (over.tolist(), truncated.tolist()) == ([True], [False])
    assert {key: x.tolist() for key, x in info.items()} == {
        "battle_won": [True],
        "dead_allies": [2],
        "dead_enemies": [3],
    }


def legal_actions(mask, rng):
    return np.where(mask, rng.random(mask.shape), -1).argmax(axis=-1)


def test_battles_that_begin_anew_change_no_others():
    rng = np.random.default_rng(0)
    vector = BattleVector(5, "3v3", global_state=True)
    obs, _ = vector.reset(seed=1)
    for _ in range(12):
        obs, *_ = vector.step(legal_actions(obs["action_mask"], rng))
    before = {key: array.copy() for key, array in obs.items()}
    begins = np.array([False, True, False, False, True])
    after, _ = vector.reset(options={"reset_mask": begins})
    now = survey(MAPS["3v3"], vector.units)
    views = Views(MAPS["3v3"])
    assert np.array_equal(after["observation"], views.observe(now))
    assert np.array_equal(after["state"], views.state(now, vector.steps))
    assert after["alive"][begins].all()
    assert (vector.steps == np.where(begins, 0, 12)).all()
    for key in obs:
        assert np.array_equal(after[key][~begins], before[key][~begins])
        # What was returned is not written again.
        assert np.array_equal(obs[key], before[key])


def same_battle(env, units):
    """Puts a single environment into the battle with these units."""
    env.unwrapped.parallel._vector.units = units[None]


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        ("minding/Battle-v0", {"global_state": True, "info_keys": ["battle_won"]}),
        ("minding/Duel-v0", {"info_keys": ["score"]}),
    ],
)
def test_backends_give_the_same_arrays(env_id, settings):
    native, single = (make_env_manager({"env_id": env_id, "backend": b, **settings}, 6, 0) for b in ("native", "sync"))
    native.reset()
    single.reset()
    for n, env in enumerate(single._source._group._envs):
        same_battle(env, native._source._env.units[n])
    (told,) = settings["info_keys"]
    rng, mask, ends = np.random.default_rng(0), np.asarray(native.obs.action_mask), 0
    for _ in range(60):
        actions = legal_actions(mask, rng)
        one, other = native.step(actions), single.step(actions)
        assert np.array_equal(one.terminated, other.terminated)
        assert np.array_equal(one.truncated, other.truncated)
        assert one.reward == pytest.approx(other.reward, abs=1e-6)
        for (path, a), (_, b) in zip(obs_trees.leaves(one.next_obs), obs_trees.leaves(other.next_obs), strict=True):
            assert a.dtype == b.dtype, path
            assert np.array_equal(a, b), path
        assert np.array_equal(one.info[told], other.info[told])
        assert [end.info for end in one.episodes] == [end.info for end in other.episodes]
        ends += len(one.episodes)
        if ends:
            break
        mask = one.obs.action_mask
    assert ends
    native.close()
    single.close()


def test_a_map_is_changed_by_its_name_alone():
    for name, field in MAPS.items():
        described = describe_env({"env_id": "minding/Battle-v0", "env_kwargs": {"map_name": name}})
        assert described["num_agents"] == field.allies
        assert described["action"]["n"] == 6 + field.enemies
        assert described["max_episode_steps"] == field.limit
        assert described["agents"]["team_reward"]
    with pytest.raises(Exception, match="map_name='3v4': unknown map; did you mean"):
        describe_env({"env_id": "minding/Battle-v0", "env_kwargs": {"map_name": "3v4"}})


class Obedient(UnitsGame):
    """Takes the next legal action for one that is not: PettingZoo's test of seeds ignores masks."""

    def step(self, actions):
        masks = self._shown["action_mask"][0]
        legal = {}
        for agent, action in actions.items():
            mask = masks[self.possible_agents.index(agent)]
            legal[agent] = next(k % len(mask) for k in range(action, 2 * len(mask)) if mask[k % len(mask)])
        return super().step(legal)


@pytest.mark.parametrize("make", [parallel_env, duel_env])
def test_battles_and_duels_pass_the_tests_of_pettingzoo(make):
    with warnings.catch_warnings():
        # Its tests import environments in a way that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from pettingzoo.test import parallel_api_test, parallel_seed_test, seed_test
        from pettingzoo.utils.conversions import parallel_to_aec

    parallel_api_test(make("3v3"), num_cycles=100)
    seed_test(lambda: parallel_to_aec(make("3v3")), num_cycles=40)
    if make is parallel_env:
        parallel_seed_test(lambda: Obedient(BattleVector(1, global_state=True), "Battle"), num_cycles=40)
