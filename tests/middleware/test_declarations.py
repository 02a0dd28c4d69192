"""Every library middleware touches the context fields that it declares, and no others."""

import dataclasses
import inspect
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import (
    COUNTING_FIELDS,
    AgePolicy,
    CountingEnv,
    ReadingLearner,
    RecordingContext,
    RecordingOfflineContext,
    space_of,
)

import minding.middleware as library
from minding.configs import compile_run
from minding.engine import Config, Task
from minding.engine.buffers import ReplayBuffer
from minding.engine.chain.middleware import declaration_of, declare
from minding.engine.data.batch import Field
from minding.engine.data.dataset import Dataset
from minding.engine.data.obs_trees import unflatten
from minding.engine.errors import FieldError
from minding.engine.run.pool import ModelPool
from minding.engine.search import opponents
from minding.engine.types import EpisodeEnd, RewardEstimate
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.envs.games.goal_games import BitFlip
from minding.middleware.league import League

ON_POLICY_FIELDS = {"obs": Field((3,)), "advantage": Field()}
TRAJECTORY_FIELDS = {"obs": Field((3,)), "cut": Field()}
ACT = AgePolicy()
REPLAY_LEARNER = ReadingLearner(COUNTING_FIELDS)


class RunningTask:
    """A task in the middle of an iteration."""

    def at_boundary(self, fn): ...


class Recorded:
    """Eight recorded steps."""

    digest = "a"

    def __len__(self):
        return 8

    def batch(self, index):
        return index


class AlwaysFirst:
    """A policy that takes the first action, and has no action values."""

    def __init__(self):
        self.eval_mode = self

    def forward(self, obs):
        return np.zeros(len(obs), np.int64)

    def action_values(self, obs, action):
        return None


ALWAYS_FIRST = AlwaysFirst()
ONE_EPISODE = {"obs": np.zeros((3, 3)), "action": np.array([0, 1]), "reward": np.ones(2), "terminated": True}
TWO_EPISODES = Dataset.of_episodes([{**ONE_EPISODE, "truncated": False}] * 2)


class NoOpinion:
    """Predicts that all is equal, in either mode."""

    record_fields = reset = ()

    def predict(self, obs):
        n = len(obs["observation"])
        return {"logits": np.zeros((n, 9)), "value": np.zeros(n)}


class NoReward:
    """Rewards nothing."""

    def estimate(self, rollout):
        return RewardEstimate(np.zeros(rollout.shape, np.float32), {})


class NoWeights:
    """Acts with nothing."""

    def acting_arrays(self):
        return {}, ""

    state_dict = dict


class OfNoWeights:
    """A mode that acts with nothing."""

    def weights(self):
        return {}

    def factory(self):
        return None


BOARD = TicTacToe()
BOARD_OBS = {"observation": np.zeros((1, 2, 3, 3), np.float32), "action_mask": np.ones((1, 9), bool)}
ONE_GAME = {"obs": unflatten(BOARD_OBS), "policy": np.full((1, 9), 1 / 9), "outcome": np.ones(1)}


class Nowhere:
    """A buffer that keeps nothing."""

    capacity, fields = 50, COUNTING_FIELDS

    def push(self, transitions):
        pass

    store = push


def with_goals(rollout):
    """The rollout of an environment with goals: each is what is seen."""
    goals = {}
    for name in ("obs", "last_obs", "final_obs"):
        seen = getattr(rollout, name)
        goals[name] = None if seen is None else unflatten(dict.fromkeys(("achieved_goal", "desired_goal"), seen))
    return dataclasses.replace(rollout, **goals)


def filled_buffer():
    buffer = ReplayBuffer(50, COUNTING_FIELDS)
    zeros = np.zeros((20, 3), np.float32)
    buffer.push({"obs": zeros, "next_obs": zeros, **dict.fromkeys(("action", "reward", "terminated"), zeros[:, 0])})
    return buffer


MIDDLEWARE = {
    "CkptSaver": lambda cfg, path: library.CkptSaver(
        SimpleNamespace(config=Config(), state_dict=dict), "run", 1, out_dir=path, task=RunningTask()
    ),
    "EpisodeCollector": lambda cfg, path: library.EpisodeCollector(cfg, ACT.collect_mode, CountingEnv(), n_episode=2),
    "OffPolicyLearner": lambda cfg, path: library.OffPolicyLearner(cfg, REPLAY_LEARNER, filled_buffer()),
    "SelfPlayCollector": lambda cfg, path: library.SelfPlayCollector(cfg, NoOpinion(), BOARD),
    "StepCollector": lambda cfg, path: library.StepCollector(cfg, ACT.collect_mode, CountingEnv()),
    "arena_evaluator": lambda cfg, path: library.arena_evaluator(cfg, NoOpinion(), BOARD, [opponents.random()]),
    "data_pusher": lambda cfg, path: library.data_pusher(cfg, ReplayBuffer(50, COUNTING_FIELDS)),
    "dataset_evaluator": lambda cfg, path: library.dataset_evaluator(cfg, ALWAYS_FIRST, TWO_EPISODES),
    "episode_pusher": lambda cfg, path: library.episode_pusher(cfg, ReplayBuffer(50, {"outcome": Field()})),
    "epoch_timer": lambda cfg, path: library.epoch_timer(1),
    "eps_greedy_handler": lambda cfg, path: library.eps_greedy_handler(cfg),
    "eps_greedy_masker": lambda cfg, path: library.eps_greedy_masker(),
    "gae_estimator": lambda cfg, path: library.gae_estimator(cfg, ACT.collect_mode),
    "her_data_enhancer": lambda cfg, path: library.her_data_enhancer(cfg, Nowhere(), BitFlip(3)),
    "interaction_evaluator": lambda cfg, path: library.interaction_evaluator(cfg, ACT.eval_mode, CountingEnv()),
    "model_pool": lambda cfg, path: library.model_pool(NoWeights(), ModelPool(path), 1),
    "montecarlo_return_estimator": lambda cfg, path: library.montecarlo_return_estimator(cfg, ACT.collect_mode),
    "multistep_trainer": lambda cfg, path: library.multistep_trainer(cfg, ReadingLearner(ON_POLICY_FIELDS)),
    "nstep_reward_enhancer": lambda cfg, path: library.nstep_reward_enhancer(cfg),
    "offline_data_fetcher": lambda cfg, path: library.offline_data_fetcher(cfg, Recorded()),
    "offline_data_saver": lambda cfg, path: library.offline_data_saver(cfg, path / "replay"),
    "online_logger": lambda cfg, path: library.online_logger(cfg, path, progress=True),
    "opponent_rater": lambda cfg, path: library.opponent_rater(League(ModelPool(path), OfNoWeights()), "won"),
    "past_selves": lambda cfg, path: library.past_selves(League(ModelPool(path), OfNoWeights())),
    "priority_calculator": lambda cfg, path: library.priority_calculator(lambda rollout: rollout.reward),
    "recorded_data_pusher": lambda cfg, path: library.recorded_data_pusher(Nowhere(), TWO_EPISODES),
    "reward_estimator": lambda cfg, path: library.reward_estimator(NoReward(), 1.0),
    "reward_timer": lambda cfg, path: library.reward_timer(1.0),
    "rollout_queue": lambda cfg, path: library.rollout_queue(2),
    "sqil_data_pusher": lambda cfg, path: library.sqil_data_pusher(cfg, ReplayBuffer(50, COUNTING_FIELDS), True),
    "symmetry_enhancer": lambda cfg, path: library.symmetry_enhancer(BOARD),
    "termination_checker": lambda cfg, path: library.termination_checker(
        max_env_step=10**6, max_train_iter=10**6, stop_value=10**6, task=Task().start()
    ),
    "trainer": lambda cfg, path: library.trainer(cfg, ReadingLearner(ON_POLICY_FIELDS)),
    "trajectory_trainer": lambda cfg, path: library.trajectory_trainer(cfg, ReadingLearner(TRAJECTORY_FIELDS)),
}
# Middleware of value-based chains take the settings of one.
SELF_PLAY = {"SelfPlayCollector", "arena_evaluator", "episode_pusher", "symmetry_enhancer"}
OFFLINE = {"dataset_evaluator", "offline_data_fetcher"}
OFF_POLICY = {
    "OffPolicyLearner",
    "data_pusher",
    "eps_greedy_handler",
    "her_data_enhancer",
    "nstep_reward_enhancer",
    "sqil_data_pusher",
}


@pytest.fixture
def settings(counting_config, tiny_config):
    def choose(name):
        if name in OFF_POLICY:
            return counting_config("dqn", **{"policy.learn.warmup": 10, "policy.learn.batch_size": 4})
        if name in OFFLINE:
            held = {"policy.other.holdout": 0.5, "policy.eval.freq": 1}
            return tiny_config("bc", space_of(3), **{"policy.learn.batch_size": 4, **held})
        if name in SELF_PLAY:
            small = ["policy.collect.simulations=2", "policy.eval.simulations=2", "policy.eval.n_episode=2"]
            return compile_run("tictactoe_alphazero", [*small, "policy.eval.freq=1", "env.collector_env_num=2"])
        algorithm = "impala" if name == "trajectory_trainer" else "ppo"
        return counting_config(algorithm, **{"run.loggers": [], "run.metrics_freq": 1})

    return choose


def full_context(cfg):
    """A context in the middle of a run, with all that other middleware hand on."""
    if "search" in cfg.policy.collect:
        cfg = compile_run("cartpole_ppo")
    ctx = RecordingContext(env_episode=7, train_iter=50, train_output={"loss": 1.0}, eval_value=3.0)
    ctx.last_eval_iter, ctx.last_eval_value, ctx.last_eval_clock = 40, 3.0, 0
    library.StepCollector(cfg, ACT.collect_mode, CountingEnv())(ctx)
    ctx.episodes = [dict(ONE_GAME)]
    ctx.env_step, ctx.episode_stats = 10_000, [EpisodeEnd(0, 1.0, 1)]
    zeros = np.zeros(8, np.float32)
    ctx.train_data = {"obs": np.zeros((8, 3), np.float32), "advantage": zeros, "valid": np.ones(8, bool)}
    return ctx


def run(middleware, ctx):
    result = middleware(ctx)
    if inspect.isgenerator(result):
        assert len(list(result)) == 1


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_a_middleware_touches_what_it_declares(name, settings, tmp_path):
    cfg = settings(name)
    middleware = MIDDLEWARE[name](cfg, tmp_path)
    ctx = (RecordingOfflineContext(train_iter=1) if name in OFFLINE else full_context(cfg)).begin()
    if name == "her_data_enhancer":
        ctx.trajectories = with_goals(ctx.trajectories)
        ctx.begin()
    run(middleware, ctx)
    read, written = ctx.touched
    declared = declaration_of(middleware)
    assert declared.name == name
    assert written == set(declared.writes)
    assert read <= {*declared.reads, *declared.optional}
    # Nor does it declare a read that it does not make.
    assert set(declared.reads) <= read


EXPECTED = {
    "trajectories": "the Rollout of this iteration",
    "train_data": "a dict of arrays, one row per transition",
    "episodes": "a list of episodes, dicts of arrays",
    "collect_kwargs": "a dict of keyword arguments, {} for none",
}
READERS = [
    (name, field)
    for name in MIDDLEWARE
    for field in EXPECTED
    if field in (*declaration_of(getattr(library, name)).reads, *declaration_of(getattr(library, name)).optional)
]


@pytest.mark.parametrize("value", [None, [1]])
@pytest.mark.parametrize(("name", "field"), READERS)
def test_a_replaced_field_names_who_reads_it(name, field, value, settings, tmp_path):
    cfg = settings(name)
    middleware, ctx = MIDDLEWARE[name](cfg, tmp_path), full_context(cfg)
    setattr(ctx, field, value)
    with pytest.raises(FieldError) as caught:
        run(middleware, ctx)
    found = "None" if value is None else "a list"
    text = str(caught.value)
    assert text.startswith(f"{name} expects ctx.{field} to be {EXPECTED[field]}")
    assert text.endswith(f", but found {found}")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(copy), str(copy), copy.field) == (FieldError, text, field)


def test_a_replaced_field_names_all_that_may_have_set_it():
    @declare(reads=("trajectories",), writes=("train_output",))
    class Declared:
        def __call__(self, ctx): ...

    @declare(writes=("trajectories",))
    class Writer:
        def __call__(self, ctx): ...

    def tamper(ctx):
        ctx.trajectories = None

    reader = library.priority_calculator(lambda rollout: rollout.reward)
    with Task().start() as task:
        task.use(Writer()).use(tamper).use(Declared()).use(reader).use(tamper)
        with pytest.raises(FieldError) as caught:
            task.run(max_step=1)
    assert caught.value.__notes__ == [
        "in middleware 'priority_calculator' (position 3, step 0)",
        "ctx.trajectories may have been set by 'Writer' (position 0), 'tamper' (position 1); the last one counts",
    ]


def test_every_middleware_of_the_library_is_in_the_table():
    assert set(MIDDLEWARE) == set(library.__all__)
