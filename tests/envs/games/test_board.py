"""Board games as environments of one player against an opponent."""

import gymnasium
import numpy as np
import pytest

from minding.engine.data.observation import random_legal
from minding.engine.errors import GameError
from minding.envs import make_env_manager
from minding.envs.games.board import BoardEnv, BoardVector
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe


class Scripted:
    """An opponent that plays given actions, one per call, in all games."""

    name = "scripted"

    def __init__(self, *actions):
        self.actions = list(actions)

    def __call__(self, game, state, rng):
        return np.full(len(state[0]), self.actions.pop(0))


@pytest.mark.parametrize(
    ("first", "replies", "actions", "rewards"),
    [
        pytest.param(True, [3, 4], [0, 1, 2], [0, 0, 1], id="win"),
        pytest.param(True, [3, 4, 5], [0, 1, 8], [0, 0, -1], id="loss"),
        pytest.param(False, [0, 1, 2], [3, 4], [0, -1], id="loss as the second"),
        pytest.param(False, [8, 0, 1], [3, 4, 5], [0, 0, 1], id="win as the second"),
        pytest.param(True, [1, 4, 5, 6], [0, 2, 3, 7, 8], [0, 0, 0, 0, 0], id="draw by the agent"),
        pytest.param(False, [0, 2, 3, 7, 8], [1, 4, 5, 6], [0, 0, 0, 0], id="draw by the opponent"),
    ],
)
def test_the_reward_is_the_outcome_for_the_agent(first, replies, actions, rewards):
    env = BoardEnv(TicTacToe(), Scripted(*replies), first)
    obs, _ = env.reset(seed=0)
    assert obs["observation"].sum() == (0 if first else 1)
    earned = []
    for k, action in enumerate(actions):
        assert obs["action_mask"][action] == 1
        obs, reward, terminated, truncated, info = env.step(action)
        assert (terminated, truncated, info) == (k == len(actions) - 1, False, {})
        earned.append(reward)
        if not terminated:
            assert obs["observation"][0].sum() == k + 1, "the agent's own marks come first"
    assert earned == rewards
    assert not obs["action_mask"].any()


def test_the_side_is_given_or_drawn_from_the_seed():
    def opened(env, seed):
        return bool(env.reset(seed=seed)[0]["observation"].any())

    for first in (True, False):
        env = gymnasium.make("minding/ConnectFour-v0", first=first)
        assert {opened(env, seed) for seed in range(10)} == {not first}
    env = gymnasium.make("minding/ConnectFour-v0")
    drawn = [opened(env, seed) for seed in range(60)]
    assert 15 < sum(drawn) < 45
    assert drawn == [opened(env, seed) for seed in range(60)]


@pytest.mark.parametrize("opponent", ["random", "uct:10"])
def test_the_vector_version_plays_alike_and_resumes_exactly(opponent):
    settings = {"env_id": "minding/ConnectFour-v0", "env_kwargs": {"opponent": opponent}, "backend": "native"}
    managers, game = [make_env_manager(settings, 8, seed) for seed in (0, 9)], ConnectFour()
    rng, ended = np.random.default_rng(0), []
    for t in range(30):
        obs = managers[0].obs
        action = random_legal(obs.action_mask, [7], rng)
        if t == 5:
            managers[1].load_state_dict(managers[0].state_dict())
            assert managers[1].resume_guarantee == "exact"
        steps = [manager.step(action) for manager in managers[: 1 + (t >= 5)]]
        if t >= 5:
            assert np.array_equal(steps[0].obs.observation, steps[1].obs.observation)
            assert np.array_equal(steps[0].reward, steps[1].reward)
        step = steps[0]
        for n in range(8):
            check_reply(game, obs.observation[n], action[n], step, n)
        ended += step.episodes
        # After an end a new game has begun, in which the opponent may have played already.
        assert (step.obs.observation[step.terminated].sum(axis=(1, 2, 3)) <= 1).all()
    assert len(ended) > 5
    assert {end.episode_return for end in ended} <= {-1.0, 0.0, 1.0}
    for manager in managers:
        manager.close()


def check_reply(game, planes, action, step, n):
    """Whether a step follows from its observation by the agent's action and one answer of the opponent."""
    bits = 2 ** np.array([[c * 7 + r for c in range(7)] for r in reversed(range(6))], np.uint64)
    own, other = (bits[plane > 0].sum(dtype=np.uint64)[None] for plane in planes)
    state, over, outcome = game.play((own, own | other), action[None])
    if over[0]:
        assert (step.terminated[n], step.reward[n]) == (True, -outcome[0])
        return
    answers = np.flatnonzero(game.legal(state)[0])
    found = [game.play(state, answer[None]) for answer in answers]
    matches = [x for x in found if np.array_equal(game.planes(x[0])[0], step.next_obs.observation[n])]
    assert len(matches) == 1
    assert (step.terminated[n], step.reward[n]) == (matches[0][1][0], matches[0][2][0])


def test_the_opponent_is_asked_once_per_step_for_all_games():
    calls = []

    class Counting(Scripted):
        def __call__(self, game, state, rng):
            calls.append(len(state[0]))
            return game.legal(state).argmax(axis=1)

    games = BoardVector(5, TicTacToe(), Counting(), False)
    games.reset(seed=0)
    games.step(np.array([3, 4, 5, 6, 7]))
    assert calls == [5, 5]


@pytest.mark.parametrize(
    ("mine", "theirs", "reward"), [((0, 1, 2), (3, 4), 1.0), ((0, 1, 8), (3, 4, 5), -1.0)], ids=["won", "lost"]
)
def test_pictures_show_the_agent_in_red_whoever_ended_the_game(mine, theirs, reward):
    env = BoardEnv(TicTacToe(), Scripted(*theirs), True, render_mode="rgb_array")
    env.reset(seed=0)
    told = [env.step(square)[1] for square in mine][-1]
    middles = env.render()[20::40, 20::40].reshape(9, 3)
    assert told == reward
    assert [k for k in range(9) if middles[k, 0] > 200 and middles[k, 1] < 100] == list(mine)
    assert [k for k in range(9) if middles[k, 0] > 200 and 100 < middles[k, 1] < 220] == list(theirs)
    assert BoardEnv(TicTacToe()).render() is None


@pytest.mark.parametrize("stones", [None, lambda self, state: -TicTacToe().planes(state)[:, 1].astype(np.int8)])
def test_pictures_ask_the_rules_for_the_stones(stones):
    methods = {"planes": lambda self, state: np.stack([TicTacToe.planes(self, state)[:, 0]] * 2, axis=1)}
    rules = type("Odd", (TicTacToe,), methods if stones is None else {**methods, "stones": stones})()
    env = BoardEnv(rules, Scripted(3), True, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(0)
    if stones is None:
        with pytest.raises(GameError, match=r"Odd: its planes do not show where the stones are: give the rules a meth"):
            env.render()
    else:
        yellow = (env.render()[20::40, 20::40].reshape(9, 3) == (244, 197, 66)).all(axis=1)
        assert np.flatnonzero(yellow).tolist() == [3]


def test_an_agent_plays_both_sides_one_ply_per_step():
    env = BoardEnv(TicTacToe(), "self")
    obs, _ = env.reset(seed=0)
    for k, action in enumerate([0, 3, 1, 4, 2]):
        # The own stones come first, of either side.
        assert obs["observation"].sum(axis=(1, 2)).tolist() == [k // 2, (k + 1) // 2]
        obs, reward, terminated, _, _ = env.step(action)
        assert (reward, terminated) == (float(k == 4), k == 4)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(GameError, match="game 0, ply 2: obey"):
        env.step(0)


def test_openings_have_up_to_the_given_plies_and_end_no_game():
    games = BoardVector(600, TicTacToe(), "self:6")
    obs, _ = games.reset(seed=0)
    counts = np.bincount(obs["observation"].sum(axis=(1, 2, 3)).astype(int), minlength=8)
    assert counts[:6].min() > 60
    assert 0 < counts[6] < 110
    assert counts[7] == 0
    assert obs["action_mask"].any(axis=1).all()
    assert not games.over.any()
