"""Evaluate, keep versions of the policy, play against them, estimate advantages, learn from this rollout, rate."""

import contextlib
from collections.abc import Callable
from typing import Any

from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.agent_axis import num_agents
from minding.engine.errors import ConfigError, nearest
from minding.engine.run.pool import ModelPool
from minding.engine.types import EpisodeEnd, Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    StepCollector,
    gae_estimator,
    interaction_evaluator,
    model_pool,
    multistep_trainer,
    opponent_rater,
    past_selves,
)
from minding.middleware.evaluator import play_episodes
from minding.middleware.league import League, RandomOpponents


def check(cfg: Config) -> None:
    """Refuses a league without players, and one whose environment does not report who won."""
    if num_agents(cfg.env.spec) is None:
        raise ConfigError(f"chain='league' with env.env_id={cfg.env.env_id!r}: expected an environment of two sides")
    names, opponents = agent_names(cfg), cfg.league.opponents
    for name in opponents:
        if name not in names:
            hint = nearest(str(name), names)
            raise ConfigError(f"league.opponents: no agent is called {name!r}{hint}; there are {', '.join(names)}")
    if not 0 < len(set(opponents)) < len(names):
        raise ConfigError(f"league.opponents={opponents}: expected the agents of one side, some of {', '.join(names)}")
    known: Any = cfg.env.spec.get("info") or {}
    if cfg.league.score not in known:
        raise ConfigError(
            f"league.score={cfg.league.score!r} is not declared info ({', '.join(known)}): add the key of info "
            "that tells who won to env.info_keys"
        )
    if cfg.pool.freq is None:
        raise ConfigError("chain='league' plays against versions of the policy: also give pool.freq, such as 20")


def agent_names(cfg: Config) -> list[str]:
    """The names of all agents, in their order."""
    return [str(name) for name in cfg.env.spec.agents.names]


def opponents_of(cfg: Config) -> list[int]:
    """The indices of the agents for which others act."""
    return [agent_names(cfg).index(name) for name in cfg.league.opponents]


def evaluator_env(cfg: Config, stream: str) -> Any:
    """Environments for evaluation, with opponents that play at random unless they have one of their own."""
    env = make_evaluator_env(cfg, stream)
    own = cfg.env.evaluator_kwargs.get("opponent")
    return env if own else RandomOpponents(env, cfg.env.spec, opponents_of(cfg), cfg.seed)


def evaluate(cfg: Config, policy: Policy, n_episode: int, stop: Callable[[], bool]) -> list[EpisodeEnd]:
    """Plays episodes against random play."""
    env, longest = evaluator_env(cfg, "env.final"), cfg.policy.eval.max_episode_steps
    with contextlib.closing(env):
        return play_episodes(policy.eval_mode, env, n_episode, max_steps=longest, stop=stop)


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    pool = ModelPool.of(cfg)
    league = League(pool, policy.collect_mode, cfg.league.size)
    env = league.environments(make_collector_env(cfg), opponents_of(cfg), cfg.seed)
    assert cfg.pool.freq is not None
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env(cfg, "env.evaluate"), task=task))
    task.use(model_pool(policy, pool, cfg.pool.freq, unit=cfg.pool.unit, score=lambda: league.rating))
    task.use(past_selves(league))
    task.use(StepCollector(cfg, policy.collect_mode, env))
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))
    task.use(opponent_rater(league, cfg.league.score))


chain = Chain(
    fill,
    OnlineRLContext,
    check,
    settings=("policy.learn.gae_lambda", "policy.learn.n_minibatch"),
    evaluate=evaluate,
    learner=multistep_trainer,
)
