"""The arena: who plays first, from where, what scores, and when an evaluation counts."""

import types

import numpy as np
from test_self_play import Prefers, config

from minding.engine import OnlineRLContext
from minding.engine.search import opponents
from minding.engine.search.opponents import Solution
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.middleware import arena_evaluator
from minding.middleware.arena_evaluator import arena
from minding.middleware.evaluator import info_means

GAME = TicTacToe()


class Perfect:
    """Predicts the actions of perfect play."""

    solution, reset = Solution(GAME), None

    def predict(self, obs):
        own, other = ((obs["observation"][:, k].reshape(-1, 9) @ (1 << np.arange(9))).astype(np.int16) for k in (0, 1))
        return {"logits": self.solution.optimal((own, other)) * 5.0, "value": self.solution.value((own, other))}


class Noting:
    """Plays the first legal action and notes the positions that it is asked for."""

    name = "noting:1"

    def __init__(self):
        self.seen = []

    def __call__(self, game, state, rng):
        self.seen.append(state)
        return game.legal(state).argmax(axis=1)


def settings(game=GAME, **evaluation):
    cfg = config(game)
    values = {"freq": 10, "n_episode": 8, "simulations": 4, "opening_plies": 2, **evaluation}
    cfg.policy["eval"] = type(cfg)(values)
    return cfg


def test_perfect_play_loses_to_nobody_with_and_without_search():
    for simulations in (0, 16):
        cfg = settings(simulations=simulations, opening_plies=0)
        games = arena(cfg, Perfect(), GAME, [opponents.random(), opponents.minimax()], 30)
        assert len(games) == 60
        scores = info_means(games)
        assert scores["score_minimax"] == 0.5
        assert scores["score_random"] > 0.8
        assert {end.episode_return for end in games} <= {0.5, 1.0}
        assert all(5 <= end.episode_length <= 9 for end in games)
        assert [end.episode_return for end in games] == [next(iter(end.info.values())) for end in games]


def test_every_opening_is_played_from_both_sides():
    game, noting = ConnectFour(), Noting()
    games = arena(settings(game, simulations=0), Prefers(1.0), game, [noting], 98)
    assert len(games) == 98
    # Where the agent moves first, the other is asked after three plies, and else after two.
    asked = {int(state[1][0]).bit_count(): state for state in reversed(noting.seen)}
    assert [len(asked[stones][0]) for stones in (2, 3)] == [49, 49]
    assert len(set(zip(*(part.tolist() for part in asked[2])))) == 49
    assert set(info_means(games)) == {"score_noting_1"}


def test_games_are_spread_over_openings_and_repeat_them():
    game, noting = ConnectFour(), Noting()
    arena(settings(game, simulations=0, opening_plies=1), Prefers(1.0), game, [noting], 5)
    # Of the 7 columns, three where the agent moves first and two where it moves second.
    second = next(state for state in noting.seen if int(state[1][0]).bit_count() == 1)
    assert (len(noting.seen[0][0]), len(second[0])) == (3, 2)
    assert (np.log2(second[1].astype(float)) // 7).tolist() == [0, 3]
    noting.seen.clear()
    arena(settings(game, simulations=0, opening_plies=1), Prefers(1.0), game, [noting], 28)
    second = next(state for state in noting.seen if int(state[1][0]).bit_count() == 1)
    assert (np.log2(second[1].astype(float)) // 7).tolist() == [*range(7), *range(7)]


def evaluator(*players, **evaluation):
    cfg = settings(**evaluation)
    task = types.SimpleNamespace(interrupted_by=None)
    return arena_evaluator(cfg, Perfect(), GAME, players or [opponents.random()], task=task), task


def test_it_evaluates_when_due_and_the_same_games_again():
    middleware, _ = evaluator()
    ctx, values = OnlineRLContext(env_step=10, train_iter=3), []
    for _ in range(2):
        middleware(ctx)
        assert ctx.eval_value == np.mean([end.episode_return for end in ctx.eval_output])
        assert (ctx.last_eval_iter, ctx.last_eval_value, ctx.last_eval_clock) == (
            ctx.train_iter,
            ctx.eval_value,
            ctx.env_step,
        )
        values.append([end.episode_return for end in ctx.eval_output])
        ctx = ctx.renew()
        ctx.env_step += 9
        middleware(ctx)
        assert ctx.eval_value is None
        ctx.env_step, ctx.train_iter = ctx.env_step + 1, ctx.train_iter + 1
    assert values[0] == values[1]
    assert middleware.resume_guarantee == "exact"
    assert middleware.state_dict() == {}


def test_a_signal_aborts_an_evaluation_which_then_does_not_count():
    middleware, task = evaluator()
    task.interrupted_by = "SIGINT"
    ctx = OnlineRLContext(env_step=10, train_iter=3)
    middleware(ctx)
    assert (ctx.eval_value, ctx.last_eval_iter) == (None, -1)
    assert middleware.resume_guarantee == "mid-iteration"
