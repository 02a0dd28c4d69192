"""Evaluate, explore, collect, store, learn from replay and from recorded data (RLPD).

Ball et al., 2023, https://arxiv.org/abs/2302.02948: recorded steps with their rewards make up half of each minibatch;
the critics have layer normalization (`policy.model.norm=critics`).
"""

from typing import cast

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import REPLAY
from minding.configs.datasets import data_folder, open_data
from minding.engine.buffers import MixedBuffer
from minding.engine.buffers.mixed import BufferPart
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.dataset import Dataset, check_fits, load_dataset
from minding.engine.data.rewards import RewardScale
from minding.engine.errors import ConfigError
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
    recorded_data_pusher,
)
from minding.middleware.dataset_evaluator import JudgedPolicy
from minding.middleware.eps_greedy import explores_by_chance

SETTINGS = (*REPLAY, "policy.other.data", "policy.other.data_share")


def check(cfg: Config) -> None:
    """Refuses a configuration without valid recorded data that fit, and minibatches that cannot be divided."""
    learn, other = cfg.policy.learn, cfg.policy.other
    share = other.data_share
    rows = round(share * learn.batch_size)
    if abs(rows - share * learn.batch_size) > 1e-6 or not 0 < rows < learn.batch_size:
        raise ConfigError(
            f"policy.other.data_share={share} of policy.learn.batch_size={learn.batch_size}: expected a share that is "
            "a whole number of rows, and not all"
        )
    if learn.nstep > 1:
        raise ConfigError(f"chain={cfg.chain!r}: recorded steps are single ones: use policy.learn.nstep=1")
    if other.get("replay", "uniform") != "uniform":
        raise ConfigError(f"chain={cfg.chain!r} draws uniformly from its two parts: use policy.other.replay=uniform")
    if learn.get("critic_penalty"):
        raise ConfigError(
            f"chain={cfg.chain!r}: what is collected does not hold the next action, which policy.learn.critic_penalty "
            "compares with: set it to 0"
        )
    data = open_data(cfg, rows, "policy.other.data_share x policy.learn.batch_size")
    if cfg.chain == "prior_data":
        RewardScale(other.reward).take(data.returns())


def parts(cfg: Config, policy: Policy) -> tuple[MixedBuffer, BufferPart, BufferPart, Dataset]:
    """The buffer, its part for collected steps, its part for recorded data, and the recorded data."""
    folder = data_folder(cfg)
    data = load_dataset(folder)
    check_fits(data, cfg.env, folder)
    share = cfg.policy.other.data_share
    sizes = [(cfg.policy.other.buffer_size, 1.0 - share), (len(data), share)]
    buffer = MixedBuffer(sizes, policy.learn_mode.fields, seed=cfg.seed)
    own, recorded = buffer.parts
    return buffer, own, recorded, data


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    buffer, own, recorded, data = parts(cfg, policy)
    if cfg.policy.other.reward != "raw":
        cast(JudgedPolicy, policy).reward_scale.take(data.returns())
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(data_pusher(cfg, own))
    task.use(recorded_data_pusher(recorded, data))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


chain = Chain(fill, OnlineRLContext, check, SETTINGS, learner=OffPolicyLearner)
