"""What a user writes, fully typed: an agent, chains, own middleware, and policies that act without a chain.

`test_types.py` type-checks it and runs it: no expression may have the type Any, and each `assert_type` must hold.
"""

# mypy: disallow-any-expr

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import minding
from minding.configs import compile_run, load_preset
from minding.engine import Config, Context, Middleware, OfflineRLContext, OnlineRLContext, RunDir, Task, task
from minding.engine.buffers import ReplayBuffer
from minding.engine.chain.context import LearningContext
from minding.engine.data.batch import Field
from minding.engine.data.rollout import Rollout
from minding.engine.types import Array, EnvStep, EpisodeEnd, EvalMode, LearnOutput, Obs
from minding.envs import describe_env, make_collector_env, make_env_manager, make_evaluator_env
from minding.envs.manager import BatchedEnvManager
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    online_logger,
    termination_checker,
)
from minding.policies import DQN, get_policy_class
from minding.policies.core.base import BasePolicy
from minding.policies.core.modes import CollectView, EvalView, LearnView
from minding.policies.ppo import PPO
from minding.training import evaluate, load_policy, train

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: object, kind: object) -> object:
        return value


def settings(folder: Path) -> Config:
    user = {
        "exp_name": "typed",
        "run": {"max_env_step": 128, "out_dir": str(folder), "final_episodes": 2},
        "env": {"env_id": "CartPole-v1", "collector_env_num": 4, "evaluator_env_num": 2},
        "policy": {"type": "ppo", "collect": {"n_sample": 64}, "learn": {"n_epoch": 1, "n_minibatch": 2}},
    }
    cfg = compile_run(user, ["seed=1"])
    assert_type(cfg, Config)
    assert_type(cfg.exp_name, str)
    assert_type(cfg.run.max_env_step, int | None)
    assert_type(cfg.env.collector_env_num, int)
    assert_type(cfg.env.spec.num_agents, int)
    assert_type(cfg.policy.learn.learning_rate, float)
    assert_type(cfg.policy.learn.my_own_key if "my_own_key" in cfg.policy.learn else None, object)
    assert_type(cfg["seed"], object)
    cfg.seed = 2
    assert_type(describe_env(cfg.env)["num_agents"], object)
    assert_type(load_preset("cartpole_dqn"), Config)
    return cfg


class Enough:
    """A callback that is given as its class."""

    def __init__(self, task: Task[OnlineRLContext]) -> None:
        self.task = task

    def __call__(self, ctx: OnlineRLContext) -> None:
        self.task.finish = ctx.env_step > 10**6


class Rises:
    """A callback that is given as an object."""

    def __call__(self, ctx: OnlineRLContext) -> None:
        assert ctx.env_step >= 0


def hold_an_agent(cfg: Config, folder: Path) -> None:
    agent = minding.Agent(cfg, progress=False)
    assert_type(agent.cfg, Config)
    summary = agent.learn(64, use=[count_episodes(), print_progress, note_speed, Enough, Rises()])
    summary = agent.learn(64, use=print_progress)
    assert_type(summary.eval_return, float)
    assert_type(summary.env_step, int)
    evaluation = agent.evaluate(2)
    assert_type(evaluation.mean, float)
    assert_type(evaluation.interval, tuple[float, float])
    env = make_evaluator_env(cfg)
    action = agent.predict(env.reset())
    assert_type(action, Array)
    assert_type(agent.player()(env.obs), Array)
    env.play(action)
    assert_type(agent.run_dir, Path | None)
    assert_type(agent.save(folder / "saved", evaluate=0), Path)
    agent.close()
    env.close()
    assert_type(agent.policy, BasePolicy)
    assert_type(evaluation.info, Mapping[str, float])
    agent.make_env().close()
    loaded = minding.load(folder / "saved", progress=False)
    assert_type(loaded, minding.Agent)


# Middleware of one's own


def count_episodes() -> Middleware[OnlineRLContext]:
    def count(ctx: OnlineRLContext) -> None:
        if ctx.episode_stats is not None:
            returns = [end.episode_return for end in ctx.episode_stats]
            assert_type(returns, list[float])
        if ctx.trajectories is not None:
            assert_type(ctx.trajectories, Rollout)
            assert_type(ctx.trajectories.shape, tuple[int, int])
            assert_type(ctx.trajectories.obs, Obs)
        assert_type(ctx.train_output, dict[str, float] | None)
        assert_type(ctx.eval_value, float | None)
        assert_type(ctx.eval_output, Sequence[EpisodeEnd] | None)
        assert_type(ctx.policy_lag, dict[str, float] | None)
        assert_type(ctx.collect_kwargs, dict[str, object])
        assert_type(ctx.clock, int)

    return count


def print_progress(ctx: OnlineRLContext) -> None:
    if ctx.eval_value is not None:
        print(f"{ctx.env_step}: {ctx.eval_value:.1f}")


def note_speed(ctx: LearningContext) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    if ctx.train_output is not None:
        ctx.train_output["seconds"] = time.perf_counter() - begun


@dataclasses.dataclass
class MyContext(Context):
    visits: int = 0

    def __post_init__(self) -> None:
        self.keep("visits")


def count_visits(ctx: MyContext) -> None:
    ctx.visits += 1


def counts_of_their_own() -> None:
    own = Task()
    with own.start(ctx=MyContext()) as started:
        assert_type(started, Task[MyContext])
        started.use(count_visits)
        started.run(max_step=3)
        assert_type(started.ctx.visits, int)
    with task.start(ctx=OfflineRLContext()) as offline:
        assert_type(offline.ctx.train_epoch, int)


# Chains


def show_row(row: Mapping[str, float], step: int) -> None:
    print(step, sorted(row))


def on_policy(cfg: Config) -> None:
    policy = PPO(cfg)
    assert_type(policy.cfg.learn.clip_ratio, float)
    assert_type(policy.collect_mode, CollectView)
    assert_type(policy.learn_mode, LearnView)
    assert_type(policy.eval_mode, EvalView)
    collector_env = make_collector_env(cfg)
    evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(count_episodes()).use(print_progress).use(note_speed)
        task.use(online_logger(cfg, progress=False))
        task.use(termination_checker(max_env_step=128))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
        task.on("metrics", show_row)
        task.run(max_step=2)
    assert_type(task.ctx, OnlineRLContext)
    assert_type(task.ctx.last_eval_value, float)


def off_policy(folder: Path) -> None:
    overrides = [f"run.out_dir={folder}", "env.collector_env_num=4", "policy.learn.nstep=1"]
    cfg = compile_run(load_preset("cartpole_dqn"), overrides)
    policy = DQN(cfg)
    buffer_ = ReplayBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    assert_type(policy.learn_mode.fields, Mapping[str, Field])

    def learn_once(ctx: OnlineRLContext) -> None:
        if len(buffer_) < 64:
            return
        output = policy.learn_mode.forward(buffer_.sample(1, 32), progress=0.5)
        assert_type(output, LearnOutput)
        assert_type(output.metrics, Mapping[str, float])

    with task.start(ctx=OnlineRLContext()):
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
        task.use(data_pusher(cfg, buffer_))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(learn_once, before="OffPolicyLearner", role="learn")
        task.run(max_step=3)


def act_without_a_chain(cfg: Config) -> None:
    kind = get_policy_class(cfg.policy.type)
    policy = kind(cfg, modes=("collect", "eval"))
    assert_type(policy, BasePolicy)
    env = make_env_manager(cfg.env, 3, cfg.seed)
    assert_type(env, BatchedEnvManager)
    obs = env.reset()
    assert_type(obs, Obs)
    output = policy.collect_mode.forward(obs)
    assert_type(output, dict[str, Array])
    step = env.step(output["action"])
    assert_type(step, EnvStep)
    assert_type(step.obs, Obs)
    assert_type(step.reward, Array)
    assert_type(step.episodes, Sequence[EpisodeEnd])
    assert_type(step.info, Mapping[str, Array] | None)
    assert_type(policy.collect_mode.value(step.obs), Array)
    assert_type(policy.collect_mode.memory, Array | None)
    assert_type(policy.eval_mode.forward(step.obs), Array)
    env.close()


def train_a_run(cfg: Config) -> None:
    summary = train(cfg, RunDir.create(cfg), progress=False)
    assert_type(summary.run_dir, str)
    run_dir = RunDir.open(summary.run_dir)
    assert_type(run_dir.load_config(), Config)
    assert_type(load_policy(run_dir).policy.eval_mode, EvalMode)
    assert_type([episode.episode_length for episode in evaluate(summary.run_dir, n_episode=2)], list[int])


def outline(folder: Path) -> None:
    cfg = settings(folder)
    act_without_a_chain(cfg)
    counts_of_their_own()


def runs(folder: Path) -> None:
    cfg = settings(folder)
    on_policy(cfg)
    off_policy(folder)
    hold_an_agent(cfg, folder)
    train_a_run(cfg)
