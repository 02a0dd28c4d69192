"""Evaluate, draw recorded data, learn from them."""

from __future__ import annotations

from minding.configs.chains import Chain
from minding.engine.buffers import DatasetTables
from minding.engine.chain.context import OfflineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.dataset import check_fits, check_folder, load_dataset
from minding.engine.errors import ConfigError
from minding.engine.types import Policy
from minding.envs import make_evaluator_env
from minding.middleware import interaction_evaluator, offline_data_fetcher, trainer


def check(cfg: Config) -> None:
    """Refuses a configuration that names no recorded data which fit it, before they are read."""
    if not cfg.policy.other.get("data"):
        raise ConfigError(
            "policy.other.data is not given: expected the folder of recorded data; `minding record-data RUN --steps N` "
            "makes one from a run folder"
        )
    check_folder(cfg.policy.other.data, cfg.env, cfg.policy.learn.batch_size)


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    """Appends the chain to the task."""
    data = load_dataset(cfg.policy.other.data)
    check_fits(data, cfg.env, cfg.policy.other.data)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(offline_data_fetcher(cfg, DatasetTables(data, policy.learn_mode.fields)))
    task.use(trainer(cfg, policy.learn_mode))


chain = Chain(fill, OfflineRLContext, check, ("policy.other.data",))
