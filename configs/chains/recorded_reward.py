"""Evaluate, collect, replace rewards by those of a model of recorded data, estimate advantages, learn.

The model is the one whose settings the algorithm has in `policy.other`: GAIL, AIRL or T-REX.
"""

from minding.configs.chains import Chain
from minding.configs.datasets import data_folder, open_data
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.data.dataset import check_fits, load_dataset
from minding.engine.data.holdout import episode_ranks
from minding.engine.errors import ConfigError
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import StepCollector, gae_estimator, interaction_evaluator, multistep_trainer, reward_estimator

MODELS = ("gail", "airl", "trex")
"""The models of recorded data, by their sections in `policy.other`."""


def check(cfg: Config) -> None:
    """Refuses a configuration without valid recorded data that fit its environment."""
    name = _model(cfg)
    data = open_data(cfg, setting_at(cfg, key := f"policy.other.{name}.batch_size"), key)
    if name == "trex":
        episode_ranks(data, setting_at(cfg, "policy.other.trex.ranking"))


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    from minding.policies.rewards import reward_model

    folder = data_folder(cfg)
    recorded = load_dataset(folder)
    check_fits(recorded, cfg.env, folder)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    # Loads MindSpore.
    task.use(reward_estimator(reward_model(_model(cfg)).of(cfg, recorded, policy), 1.0, own=0.0))
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))


def _model(cfg: Config) -> str:
    found = [name for name in MODELS if name in cfg.policy.other]
    if not found:
        raise ConfigError(
            f"chain={cfg.chain!r} with policy.type={cfg.policy.type!r}: the chain reads the settings of a reward "
            f"model, policy.other.{' or '.join(MODELS)}, which the algorithm does not have; leave chain out for its own"
        )
    return found[0]


chain = Chain(fill, OnlineRLContext, check, ("policy.other.data", "policy.learn.gae_lambda"), learner=multistep_trainer)
