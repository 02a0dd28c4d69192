"""The collector of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.process.signals import end_if_overdue
from minding.engine.types import Array, CollectMode, EnvManager, EnvStep
from minding.middleware.collector import StepsEnvs
from minding.middleware.ctx_fields import collect_kwargs_in
from minding.middleware.eps_greedy import never_explores


@declare(
    role="collect",
    reads=("env_step", "env_episode"),
    optional=("collect_kwargs",),
    writes=("episodes", "episode_stats", "env_step", "env_episode"),
)
class EpisodeCollector(StepsEnvs):
    """Collects whole episodes: each environment runs its share, from a fresh reset to a true end or time limit.

    A fixed share for each environment keeps the sample unbiased: taking the first episodes to finish would favor
    short ones.

    Reads: env_step, env_episode; collect_kwargs if present (passed to the policy).
    Writes: episodes (a list of dicts of arrays ``(L, ...)``: obs, action, reward, terminated, truncated, the policy's
      record, declared info as ``info.<key>``, and `final_obs` ``(...)``), episode_stats, env_step, env_episode.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode``.
      env: the environments to collect in.
      n_episode: episodes per iteration, a multiple of the number of environments.
    """

    def __init__(self, cfg: Config, policy: CollectMode, env: EnvManager, *, n_episode: int) -> None:
        self._cfg, self._policy = cfg, policy
        self._env = env
        self._n_episode = n_episode
        # Episodes per environment, however the environments are divided among collectors.
        self._share = n_episode // env.num_envs
        self._random_steps = cfg.policy.collect.random_steps

    def requirements(self) -> Sequence[str]:
        if self._n_episode % self._env.num_envs:
            return [f"n_episode={self._n_episode} is not a multiple of the {self._env.num_envs} environments"]
        return []

    def clashes(self, chain: Sequence[object]) -> Sequence[str]:
        return never_explores(self._cfg, chain)

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Collects the episodes of one iteration."""
        envs = self._env.num_envs
        left, collect_kwargs = np.full(envs, self._share), collect_kwargs_in(ctx, "EpisodeCollector")
        rows: list[list[dict[str, Any]]] = [[] for _ in range(envs)]
        ctx.episodes, ctx.episode_stats = [], []
        random = ctx.env_step < self._random_steps
        obs = self._env.reset()
        self._policy.reset()
        while left.any():
            end_if_overdue()
            output = self._policy.forward(obs, random=random, **collect_kwargs)
            step = self._env.step(output["action"])
            if step.valid is not None:
                # A restart after a fault drops the running episode; after an end no episode is running.
                for n in np.flatnonzero(~step.valid):
                    rows[n] = []
            for n in np.flatnonzero(left if step.valid is None else left * step.valid):
                rows[n].append(_row(n, obs, output, step))
                ctx.env_step += 1
            for end in step.episodes:
                if left[end.env_id]:
                    left[end.env_id] -= 1
                    final = obs_trees.tree_map(lambda x, n=end.env_id: x[n], step.next_obs)
                    ctx.episodes.append(_episode(rows[end.env_id], final))
                    ctx.episode_stats.append(end)
                    rows[end.env_id] = []
            begun = step.begun()
            if begun is not None:
                self._policy.reset(begun)
            obs = step.obs
        # The next iteration begins with resets: there is nothing to restore on resume.
        self._env.abandon()
        ctx.env_episode += len(ctx.episodes)


def _row(n: int, obs: Any, output: dict[str, Array], step: EnvStep) -> dict[str, Any]:
    return {
        "obs": obs_trees.tree_map(lambda x: x[n], obs),
        **{name: value[n] for name, value in output.items()},
        "reward": step.reward[n],
        "terminated": step.terminated[n],
        "truncated": step.truncated[n],
        **{f"info.{name}": value[n] for name, value in (step.info or {}).items()},
    }


def _episode(rows: list[dict[str, Any]], final_obs: Any) -> dict[str, Any]:
    episode = {name: np.stack([row[name] for row in rows]) for name in rows[0] if name != "obs"}
    episode["obs"] = obs_trees.tree_map(lambda *xs: np.stack(xs), *[row["obs"] for row in rows])
    episode["final_obs"] = final_obs
    return episode
