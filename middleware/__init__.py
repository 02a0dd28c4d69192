"""Middleware: one concept per file, each a callable on the context."""

from minding.middleware.arena_evaluator import arena_evaluator
from minding.middleware.ckpt_saver import CkptSaver
from minding.middleware.collector import StepCollector
from minding.middleware.data_pusher import data_pusher, episode_pusher, recorded_data_pusher, sqil_data_pusher
from minding.middleware.dataset_evaluator import dataset_evaluator
from minding.middleware.episode_collector import EpisodeCollector
from minding.middleware.eps_greedy import eps_greedy_handler, eps_greedy_masker
from minding.middleware.evaluator import interaction_evaluator
from minding.middleware.her_data_enhancer import her_data_enhancer
from minding.middleware.league import opponent_rater, past_selves
from minding.middleware.learner import OffPolicyLearner
from minding.middleware.model_pool import model_pool
from minding.middleware.nstep_reward_enhancer import nstep_reward_enhancer
from minding.middleware.offline_data_fetcher import offline_data_fetcher
from minding.middleware.offline_data_saver import offline_data_saver
from minding.middleware.online_logger import online_logger
from minding.middleware.priority_calculator import priority_calculator
from minding.middleware.return_estimators import gae_estimator, montecarlo_return_estimator
from minding.middleware.reward_estimator import reward_estimator
from minding.middleware.rollout_queue import rollout_queue
from minding.middleware.self_play import SelfPlayCollector, symmetry_enhancer
from minding.middleware.termination_checker import termination_checker
from minding.middleware.timers import epoch_timer, reward_timer
from minding.middleware.trainer import multistep_trainer, trainer
from minding.middleware.trajectory_trainer import trajectory_trainer

__all__ = [
    "CkptSaver",
    "EpisodeCollector",
    "OffPolicyLearner",
    "SelfPlayCollector",
    "StepCollector",
    "arena_evaluator",
    "data_pusher",
    "dataset_evaluator",
    "episode_pusher",
    "epoch_timer",
    "eps_greedy_handler",
    "eps_greedy_masker",
    "gae_estimator",
    "her_data_enhancer",
    "interaction_evaluator",
    "model_pool",
    "montecarlo_return_estimator",
    "multistep_trainer",
    "nstep_reward_enhancer",
    "offline_data_fetcher",
    "offline_data_saver",
    "online_logger",
    "opponent_rater",
    "past_selves",
    "priority_calculator",
    "recorded_data_pusher",
    "reward_estimator",
    "reward_timer",
    "rollout_queue",
    "sqil_data_pusher",
    "symmetry_enhancer",
    "termination_checker",
    "trainer",
    "trajectory_trainer",
]
