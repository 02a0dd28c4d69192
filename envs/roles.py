"""The environments of a run: each kind has its own seed stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minding.engine.config.config import Config
from minding.engine.data.masks import ACTION_MASK, OBSERVATION
from minding.engine.errors import ConfigError
from minding.engine.search.rules import check_rules
from minding.engine.seeding import SeedStreams
from minding.engine.types import BoardGame
from minding.envs.config import env_settings
from minding.envs.making import make_env_manager
from minding.envs.manager import BatchedEnvManager
from minding.envs.normalize import REWARD
from minding.envs.single.factory import env_factory
from minding.envs.single.wrappers import AnyEnv

_OTHER_REWARDS = ("gail", "sqil")
"""Chains whose policies learn from rewards that are not the environment's."""
_RULES = ("actions", "longest", "initial", "legal", "play", "planes", "symmetries")


def make_collector_env(cfg: Config, env_fn: Callable[..., AnyEnv] | None = None) -> BatchedEnvManager:
    """Environments that experience is collected from.

    Args:
      cfg: compiled configuration of the run.
      env_fn: function that makes one environment, in place of ``env.env_id``; it gets ``env.env_kwargs``. It can be
        left out if `compile_run` was given it.
    Raises:
      ConfigError, SpaceError, MissingExtraError: as for `make_env_manager`.
    """
    seed = _seed(cfg, "env.collect")
    return make_env_manager(cfg.env, cfg.env.collector_env_num, seed, env_fn=env_fn, watch=_watched(cfg))


def _watched(cfg: Config) -> tuple[str, ...]:
    """What to warn about: a mask that is not declared, and scales that matter to the policy, which may normalize them
    itself, or learn from other rewards."""
    policy = cfg.read("policy", dict, {})
    model, learn, other = (policy.get(section) or {} for section in ("model", "learn", "other"))
    if "bin_limit" in model:  # symlog
        return (ACTION_MASK,)
    own = cfg.get("chain") not in _OTHER_REWARDS and other.get("reward") in (None, "none")
    rewards = own and not learn.get("value_norm")
    return (ACTION_MASK, *([REWARD] if rewards else []), *([] if model.get("normalize_obs") else [OBSERVATION]))


def make_evaluator_env(
    cfg: Config, stream: str = "env.evaluate", env_fn: Callable[..., AnyEnv] | None = None
) -> BatchedEnvManager:
    """Environments for evaluation, with unmodified rewards.

    Args:
      cfg: compiled configuration of the run.
      stream: name of the seed stream; another name gives episodes that no other evaluation of the run has had.
      env_fn: as in `make_collector_env`.
    Raises:
      ConfigError, SpaceError, MissingExtraError: as for `make_env_manager`.
    """
    return make_env_manager(cfg.env, cfg.env.evaluator_env_num, _seed(cfg, stream), training=False, env_fn=env_fn)


def make_goal_rules(cfg: Config) -> Any:
    """An environment that is never stepped, for its rules for goals, `compute_reward` and `compute_terminated`.

    Args:
      cfg: compiled configuration of the run.
    Raises:
      ConfigError, MissingExtraError: as for `make_env_manager`.
    """
    return env_factory(env_settings(cfg.env))().unwrapped


def make_board_game(cfg: Config) -> BoardGame:
    """The rules of a board game, ``env.unwrapped.game`` of the configured environment, which is never stepped.

    Args:
      cfg: compiled configuration of the run.
    Raises:
      ConfigError: the environment does not have such rules.
      GameError: the rules contradict themselves, see `check_rules`.
      MissingExtraError: as for `make_env_manager`.
    """
    factory = env_factory(env_settings(cfg.env))
    env = factory()
    game: Any = getattr(env.unwrapped, "game", None)
    factory.close(env)
    missing = [name for name in _RULES if not hasattr(game, name)]
    if missing:
        what = "it has no attribute `game`" if game is None else f"its `game` has no {missing[0]!r}"
        raise ConfigError(
            f"env.env_id={cfg.env.env_id!r} has no rules of a board game to play against oneself: {what}; "
            "expected env.unwrapped.game to be an engine.types.BoardGame, as in minding/TicTacToe-v0"
        )
    rules: BoardGame = game
    check_rules(rules)
    return rules


def _seed(cfg: Config, stream: str) -> int:
    return SeedStreams(cfg.seed).integers(stream, 1)[0]
