"""Evaluate, collect games of self-play with search, add symmetric games, store, learn from positions."""

from collections.abc import Callable

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import own_buffer
from minding.engine.buffers import ReplayBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError
from minding.engine.search.opponents import Opponent, parse
from minding.engine.types import BoardGame, EpisodeEnd, Policy
from minding.envs import make_board_game
from minding.middleware import OffPolicyLearner, SelfPlayCollector, arena_evaluator, episode_pusher, symmetry_enhancer
from minding.middleware.arena_evaluator import arena, opening_positions
from minding.middleware.board_search import check_fits


def check(cfg: Config) -> None:
    """Refuses an environment without rules or with other planes, opponents that are unknown or cannot play the game,
    and openings that end it."""
    game = make_board_game(cfg)
    check_fits(cfg, game)
    opponents_of(cfg, game)
    opening_positions(game, cfg.policy.eval.opening_plies)


def opponents_of(cfg: Config, game: BoardGame | None = None) -> list[Opponent]:
    names = cfg.policy.eval.opponents
    if not names:
        raise ConfigError("policy.eval.opponents=[]: expected at least one, such as random or uct:100")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"policy.eval.opponents: {twice!r} is named twice; name each opponent once")
    return [parse(str(name), game, key="policy.eval.opponents") for name in names]


def evaluate(cfg: Config, policy: Policy, n_episode: int, stop: Callable[[], bool]) -> list[EpisodeEnd]:
    """Plays `n_episode` games against each opponent."""
    return arena(cfg, policy.eval_mode, make_board_game(cfg), opponents_of(cfg), n_episode, stop=stop)


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    game: BoardGame = make_board_game(cfg)
    buffer = own_buffer(cfg, policy)
    if buffer is None:
        buffer = ReplayBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    task.use(arena_evaluator(cfg, policy.eval_mode, game, opponents_of(cfg), task=task))
    task.use(SelfPlayCollector(cfg, policy.collect_mode, game))
    task.use(symmetry_enhancer(game))
    task.use(episode_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


SETTINGS = (
    "policy.collect.search",
    "policy.collect.simulations",
    "policy.eval.simulations",
    "policy.other.buffer_size",
)
"""Settings of algorithms that search."""

chain = Chain(fill, OnlineRLContext, check, SETTINGS, evaluate, learner=OffPolicyLearner)
