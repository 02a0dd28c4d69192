"""Evaluate if there is an environment, sample recorded data, learn from them, evaluate on held-out episodes."""

from typing import cast

from minding.configs.chains import Chain
from minding.configs.datasets import data_folder, open_data
from minding.engine.buffers import DatasetTables, MappedTables
from minding.engine.chain.context import OfflineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.dataset import check_fits, load_dataset, too_few
from minding.engine.data.episode import RECORDED
from minding.engine.data.holdout import hold_out
from minding.engine.data.rewards import RewardScale
from minding.engine.errors import ConfigError, DataError
from minding.engine.types import Policy
from minding.envs import make_evaluator_env
from minding.middleware import dataset_evaluator, interaction_evaluator, offline_data_fetcher, trainer
from minding.middleware.dataset_evaluator import JudgedPolicy, unfit_for_fqe


def check(cfg: Config) -> None:
    """Refuses a configuration without valid recorded data from which it can learn."""
    batch_size = cfg.policy.learn.batch_size
    learned, _ = hold_out(open_data(cfg, batch_size), cfg.policy.other.holdout, cfg.seed)
    for problem in too_few(len(learned), batch_size, "recorded steps that policy.other.holdout leaves"):
        raise DataError(f"{data_folder(cfg)!r}: {problem}")
    for problem in unfit_for_fqe(cfg, learned):
        raise ConfigError(problem)
    RewardScale(cfg.policy.other.reward).take(learned.returns())


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    folder = data_folder(cfg)
    mapped = cfg.policy.other.data_memory == "mapped"
    data = open_data(cfg, cfg.policy.learn.batch_size) if mapped else load_dataset(folder)
    check_fits(data, cfg.env, folder)
    learned, held = hold_out(data, cfg.policy.other.holdout, cfg.seed)
    if cfg.env.env_id != RECORDED:
        task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    fields, learn = policy.learn_mode.fields, cfg.policy.learn
    tables = (
        MappedTables(learned, fields, learn.steps_per_call * learn.batch_size * max(1, learn.length))
        if mapped
        else DatasetTables(learned, fields)
    )
    task.use(offline_data_fetcher(cfg, tables))
    task.use(trainer(cfg, policy.learn_mode))
    if held is not None or cfg.policy.eval.fqe:
        task.use(dataset_evaluator(cfg, cast(JudgedPolicy, policy), data, task=task))


chain = Chain(fill, OfflineRLContext, check, ("policy.other.data",))
