"""Episodes of a trained policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from minding.configs import compile_saved
from minding.configs.chains import get_chain
from minding.engine.config.config import Config
from minding.engine.paths import anchored
from minding.engine.run import aggregates
from minding.engine.run.pool import Version
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import Score, mean_scores, opponents_of
from minding.engine.types import EpisodeEnd, Policy
from minding.envs import make_evaluator_env
from minding.middleware.evaluator import info_means, play_episodes
from minding.policies.export.reader import ExportedPolicy
from minding.training.loading import load_policy


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of a policy, without exploration.

    Attributes:
      returns, lengths: return and length of each episode, in the order in which they ended.
      info: means of the declared info (``env.info_keys``) over the last steps of the episodes.
      scores: scores of games against opponents, by opponent; empty for episodes in an environment. The return of a game
        is 1 for a win, 0.5 for a draw and 0 for a loss.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    info: Mapping[str, float] = dataclasses.field(default_factory=dict)
    scores: Mapping[str, Score] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, episodes: Sequence[EpisodeEnd], cfg: Config | None = None) -> Evaluation:
        """Summarizes episodes, at least one; `cfg`: the configuration of the run, which says whether they are games
        against opponents."""
        means, opponents = info_means(episodes), () if cfg is None else opponents_of(cfg)
        return cls(
            tuple(end.episode_return for end in episodes),
            tuple(end.episode_length for end in episodes),
            means,
            mean_scores(opponents, means, len(episodes) // max(1, len(opponents))),
        )

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval of the mean: by bootstrap, or by Wilson's formula for scores (see
        `engine.run.aggregates`)."""
        if self.scores:
            low, high = aggregates.score_interval(np.asarray(self.mean, np.float64), len(self.returns))
            return float(low), float(high)
        found = aggregates.estimate([np.asarray(self.returns, np.float64)[:, None]], aggregates.mean)
        return found.low, found.high

    def __str__(self) -> str:
        low, high = self.interval
        if self.scores:
            against = "".join(f"; against {opponent} {score}" for opponent, score in self.scores.items())
            return f"score {self.mean:.3f} over {len(self.returns):,} games{against}"
        return (
            f"return {self.mean:.1f} (95 % interval {low:.1f} to {high:.1f}, standard deviation {self.std:.1f}) over "
            f"{len(self.returns)} episodes"
        )


@anchored()
def final_evaluation(
    cfg: Config,
    policy: Policy | ExportedPolicy,
    n_episode: int | None = None,
    seed: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[EpisodeEnd]:
    """Plays episodes of the policy in environments that neither training nor its evaluations use. A chain may define
    another final evaluation, such as games against opponents; an exported policy always plays in the environment. Once
    `stop()` returns true, unfinished episodes are abandoned."""
    cfg = Config({**cfg, "seed": cfg.seed if seed is None else seed})
    own = get_chain(cfg.chain).evaluate
    if own is not None and not isinstance(policy, ExportedPolicy):
        return own(cfg, policy, n_episode or cfg.run.final_episodes, stop)
    env = make_evaluator_env(cfg, "env.final")
    try:
        max_steps = cfg.policy.eval.max_episode_steps
        return play_episodes(policy.eval_mode, env, n_episode or cfg.run.final_episodes, max_steps=max_steps, stop=stop)
    finally:
        env.close()


def evaluate(
    run: RunDir | str | Path,
    n_episode: int = 100,
    seed: int | None = None,
    acting: Policy | ExportedPolicy | None = None,
    ckpt: str | Path | Version | None = None,
    played: Config | None = None,
) -> list[EpisodeEnd]:
    """Plays episodes of the policy that a run saved.

    Args:
      run: the run folder; code that it names runs only if `engine.config.trust` allows it, or if the folder was opened
        with ``RunDir.open(path, trust=True)``.
      n_episode: number of episodes.
      seed: seed of the environments; the run's own by default.
      acting: a policy, such as an exported file, that acts instead of the run's own.
      ckpt: the checkpoint folder, or the version of the run's model pool, to use; the newest checkpoint by default.
      played: the configuration of the environment to play in (see `training.evaluation_env`); the run's own by default.

    Raises:
      CheckpointError: if there is no whole checkpoint, or it belongs to another network.
      TrustError: if the run folder names code that is not the user's own.
    """
    run = run if isinstance(run, RunDir) else RunDir.open(run)
    cfg, policy = load_policy(run, ckpt)[:2] if acting is None else (compile_saved(run), acting)
    return final_evaluation(played or cfg, policy, n_episode, seed)


def record(
    run: RunDir | str | Path,
    file: str | Path,
    seed: int | None = None,
    ckpt: str | Path | Version | None = None,
    n_episode: int = 1,
    played: Config | None = None,
) -> list[EpisodeEnd]:
    """Films episodes of the policy that a run saved, one after the other in one file.

    Args:
      run: as in `evaluate`.
      file: the video file to write; its extension selects the format (.gif, .mp4).
      seed: seed of the environment; the run's own by default.
      ckpt: as in `evaluate`.
      n_episode: number of episodes to film.
      played: as in `evaluate`.

    Returns:
      The episodes.

    Raises:
      CheckpointError: if there is no whole checkpoint, or it belongs to another network.
      ConfigError: if the environment does not render images, or the format is unknown.
      MissingExtraError: if a package that the format needs is not installed.
      TrustError: if the run folder names code that is not the user's own.
    """
    from minding.envs.video import record_episodes

    run = run if isinstance(run, RunDir) else RunDir.open(run)
    cfg, policy = load_policy(run, ckpt)[:2]
    cfg = played or cfg
    seed, max_steps = cfg.seed if seed is None else seed, cfg.policy.eval.max_episode_steps
    return record_episodes(cfg.env, policy.eval_mode, file, seed, max_steps=max_steps, episodes=n_episode)
