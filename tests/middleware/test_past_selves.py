"""Past selves act for one side, are drawn by how rarely they are beaten, and rate the policy."""

import types

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.data.trees import unflatten
from minding.engine.errors import ConfigError, EnvError
from minding.engine.types import EnvStep, EpisodeEnd, Shippable
from minding.envs import make_collector_env
from minding.middleware import StepCollector, gae_estimator, multistep_trainer, past_selves
from minding.middleware.past_selves import Contest, expected_score, hard_first


class Ring:
    """Two agents in each of three environments; episodes of two steps, which the first agent wins as `scores` say."""

    num_envs, resume_guarantee = 3, "exact"

    def __init__(self, scores):
        self.scores, self.steps, self.taken = list(scores), 0, []
        self.obs = self.observe()

    def observe(self):
        return unflatten({"observation": np.full((3, 2, 1), float(self.steps)), "alive": np.ones((3, 2), bool)})

    def reset(self, seed=None):
        self.obs = self.observe()
        return self.obs

    def step(self, action):
        self.taken.append(action.copy())
        self.steps += 1
        over = np.full(3, self.steps % 2 == 0)
        ends = [EpisodeEnd(n, 0.0, 2, {"score": self.scores.pop(0)}) for n in range(3)] if over[0] else []
        self.obs = self.observe()
        return EnvStep(self.obs, self.obs, np.zeros((3, 2)), over, over & False, None, ends)

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


def contest_of(scores, size=3):
    policy = Weighted({"w": np.array([7.0])})
    return Contest(Ring(scores), policy, [1], "score", size=size), policy


def play(contest, steps):
    return [contest.step(np.full((3, 2), 50)) for _ in range(steps)]


def test_elo_expects_ten_to_one_of_400_points():
    assert expected_score(1000, 1000) == 0.5
    assert expected_score(1400, 1000) == pytest.approx(10 / 11)
    assert expected_score(1000, 1400) == pytest.approx(1 / 11)


def test_who_is_rarely_beaten_is_drawn_often():
    weights = np.array([1, 0.25, 0.0025])
    assert hard_first(np.array([0.0, 0.5, 1.0])) == pytest.approx(weights / weights.sum())


def test_past_selves_act_for_the_opponents_as_they_were():
    contest, policy = contest_of([0.5] * 9)
    policy.live["w"][0] = 9
    (first, _) = play(contest, 2)
    # The policy's own actions, and those of the weights of before.
    assert contest._env.taken[0].tolist() == [[50, 7]] * 3
    assert first.obs["alive"].tolist() == [[True, False]] * 3
    assert contest._env.obs["alive"].all()
    assert contest.obs["alive"].tolist() == [[True, False]] * 3
    contest.keep()
    policy.live["w"][0] = 11
    contest.selves[0].win_rate = 1.0
    contest.reset()
    play(contest, 40)
    opponents = np.array(contest._env.taken[2:])[..., 1]
    assert set(opponents.ravel()) <= {7, 9}
    assert (opponents == 9).mean() > 0.9
    # Nobody is exchanged within an episode.
    assert np.array_equal(opponents[0::2], opponents[1::2])


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


def test_what_past_selves_remember_is_of_the_episode_that_they_play():
    contest = Contest(Ring([]), Counting({"w": np.array([7.0])}), [1], "score", size=3)
    contest.keep()
    contest.keep()
    contest.reset()
    played = []
    for _ in range(40):
        played.append(contest._playing.copy())
        contest.step(np.full((3, 2), 50))
    assert {len(set(row)) for row in np.array(played).tolist()} == {1, 2, 3}
    opponents = np.array(contest._env.taken)[..., 1]
    assert opponents.tolist() == [[1] * 3, [2] * 3] * 20


@pytest.fixture(autouse=True)
def enough_scores(monkeypatch):
    monkeypatch.setattr(Ring, "__init__", _with_draws(Ring.__init__))


def _with_draws(init):
    def begin(self, scores):
        init(self, [*scores, *[0.5] * 300])

    return begin


def test_games_move_the_rating_and_the_rate_of_wins():
    contest, _ = contest_of([1.0, 1.0, 0.0])
    play(contest, 2)
    rating = 1000.0
    for score in (1.0, 1.0, 0.0):
        rating += 16 * (score - 1 / (1 + 10 ** ((1000 - rating) / 400)))
    assert contest.rating == pytest.approx(rating)
    assert contest.selves[0].win_rate == pytest.approx(((0.5 * 0.95 + 0.05) * 0.95 + 0.05) * 0.95)
    assert contest.selves[0].games == 3
    assert contest.take_metrics() == {"elo": contest.rating, "past_selves": 1.0, "score": pytest.approx(2 / 3)}
    assert "score" not in contest.take_metrics()
    contest.keep()
    assert contest.selves[1].rating == contest.rating


def test_the_one_that_is_beaten_most_often_makes_room():
    contest, policy = contest_of([1.0] * 3)
    for w in (8, 9):
        policy.live["w"][0] = w
        contest.keep()
    for past, rate in zip(contest.selves, (0.4, 0.9, 0.6)):
        past.win_rate = rate
    contest._playing[:] = 0, 1, 2
    policy.live["w"][0] = 10
    contest.keep()
    assert [past.weights["w"][0] for past in contest.selves] == [7, 10, 9]
    play(contest, 2)
    assert contest._env.taken[0][:, 1].tolist() == [7, 10, 9]
    # What had begun against another one says nothing.
    assert [past.games for past in contest.selves] == [1, 0, 1]
    play(contest, 2)
    assert sum(past.games for past in contest.selves) == 5


def test_everything_is_restored():
    one, policy = contest_of([1.0, 0.0, 1.0] * 5)
    policy.live["w"][0] = 9
    play(one, 4)
    one.keep()
    play(one, 3)
    other, _ = contest_of([])
    other.load_state_dict(one.state_dict())
    assert (other.rating, other.selves[1].games) == (one.rating, one.selves[1].games)
    play(one, 9)
    play(other, 9)
    assert np.array_equal(one._env.taken[-9:], other._env.taken[-9:])
    assert one.rating == other.rating
    assert one.take_metrics() == other.take_metrics()


def test_misuse_is_named():
    contest, _ = contest_of([])
    contest._score = "won"
    with pytest.raises(ConfigError, match=r"score='won'.*episodes tell 'score'; declare it in env\.info_keys"):
        play(contest, 2)
    assert isinstance(contest, Shippable)
    with pytest.raises(EnvError, match="start the task without async_mode"):
        contest.factory()
    with pytest.raises(ConfigError, match="every=0"):
        past_selves(contest, 0)


def test_a_self_is_kept_every_few_iterations():
    kept, ctx = [], OnlineRLContext(train_output={"loss": 1.0})
    contest = types.SimpleNamespace(keep=lambda: kept.append(1), take_metrics=lambda: {"elo": 1010.0})
    middleware = past_selves(contest, 3)
    for _ in range(7):
        middleware(ctx)
    assert len(kept) == 2
    assert ctx.train_output == {"loss": 1.0, "elo": 1010.0}
    again = past_selves(contest, 3)
    again.load_state_dict(middleware.state_dict())
    again(ctx)
    again(ctx)
    assert len(kept) == 3


@pytest.mark.slow
def test_a_duel_is_played_against_past_selves():
    from minding.training import make_policy

    user = Config(
        env=dict(env_id="minding/Duel-v0", info_keys=["score"], collector_env_num=8),
        policy=dict(
            type="ppo", model=dict(hidden=[16], memory="gru"), learn=dict(n_minibatch=2), collect=dict(n_sample=400)
        ),
    )
    cfg = compile_run(user)
    policy = make_policy(cfg)
    contest = Contest(make_collector_env(cfg), policy.collect_mode, range(3, 6), "score", size=2)
    task, told = Task(), []
    with task.start(ctx=OnlineRLContext()):
        task.use(StepCollector(cfg, policy.collect_mode, contest))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(past_selves(contest, 2))
        task.use(lambda ctx: told.append(dict(ctx.train_output)))
        task.run(max_step=5)
    assert told[-1]["past_selves"] == 2
    assert sum(past.games for past in contest.selves) > 5
    assert told[-1]["elo"] == contest.rating
    assert any(not np.array_equal(a, b) for a, b in zip(*(past.weights.values() for past in contest.selves)))
