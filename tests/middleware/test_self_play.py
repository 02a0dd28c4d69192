"""Self-play: games, outcomes, sampling, symmetries, the buffer, and resume within games."""

import signal

import numpy as np
import pytest
from fakes import dict_of, discrete, mask_of, space_of

from benchmarks.fingerprint import fingerprint
from minding.engine import Config, OnlineRLContext, Task
from minding.engine.buffers import ReplayBuffer
from minding.engine.data import obs_trees
from minding.engine.data.batch import Field
from minding.engine.errors import CheckpointError, GameError
from minding.engine.process import signals
from minding.engine.search.puct import PuctOptions, puct
from minding.engine.types import LaneContext
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.middleware import SelfPlayCollector, episode_pusher, symmetry_enhancer
from minding.middleware.self_play import RunningGames


class Prefers:
    """Predicts that lower actions are better, and a value of 0."""

    record_fields = ()

    def __init__(self, bonus=0.0):
        self.bonus = bonus

    def predict(self, obs):
        planes = obs[""] if "" in obs else obs["observation"]
        n, actions = len(planes), self.actions(planes)
        return {"logits": np.tile(-self.bonus * np.arange(actions), (n, 1)), "value": np.zeros(n)}

    def actions(self, planes):
        return 9 if planes.shape[-1] == 3 else 7


def config(game, games=3, masked=True, **collect):
    planes = space_of(*game.planes(game.initial(1)).shape[1:])
    space = dict_of(observation=planes, action_mask=mask_of(game.actions)) if masked else planes
    settings = {
        "n_sample": games,
        "search": "puct",
        "simulations": 8,
        "sample_plies": 3,
        "value_share": 0.0,
        "puct": {"c": 1.25, "dirichlet_alpha": 1.0, "dirichlet_fraction": 0.25},
        "gumbel": {"max_considered": 16, "c_visit": 50.0, "c_scale": 1.0},
        **collect,
    }
    return Config(
        seed=0,
        env={"spec": {"observation": space, "action": discrete(game.actions)}, "collector_env_num": games},
        policy={"collect": settings, "other": {"save_buffer": True}},
    )


def play(collector, iterations):
    """All games that ended, their statistics, and the counters."""
    ctx, games, stats = OnlineRLContext(), [], []
    for _ in range(iterations):
        collector(ctx)
        games += ctx.episodes
        stats += ctx.episode_stats
        ctx = ctx.renew()
    return games, stats, ctx


def collector_of(game, policy=None, **settings):
    return SelfPlayCollector(config(game, **settings), Prefers() if policy is None else policy, game)


def replayed(game, actions):
    """(planes, legal) before each ply of a game by the rules, its end, and the outcome for the player to move next."""
    state, seen, over, outcome = game.initial(1), [], [False], [0]
    for action in actions:
        assert not over[0]
        seen.append((game.planes(state)[0], game.legal(state)[0]))
        assert game.legal(state)[0, action]
        state, over, outcome = game.play(state, np.array([action]))
    return seen, bool(over[0]), int(outcome[0])


@pytest.mark.parametrize("search", ["puct", "gumbel"])
@pytest.mark.parametrize("game", [TicTacToe(), ConnectFour()], ids=["tictactoe", "connect_four"])
def test_games_follow_the_rules_and_have_their_outcome(game, search):
    games, stats, ctx = play(collector_of(game, search=search), 45)
    assert len(games) >= 3
    assert (ctx.env_step, ctx.env_episode) == (45 * 3, len(games))
    outcomes = set()
    for played, end in zip(games, stats, strict=True):
        seen, over, outcome = replayed(game, played["action"])
        length = len(seen)
        assert over
        leaves = dict(obs_trees.leaves(played["obs"]))
        np.testing.assert_array_equal(leaves["observation"], [planes for planes, _ in seen])
        np.testing.assert_array_equal(leaves["action_mask"], [legal for _, legal in seen])
        # Whoever made the last ply has -outcome; the sign alternates backwards.
        assert played["outcome"].tolist() == [outcome * (-1) ** (length - t) for t in range(length)]
        assert (end.episode_return, end.episode_length) == (outcome * (-1) ** length, length)
        np.testing.assert_allclose(played["policy"].sum(axis=1), 1.0, rtol=1e-6)
        assert (played["policy"][~leaves["action_mask"]] == 0).all()
        outcomes.add(outcome)
    assert -1 in outcomes


class Signalling(Prefers):
    """Asks the run to end while it is asked for the first time."""

    def predict(self, obs):
        if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)
        return super().predict(obs)


def test_a_signal_ends_an_endless_iteration(monkeypatch):
    monkeypatch.setattr(signals, "PATIENCE", 0.0)
    with pytest.raises(SystemExit), Task().start() as task:
        task.use(collector_of(TicTacToe(), Signalling(), n_sample=10**9)).run()
    assert (task.ctx.env_step, task.resume_guarantee) == (0, "mid-iteration")


def test_plies_after_the_sampled_ones_are_the_best():
    noiseless = {"puct": {"c": 1.25, "dirichlet_alpha": 1.0, "dirichlet_fraction": 0.0}}
    best, _, _ = play(collector_of(TicTacToe(), sample_plies=0, **noiseless), 10)
    assert len({tuple(game["action"].tolist()) for game in best}) == 1
    drawn, _, _ = play(collector_of(TicTacToe(), games=300, sample_plies=1, simulations=20, **noiseless), 9)
    assert len({tuple(game["action"][1:].tolist()) for game in drawn if game["action"][0] == 4}) == 1
    policy = drawn[0]["policy"][0]
    share = np.bincount([game["action"][0] for game in drawn], minlength=9) / len(drawn)
    np.testing.assert_allclose(share, policy, atol=4 * np.sqrt(0.25 / len(drawn)))


def test_the_searchs_value_has_its_share_in_learning():
    options = {"c": 1.25, "dirichlet_alpha": 1.0, "dirichlet_fraction": 0.0}
    game, settings = TicTacToe(), {"puct": options, "simulations": 30}
    (plain, _, _), (mixed, _, _) = (play(collector_of(game, value_share=x, **settings), 9) for x in (0.0, 0.25))
    judge, rng, differing = (lambda state: (np.zeros((len(state[0]), 9)), np.zeros(len(state[0])))), None, 0
    for one, other in zip(plain, mixed, strict=True):
        assert one["action"].tolist() == other["action"].tolist()
        state = game.initial(1)
        for action, outcome, learned in zip(one["action"], one["outcome"], other["outcome"], strict=True):
            value = puct(game, state, judge, PuctOptions(30, *options.values()), rng).value[0]
            assert learned == pytest.approx(0.75 * outcome + 0.25 * value)
            differing += abs(value - outcome) > 0.1
            state = game.play(state, np.array([action]))[0]
    assert differing > 5


@pytest.mark.parametrize("wrong", [2.0, np.nan])
def test_an_outcome_out_of_range_is_named_at_its_ply(wrong, monkeypatch):
    class Doubling(TicTacToe):
        def play(self, state, action):
            state, over, outcome = super().play(state, action)
            return state, over, np.where(over & (outcome != 0), wrong, outcome)

    game, message = Doubling(), rf"Doubling\.play: the outcome of game \d is {wrong}; expected a number in \[-1, 1\]"
    state = game.initial(1)
    for action in (0, 3, 1, 4):
        state = game.play(state, np.array([action]))[0]
    with pytest.raises(GameError, match=message):
        puct(game, state, lambda _: (np.zeros((1, 9)), np.zeros(1)), PuctOptions(20), np.random.default_rng(0))
    # A ply that the search has not looked at.
    monkeypatch.setattr("minding.engine.search.search_tree.check_outcomes", lambda *given: None)
    with pytest.raises(GameError, match=message):
        play(collector_of(game, simulations=1), 30)


def test_a_policy_without_a_mask_is_shown_planes_alone():
    games, _, _ = play(collector_of(TicTacToe(), masked=False), 9)
    assert games[0]["obs"].shape[1:] == (2, 3, 3)


def test_a_collector_restored_within_games_goes_on_to_the_bit():
    first, second = collector_of(ConnectFour(), search="gumbel"), collector_of(ConnectFour(), search="gumbel")
    play(first, 7)
    play(second, 2)
    second.load_state_dict(first.state_dict())
    expected, found = play(first, 40), play(second, 40)
    assert len(expected[0]) > 3
    for mine, other in zip(expected[0], found[0], strict=True):
        assert {k: v.tobytes() for k, v in mine.items() if k != "obs"} == {
            k: v.tobytes() for k, v in other.items() if k != "obs"
        }
    assert fingerprint(first.state_dict()) == fingerprint(second.state_dict())


def test_each_worker_draws_its_own_numbers():
    factory = RunningGames(TicTacToe(), 4, 3).factory()
    streams = [factory(LaneContext(index, {})).rng.random(4).tolist() for index in (0, 0, 1)]
    assert streams[0] == streams[1] == RunningGames(TicTacToe(), 4, 3).rng.random(4).tolist()
    assert streams[0] != streams[2]


def test_shards_divide_the_games():
    games = RunningGames(TicTacToe(), 4, 3)
    shard = games.factory()(LaneContext(1, {}, shards=2))
    assert (shard.num_envs, len(shard.plies), len(shard.state[0])) == (2, 2, 2)
    with pytest.raises(CheckpointError, match="the saved state has 4 games, but this run has 2"):
        shard.load_state_dict(games.state_dict())


def test_symmetric_games_follow_each_game_and_reach_the_buffer():
    game = TicTacToe()
    collector = collector_of(game)
    ctx = OnlineRLContext()
    while not ctx.episodes:
        collector(ctx)
    played = ctx.episodes[0]
    ctx.episodes = [played]
    symmetry_enhancer(game)(ctx)
    assert len(ctx.episodes) == 8
    length = len(played["action"])
    forms = game.symmetries(dict(obs_trees.leaves(played["obs"]))["observation"], played["policy"])
    for made, (planes, policy) in zip(ctx.episodes, forms, strict=True):
        leaves = dict(obs_trees.leaves(made["obs"]))
        np.testing.assert_array_equal(leaves["observation"], planes)
        np.testing.assert_array_equal(made["policy"], policy)
        # What no stone covers is legal: masks turn with the planes.
        np.testing.assert_array_equal(leaves["action_mask"], planes.sum(axis=1).reshape(length, 9) == 0)
        np.testing.assert_array_equal(made["outcome"], played["outcome"])
    fields = {
        "obs.action_mask": Field((9,), "bool"),
        "obs.observation": Field((2, 3, 3)),
        "policy": Field((9,)),
        "outcome": Field(),
    }
    buffer = ReplayBuffer(200, fields)
    pusher = episode_pusher(config(game), buffer)
    pusher(ctx)
    assert len(buffer) == 8 * length
    np.testing.assert_array_equal(buffer.ring.read("policy", np.arange(length)), played["policy"])
    ctx.episodes = []
    pusher(ctx)
    assert len(buffer) == 8 * length
    restored = episode_pusher(config(game), ReplayBuffer(200, fields))
    restored.load_state_dict(pusher.state_dict())
    assert fingerprint(restored.state_dict()) == fingerprint(pusher.state_dict())
