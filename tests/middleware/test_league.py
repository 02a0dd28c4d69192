"""Past selves act for one side, are drawn by how rarely they are beaten, and rate the policy."""

import copy
import functools

import numpy as np
import pytest

from minding.configs import compile_run
from minding.configs.chains.league import evaluate, evaluator_env
from minding.engine import CheckpointError, OnlineRLContext
from minding.engine.data.obs_trees import unflatten
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.run.pool import ModelPool
from minding.engine.types import EnvStep, EpisodeEnd, LaneContext, Shippable
from minding.middleware import opponent_rater, past_selves
from minding.middleware.league import League, hard_first
from minding.training import make_policy


class Ring:
    """Two agents in each of three environments; episodes of two steps, which the first agent wins as `scores` say."""

    num_envs, resume_guarantee = 3, "exact"

    def __init__(self, scores=()):
        self.scores, self.steps, self.taken = [*scores, *[0.5] * 300], 0, []
        self.obs = self.observe()

    @property
    def episode_steps(self):
        return np.full(3, self.steps % 2)

    def observe(self):
        return unflatten({"observation": np.full((3, 2, 1), float(self.steps)), "alive": np.ones((3, 2), bool)})

    def reset(self, seed=None):
        self.obs = self.observe()
        return self.obs

    def step(self, action):
        self.taken.append(action.copy())
        self.steps += 1
        over = np.full(3, self.steps % 2 == 0)
        ends = [EpisodeEnd(n, 0.0, 2, {"won": self.scores.pop(0)}) for n in range(3)] if over[0] else []
        self.obs = self.observe()
        return EnvStep(self.obs, self.obs, np.zeros((3, 2)), over, over & False, None, ends)

    def factory(self):
        return lambda lane: Ring()

    def state_dict(self):
        return {"steps": self.steps, "scores": list(self.scores)}

    def load_state_dict(self, state):
        self.steps, self.scores = state["steps"], list(state["scores"])


class Weighted:
    """Acts as its weight says."""

    def __init__(self, weights):
        self.live, self.resets = weights, []

    def weights(self):
        return self.live

    def factory(self):
        return lambda lane: Weighted(lane.weights)

    def forward(self, obs):
        assert obs["alive"].all()
        return {"action": np.full((3, 2), int(self.live["w"][0]))}

    def reset(self, env_ids=None):
        self.resets.append(list(env_ids))

    def state_dict(self):
        return {"resets": len(self.resets)}

    def load_state_dict(self, state): ...


class Counting(Weighted):
    """Remembers how often it has acted in the episode of each environment, and acts as that says."""

    def __init__(self, weights):
        super().__init__(weights)
        self.acted = np.zeros(3, int)

    def factory(self):
        return lambda lane: Counting(lane.weights)

    def forward(self, obs):
        self.acted += 1
        return {"action": np.repeat(self.acted[:, None], 2, axis=1)}

    def reset(self, env_ids=None):
        self.acted[env_ids] = 0


class Shelf:
    """A pool in memory: version n has the n-th weight."""

    def __init__(self, *weights):
        self.weights, self.held = [*weights], []

    @property
    def newest(self):
        return len(self.weights)

    def read(self, number):
        return {"w": np.array([float(self.weights[number - 1])])}

    def hold(self, numbers):
        self.held = [*numbers]


def league_of(*versions, scores=(), size=3, policy=Weighted):
    """A league in which version n has the n-th of these weights, its pool and its environments."""
    shelf = Shelf()
    league = League(shelf, policy({"w": np.array([0.0])}), size)
    for weight in versions:
        add(league, shelf, weight)
    return league, shelf, league.environments(Ring(scores), [1])


def add(league, shelf, weight):
    shelf.weights.append(weight)
    league.update()


def play(envs, steps):
    return [envs.step(np.full((3, 2), 50)) for _ in range(steps)]


def opponents(envs):
    return np.array(envs._env.taken)[..., 1]


def test_who_is_rarely_beaten_is_drawn_often():
    weights = np.array([1, 0.25, 0.0025])
    assert hard_first(np.array([0.0, 0.5, 1.0])) == pytest.approx(weights / weights.sum())


def test_past_selves_act_for_the_opponents_as_they_were():
    league, shelf, envs = league_of(7)
    first, _ = play(envs, 2)
    # The policy's own actions, and those of a version of before.
    assert envs._env.taken[0].tolist() == [[50, 7]] * 3
    assert first.obs["alive"].tolist() == [[True, False]] * 3
    assert envs._env.obs["alive"].all()
    assert envs.obs["alive"].tolist() == [[True, False]] * 3
    add(league, shelf, 9)
    for _ in range(100):
        league.rate(1, 1.0)
    play(envs, 40)
    later = opponents(envs)[2:]
    assert set(later.ravel()) <= {7, 9}
    assert (later == 9).mean() > 0.9
    # Nobody is exchanged within an episode.
    assert np.array_equal(later[0::2], later[1::2])


def test_past_selves_remember_only_their_episode():
    _, _, envs = league_of(0, 0, 0, policy=Counting)
    played = []
    for _ in range(40):
        envs.step(np.full((3, 2), 50))
        played.append(envs._playing.copy())
    assert {len(set(row)) for row in np.array(played).tolist()} == {1, 2, 3}
    assert opponents(envs).tolist() == [[1] * 3, [2] * 3] * 20


def test_episodes_state_their_opponents_version():
    league, shelf, envs = league_of(7, size=1)
    assert [end.info["opponent"] for end in play(envs, 2)[1].episodes] == [1.0] * 3
    play(envs, 1)
    add(league, shelf, 9)
    assert [end.info["opponent"] for end in play(envs, 1)[0].episodes] == [-1.0] * 3
    assert [end.info["opponent"] for end in play(envs, 2)[1].episodes] == [2.0] * 3


def ended(*games):
    return OnlineRLContext(
        episode_stats=[EpisodeEnd(0, 0.0, 2, {"won": score, "opponent": float(version)}) for version, score in games],
        train_output={"loss": 1.0},
    )


def test_games_move_the_rating_and_the_rate_of_wins():
    league, shelf, _ = league_of(7)
    ctx = ended((1, 1.0), (1, 1.0), (1, 0.0), (-1, 1.0), (5, 1.0))
    opponent_rater(league, "won")(ctx)
    rating = 1000.0
    for score in (1.0, 1.0, 0.0):
        rating += 16 * (score - 1 / (1 + 10 ** ((1000 - rating) / 400)))
    assert league.rating == pytest.approx(rating)
    assert league.selves[0].win_rate == pytest.approx(((0.5 * 0.95 + 0.05) * 0.95 + 0.05) * 0.95)
    assert league.selves[0].games == 3
    assert ctx.train_output == {"loss": 1.0, "elo": league.rating, "past_selves": 1.0, "score": pytest.approx(2 / 3)}
    empty = ended()
    opponent_rater(league, "won")(empty)
    assert "score" not in empty.train_output
    add(league, shelf, 8)
    assert league.selves[1].rating == league.rating


def test_the_one_that_is_beaten_most_often_makes_room():
    league, shelf, envs = league_of(7, 8, 9)
    for version, score in ((1, 0.0), (2, 1.0)):
        league.rate(version, score)
    add(league, shelf, 10)
    assert [past.version for past in league.selves] == [1, 4, 3]
    assert shelf.held == [1, 4, 3]
    play(envs, 60)
    assert set(opponents(envs).ravel()) == {7, 10, 9}


def test_new_versions_of_the_pool_come_into_play(tmp_path):
    pool, policy = ModelPool(tmp_path, last=1), Weighted({"w": np.array([0.0])})
    league = League(pool, policy, 2)
    middleware = past_selves(league)
    for number in range(1, 5):
        pool.add({"w": np.array([float(number)]), "more": np.zeros(2)}, 0, 0)
        middleware(OnlineRLContext())
        middleware(OnlineRLContext())
    assert [past.version for past in league.selves] == [4, 2]
    pool.add({"w": np.array([5.0]), "more": np.zeros(2)}, 0, 0)
    # 1 and 3 made room for others.
    assert [version.number for version in pool.versions] == [2, 4, 5]
    assert league.environments(Ring(), [1]).weights()["past_selves.0.w"] == [4.0]
    again = League(pool, policy, 2)
    resumed = past_selves(again)
    resumed.load_state_dict(middleware.state_dict())
    resumed(OnlineRLContext())
    assert [past.version for past in again.selves] == [5, 2]
    assert again.places.weights(1)["w"] == [2.0]
    with pytest.raises(CheckpointError, match=r"2 past selves in play, and League\(size=1\)"):
        League(pool, policy, 1).load_state_dict(middleware.state_dict())


def test_everything_is_restored():
    (_, _, one), (_, _, other) = league_of(7, 9), league_of(7, 9)
    play(one, 7)
    other.load_state_dict(one.state_dict())
    play(one, 9)
    play(other, 9)
    assert np.array_equal(one._env.taken[-9:], other._env.taken[-9:])


def test_in_a_lane_versions_arrive_as_weights():
    league, shelf, here = league_of(7, 9)
    sent = {name: array.copy() for name, array in here.weights().items()}
    away = [here.factory()(LaneContext(index, sent)) for index in (0, 1)]
    for envs in (here, *away):
        play(envs, 40)
    assert np.array_equal(opponents(here), opponents(away[0]))
    assert not np.array_equal(opponents(here), opponents(away[1]))
    add(league, shelf, 11)
    for name, array in here.weights().items():
        sent[name][...] = array
    play(away[1], 40)
    assert set(opponents(away[1])[40:].ravel()) == {7, 9, 11}
    assert isinstance(here, Shippable)
    # The state of environments is that of the collector which holds them.
    assert PickledMembers([functools.partial(print, here)], "collect").acting == ()


def test_returns_are_those_of_ones_own_side():
    _, _, envs = league_of(7)
    end = EpisodeEnd(0, 0.0, 2, {"return.a": 1.0, "return.b": -1.0, "won": 1.0})
    assert envs._of_own_side(end) == EpisodeEnd(0, 1.0, 2, {"return.a": 1.0, "won": 1.0})
    assert envs._of_own_side(EpisodeEnd(0, 3.0, 2, {"won": 1.0})).episode_return == 3.0


@pytest.mark.parametrize("both", [False, True])
def test_an_evaluation_is_of_ones_own_side_against_random_play(both):
    cfg = compile_run("duel_ppo", ["env.evaluator_env_num=4", f"env.team_reward={both}".lower()])
    envs, seen = evaluator_env(cfg, "env.evaluate"), []
    obs, nothing = envs.reset(), np.zeros((4, 6), np.int64)
    before = copy.deepcopy(envs.state_dict())
    for _ in range(60):
        assert not obs["alive"][:, 3:].any()
        step = envs.play(nothing + 1)
        obs = step.obs
        assert both or not step.reward[:, 3:].any()
        seen += step.episodes
    assert seen
    # Who stands still is hit by random shots at times, and never wins.
    assert {end.info["score"] for end in seen} <= {0.0, 0.5}
    for end in seen:
        own = [value for name, value in end.info.items() if name.startswith("return.")]
        assert len(own) == (0 if both else 3)
        assert both or end.episode_return == pytest.approx(sum(own))
    envs.load_state_dict(before)
    again = [envs.play(nothing + 1).episodes for _ in range(60)]
    assert [end for episodes in again for end in episodes] == seen
    envs.close()
    assert not evaluate(cfg, make_policy(cfg), 2, lambda: True)
