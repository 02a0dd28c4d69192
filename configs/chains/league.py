"""Evaluate, keep versions of the policy, play against them, estimate advantages, learn from this rollout, rate."""

from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.agent_axis import num_agents
from minding.engine.errors import ConfigError, nearest
from minding.engine.run.pool import ModelPool
from minding.engine.types import Policy
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
from minding.middleware.league import League


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
    if cfg.league.score not in cfg.env.info_keys:
        raise ConfigError(
            f"league.score={cfg.league.score!r} is not in env.info_keys={cfg.env.info_keys}: add the key of info "
            "that tells who won"
        )
    if cfg.pool.freq is None:
        raise ConfigError("chain='league' plays against versions of the policy: also give pool.freq, such as 20")


def agent_names(cfg: Config) -> list[str]:
    """The names of all agents, in their order."""
    return [str(name) for name in cfg.env.spec.agents.names]


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    names, pool = agent_names(cfg), ModelPool.of(cfg)
    league = League(pool, policy.collect_mode, cfg.league.size)
    env = league.environments(make_collector_env(cfg), [names.index(name) for name in cfg.league.opponents], cfg.seed)
    assert cfg.pool.freq is not None
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
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
    learner=multistep_trainer,
)
