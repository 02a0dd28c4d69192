"""Chains: from a compiled configuration to a run. Presets name one by `recipe`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from minding.configs import compile_run
from minding.engine.buffers import UniformBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.checkpoint import Checkpoint, use_checkpoint, use_newest
from minding.engine.config.identity import POLICY, check_checkpoint
from minding.engine.errors import ConfigError, nearest
from minding.engine.process import runtime
from minding.engine.process.signals import SignalGuard
from minding.engine.run.evidence import nan_batch_kept
from minding.engine.run.loggers import console_logger
from minding.engine.run.run_dir import RunDir
from minding.engine.seeding import SeedStreams
from minding.engine.types import EpisodeEnd, Policy
from minding.envs import make_env_manager
from minding.envs.manager import check_backend
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    nstep_reward_enhancer,
    online_logger,
    termination_checker,
    trainer,
    trajectory_trainer,
)
from minding.middleware.evaluator import play_episodes
from minding.policies import get_policy_class
from minding.policies.export.reader import ExportedPolicy


@dataclasses.dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    Attributes:
      env_step, train_iter: environment and gradient steps.
      eval_return, eval_std, n_eval_episodes: returns of the final policy in fresh evaluation episodes.
      wall_time: seconds of training, without the final evaluation, in all processes of the run.
      steps_per_second: environment steps per second of training.
      stop_reason: 'max_env_step', 'stop_value', 'max_step', 'SIGINT' or 'SIGTERM'.
      run_dir, ckpt: the folders.
      unsaved: whether the last state of the run could not be saved.
      folder_lost: whether the run folder was removed or renamed during the run: what it held by then is not in it.
      profile: time table of the middleware; empty unless asked for.
    """

    env_step: int
    train_iter: int
    eval_return: float
    eval_std: float
    n_eval_episodes: int
    wall_time: float
    steps_per_second: float
    stop_reason: str
    run_dir: str
    ckpt: str
    unsaved: bool = False
    folder_lost: bool = False
    profile: str = ""


def off_policy(task: Task, cfg: EasyDict, policy: Policy) -> None:
    """evaluate, explore, collect, store, learn from replay."""
    seeds = SeedStreams(cfg.seed)
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, seeds.integers("env.collect", 1)[0])
    buffer = UniformBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env(cfg), task=task))
    if "eps" in cfg.policy.other:
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, collector_env))
    if cfg.policy.learn.nstep > 1:
        task.use(nstep_reward_enhancer(cfg))
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


def on_policy(task: Task, cfg: EasyDict, policy: Policy) -> None:
    """evaluate, collect, estimate advantages, learn from this rollout."""
    _evaluate_and_collect(task, cfg, policy)
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))


def single_step(task: Task, cfg: EasyDict, policy: Policy) -> None:
    """evaluate, collect, estimate advantages, make one gradient step on this rollout."""
    _evaluate_and_collect(task, cfg, policy)
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(trainer(cfg, policy.learn_mode))


def trajectory(task: Task, cfg: EasyDict, policy: Policy) -> None:
    """evaluate, collect, learn from this rollout's trajectories in order."""
    _evaluate_and_collect(task, cfg, policy)
    task.use(trajectory_trainer(cfg, policy.learn_mode))


def _evaluate_and_collect(task: Task, cfg: EasyDict, policy: Policy) -> None:
    seeds = SeedStreams(cfg.seed)
    collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, seeds.integers("env.collect", 1)[0])
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env(cfg), task=task))
    task.use(StepCollector(cfg, policy.collect_mode, collector_env))


RECIPES: dict[str, Callable[[Task, EasyDict, Policy], None]] = {
    recipe.__name__: recipe for recipe in (off_policy, on_policy, single_step, trajectory)
}


def evaluator_env(cfg: EasyDict, stream: str = "env.evaluate") -> Any:
    """Environments for evaluation, with their own seed stream and unmodified rewards."""
    seed = SeedStreams(cfg.seed).integers(stream, 1)[0]
    return make_env_manager(cfg.env, cfg.env.evaluator_env_num, seed, training=False)


def make_policy(cfg: EasyDict, modes: Sequence[str] = ("collect", "learn", "eval")) -> Policy:
    """The configured policy."""
    policy: Policy = get_policy_class(cfg.policy.type)(cfg, modes)
    return policy


def check_runnable(cfg: EasyDict) -> None:
    """Refuses what cannot run here, before MindSpore is loaded and anything is written.

    Raises:
      ConfigError: for an unknown recipe, with the nearest, or a backend that the environment has not.
      MissingExtraError: if the backend's package is not installed.
      SetupError: if the device is not there.
    """
    if cfg.recipe not in RECIPES:
        hint = nearest(str(cfg.recipe), RECIPES)
        raise ConfigError(f"recipe={cfg.recipe!r} is unknown{hint}; known: {', '.join(RECIPES)}")
    runtime.check_device(cfg.device)
    check_backend(cfg.env)


def build(task: Task, cfg: EasyDict) -> Policy:
    """Builds the policy and fills the started `task` with the chain of the configured recipe.

    Raises:
      ConfigError, MissingExtraError, SetupError: as `check_runnable`.
    """
    check_runnable(cfg)
    policy = make_policy(cfg)
    RECIPES[cfg.recipe](task, cfg, policy)
    return policy


def train(cfg: EasyDict, run_dir: RunDir, *, progress: bool = True, resume: str | Path | None = None) -> Summary:
    """Runs the configured chain to its end and evaluates the final policy.

    Args:
      cfg: compiled configuration.
      run_dir: a fresh run folder, or that of the run to resume.
      progress: show a progress bar.
      resume: ``"latest"``, or anything else that `Task.start` resumes from; None starts from the beginning.

    Returns:
      The run's figures.
    """
    try:
        return _train(cfg, run_dir, progress, resume)
    finally:
        # The next run in this process finds the memory of this one free.
        runtime.release()


def _train(cfg: EasyDict, run_dir: RunDir, progress: bool, resume: str | Path | None) -> Summary:
    task = Task()
    start = time.perf_counter()
    started = task.start(
        cfg.lanes.async_mode,
        OnlineRLContext(),
        lanes=cfg.lanes,
        profile=cfg.run.profile,
        trace=cfg.run.trace,
        resume=resume,
    )
    with SignalGuard(task.interrupt), started:
        for event in ("resumed", "run_folder_lost"):
            task.on(event, lambda: run_dir.update_config(cfg))
        policy = build(task, cfg)
        saver = CkptSaver(policy, run_dir.path.name, cfg.run.ckpt_freq, out_dir=run_dir.path.parent, task=task)
        checker = termination_checker(max_env_step=cfg.run.max_env_step, stop_value=cfg.run.stop_value, task=task)
        task.use(checker)
        task.use(saver)
        logger = online_logger(cfg, run_dir, progress=progress)
        task.use(logger)
        start = time.perf_counter()
        with nan_batch_kept(run_dir.path / "nan", task):
            task.run(max_step=cfg.run.max_step or 10**12)
        wall_time = logger.earlier_seconds + time.perf_counter() - start
        ctx, stop_reason = task.ctx, checker.reason or str(task.stop_reason)
        profile = task.profile() if cfg.run.profile else ""
        if cfg.run.trace:
            try:
                task.write_trace(run_dir.path / "trace.json")
            except OSError as error:
                console_logger().warning("the time line was not written: %s", error)
    with SignalGuard(task.interrupt):
        episodes = final_evaluation(cfg, policy, stop=lambda: task.interrupted_by is not None)
    if task.interrupted_by is not None:
        stop_reason, episodes = task.interrupted_by, []
    returns = np.array([end.episode_return for end in episodes])
    return Summary(
        env_step=ctx.env_step,
        train_iter=ctx.train_iter,
        eval_return=float(returns.mean()) if episodes else float("nan"),
        eval_std=float(returns.std()) if episodes else float("nan"),
        n_eval_episodes=len(episodes),
        wall_time=wall_time,
        steps_per_second=ctx.env_step / max(wall_time, 1e-9),
        stop_reason=stop_reason,
        run_dir=str(run_dir.path),
        ckpt=str(saver.folder),
        unsaved=saver.unsaved,
        folder_lost=saver.folder_lost,
        profile=profile,
    )


def final_evaluation(
    cfg: EasyDict,
    policy: Policy | ExportedPolicy,
    n_episode: int | None = None,
    seed: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[EpisodeEnd]:
    """Episodes of the policy in environments that neither training nor its evaluations have seen.

    Once `stop()` is true, those that are still running are abandoned.
    """
    cfg = EasyDict({**cfg, "seed": cfg.seed if seed is None else seed})
    env = evaluator_env(cfg, "env.final")
    try:
        max_steps = cfg.policy.eval.max_episode_steps
        return play_episodes(policy.eval_mode, env, n_episode or cfg.run.final_episodes, max_steps=max_steps, stop=stop)
    finally:
        env.close()


class Trained(NamedTuple):
    """The policy of a run, for acting only, with the configuration and the checkpoint that it is from."""

    cfg: EasyDict
    policy: Policy
    ckpt: Path


def load_policy(run: RunDir, ckpt: Path | None = None) -> Trained:
    """The trained policy of a run.

    Args:
      run: an earlier run.
      ckpt: a checkpoint folder; the newest by default.

    Raises:
      CheckpointError: if there is no whole checkpoint, or it does not belong to the run's algorithm, network,
        environment and spaces; the policy is built only where it does.
      ConfigError: if the run's configuration is damaged.
      TrustError: if it names code that is not the user's own.
    """
    cfg = compile_run(run.load_config())
    built: list[Policy] = []

    def use(found: Checkpoint) -> None:
        check_checkpoint(found, cfg, POLICY)
        if not built:
            built.append(make_policy(cfg, modes=("eval",)))
        built[0].load_state_dict(found.state["policy"])

    found = use_newest(run.checkpoints, use) if ckpt is None else use_checkpoint(ckpt, use)
    return Trained(cfg, built[0], found.path)


def evaluate(
    run: RunDir | str | Path,
    n_episode: int = 100,
    seed: int | None = None,
    video: Path | None = None,
    acting: Policy | ExportedPolicy | None = None,
    ckpt: Path | None = None,
) -> list[float]:
    """Returns of the policy that a run saved.

    Args:
      run: the run folder; code that it names runs only where `engine.config.trust` says so, or where it was opened with
        ``RunDir.open(path, trust=True)``.
      n_episode: episodes to play.
      seed: of the environments; the run's own by default.
      video: file for a video of the first episode (extra `video`).
      acting: what plays instead of the run's policy.
      ckpt: the checkpoint folder whose policy plays; the newest by default.

    Raises:
      CheckpointError: if there is no whole checkpoint, or it belongs to another network.
      TrustError: if the run folder names code that is not the user's own.
    """
    run = run if isinstance(run, RunDir) else RunDir.open(run)
    cfg, policy = load_policy(run, ckpt)[:2] if acting is None else (compile_run(run.load_config()), acting)
    if video is not None:
        from minding.envs.video import record_episode

        record_episode(
            cfg.env, policy.eval_mode, video, seed=cfg.seed if seed is None else seed,
            max_steps=cfg.policy.eval.max_episode_steps,
        )  # fmt: skip
    return [end.episode_return for end in final_evaluation(cfg, policy, n_episode, seed)]
