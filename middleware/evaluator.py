"""Honest evaluation: other environments, no exploration, whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.context import OnlineRLContext
from minding.engine.middleware import declare
from minding.engine.types import EnvManager, EpisodeEnd, EvalMode, StateDict


@declare(
    role="evaluate",
    reads=("env_step", "train_iter", "last_eval_iter", "last_eval_env_step"),
    writes=("eval_value", "eval_output", "last_eval_iter", "last_eval_value", "last_eval_env_step"),
)
class interaction_evaluator:
    """Plays `n_episode` episodes in eval mode once every `freq` environment steps, if there was learning since.

    Each environment plays its own share of the episodes: taking the first to finish would prefer short ones.

    Reads: env_step, train_iter, last_eval_iter, last_eval_env_step.
    Writes: eval_value (mean return), eval_output (the episodes, `EpisodeEnd`), last_eval_iter, last_eval_value,
      last_eval_env_step.
    Config: policy.eval.freq, policy.eval.n_episode.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.eval_mode``.
      env: environments of its own.
    """

    def __init__(self, cfg: Any, policy: EvalMode, env: EnvManager) -> None:
        self._policy = policy
        self._env = env
        self._freq, self._n_episode = cfg.policy.eval.freq, cfg.policy.eval.n_episode

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Evaluates if it is due."""
        if ctx.env_step - max(ctx.last_eval_env_step, 0) < self._freq or ctx.train_iter == ctx.last_eval_iter:
            return
        ctx.eval_output = play_episodes(self._policy, self._env, self._n_episode)
        ctx.eval_value = float(np.mean([end.episode_return for end in ctx.eval_output]))
        ctx.last_eval_iter, ctx.last_eval_value = ctx.train_iter, ctx.eval_value
        ctx.last_eval_env_step = ctx.env_step

    def state_dict(self) -> StateDict:
        return {"env": self._env.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self._env.load_state_dict(state["env"])

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def play_episodes(policy: EvalMode, env: EnvManager, n_episode: int) -> list[EpisodeEnd]:
    """Plays whole episodes from fresh resets, an even share in each environment.

    Args:
      policy: acts on ``(N, ...)`` observations.
      env: N environments; they are reset first.
      n_episode: episodes in all; the first ``n_episode % N`` environments play one more.

    Returns:
      The episodes, in the order in which they ended.
    """
    left = np.full(env.num_envs, n_episode // env.num_envs)
    left[: n_episode % env.num_envs] += 1
    episodes = []
    obs = env.reset()
    policy.reset()
    while left.any():
        step = env.step(policy.forward(obs))
        for end in step.episodes:
            if left[end.env_id]:
                left[end.env_id] -= 1
                episodes.append(end)
        obs = step.obs
    return episodes
