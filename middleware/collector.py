"""The collector of rollouts, which lets the policy act in the environments and passes on the resulting steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout, uneven
from minding.engine.process.signals import end_if_overdue
from minding.engine.types import Array, CollectMode, EnvManager, EnvStep, EpisodeEnd, StateDict
from minding.middleware.ctx_fields import collect_kwargs_in
from minding.middleware.eps_greedy import never_explores


class StepsEnvs:
    """A middleware with environments of its own, which are saved and closed with it."""

    _env: EnvManager

    def state_dict(self) -> StateDict:
        return {"env": self._env.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self._env.load_state_dict(state["env"])

    def close(self) -> None:
        self._env.close()


@declare(
    role="collect",
    reads=("env_step", "env_episode"),
    optional=("collect_kwargs",),
    writes=("trajectories", "trajectory_end_idx", "episode_stats", "env_step", "env_episode"),
)
class StepCollector(StepsEnvs):
    """Takes a fixed number of steps in every environment; episodes continue across iterations.

    If the policy has state values, the values that bootstrap the rollout are recorded with it, because later weights
    would give different ones. A policy with memory forgets an environment when its episode ends.

    Reads: env_step, env_episode; collect_kwargs if present (passed to the policy).
    Writes: trajectories (a `Rollout` of T steps of N environments), trajectory_end_idx, episode_stats, env_step,
      env_episode.
    Config: policy.collect.n_sample (environment steps per iteration, T * N), policy.collect.random_steps if the
      algorithm has it.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode``.
      env: the environments to collect in; nothing else may step them.
    """

    def __init__(self, cfg: Config, policy: CollectMode, env: EnvManager) -> None:
        collect, self._cfg = cfg.policy.collect, cfg
        self._policy = policy
        self._env = env
        self._steps = max(1, collect.n_sample // env.num_envs)
        self._random_steps = collect.random_steps
        self._n_sample = collect.n_sample
        self._minibatches = cfg.policy.learn.n_minibatch

    def requirements(self) -> Sequence[str]:
        return uneven(self._n_sample, "num_envs", {"num_envs": self._env.num_envs, "n_minibatch": self._minibatches})

    def clashes(self, chain: Sequence[object]) -> Sequence[str]:
        return never_explores(self._cfg, chain)

    def __call__(self, ctx: OnlineRLContext) -> None:
        random = ctx.env_step < self._random_steps
        collect_kwargs = collect_kwargs_in(ctx, "StepCollector")
        record = _Recorder(self._steps, self._env.num_envs)
        obs = self._env.obs
        # When a run is resumed, some environments begin a new episode.
        fresh = self._env.episode_steps == 0
        self._policy.reset(fresh.nonzero()[0])
        for t in range(self._steps):
            end_if_overdue()
            output = self._policy.forward(obs, random=random, **collect_kwargs)
            step = self._env.step(output["action"])
            record.add(t, obs, output, step, self._policy.memory)
            begun = step.begun()
            if begun is not None:
                self._policy.reset(begun)
            obs = step.obs
        ctx.trajectories = rollout = record.rollout(obs, self._policy)
        rollout.fresh = np.zeros(rollout.shape, np.bool_)
        rollout.fresh[0] = fresh
        ctx.trajectory_end_idx = rollout.end_idx()
        ctx.episode_stats = record.episodes
        ctx.env_step += record.valid_steps
        ctx.env_episode += len(record.episodes)

    @property
    def resume_guarantee(self) -> str:
        """The guarantee of the environments."""
        return self._env.resume_guarantee


class _Recorder:
    """Writes steps into preallocated ``(T, N)`` arrays."""

    def __init__(self, steps: int, envs: int) -> None:
        self._shape = (steps, envs)
        self._terminated = np.zeros(self._shape, np.bool_)
        self._truncated = np.zeros(self._shape, np.bool_)
        self._valid: Array | None = None
        self._obs: list[Any] = []
        self._outputs: dict[str, Array] = {}
        self._finals: list[Any] = []
        self._final_memory: list[Array] = []
        self._info: dict[str, Array] = {}
        self.episodes: list[EpisodeEnd] = []

    def add(self, t: int, obs: Any, output: dict[str, Array], step: EnvStep, memory: Array | None) -> None:
        """Stores step t; `memory` is the policy's memory after it."""
        self._obs.append(obs)
        rows = {**output, "reward": step.reward}
        if not self._outputs:
            self._outputs = {k: np.empty((self._shape[0], *v.shape), v.dtype) for k, v in rows.items()}
        for name, value in rows.items():
            self._outputs[name][t] = value
        for name, value in (step.info or {}).items():
            self._info.setdefault(name, np.zeros((self._shape[0], *value.shape), value.dtype))[t] = value
        if step.valid is not None:
            if self._valid is None:
                self._valid = np.ones(self._shape, np.bool_)
            self._valid[t] = step.valid
        if step.episodes:
            self._terminated[t], self._truncated[t] = step.terminated, step.truncated
            ended = (step.terminated | step.truncated).nonzero()[0]
            self._finals.append(obs_trees.tree_map(lambda x: x[ended], step.next_obs))
            if memory is not None:
                self._final_memory.append(memory[ended])
            self.episodes.extend(step.episodes)

    @property
    def valid_steps(self) -> int:
        return int(self._valid.sum()) if self._valid is not None else self._shape[0] * self._shape[1]

    def rollout(self, last_obs: Any, policy: CollectMode) -> Rollout:
        """The rollout of all steps, with the values that `policy`, which took them, gives to the observations after."""
        action, reward = self._outputs.pop("action"), self._outputs.pop("reward")
        final_obs = obs_trees.tree_map(lambda *xs: np.concatenate(xs), *self._finals) if self._finals else None
        last_value, final_value = self._values(last_obs, final_obs, policy)
        return Rollout(
            obs=obs_trees.tree_map(lambda *xs: np.concatenate(xs).reshape(len(xs), *xs[0].shape), *self._obs),
            last_obs=last_obs,
            final_obs=final_obs,
            ends=np.argwhere(self._terminated | self._truncated),
            action=action,
            reward=reward,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            record=self._outputs,
            last_value=last_value,
            final_value=final_value,
            info=self._info,
        )

    def _values(self, last_obs: Any, final_obs: Any, policy: CollectMode) -> tuple[Array | None, Array | None]:
        """Values of `last_obs` and of `final_obs`, computed in one call; None without state values."""
        if "value" not in policy.record_fields:
            return None, None
        memory = policy.memory
        if final_obs is None:
            return policy.value(last_obs, memory), None
        if memory is not None:
            memory = np.concatenate([memory, *self._final_memory])
        values = policy.value(obs_trees.tree_map(lambda a, b: np.concatenate([a, b]), last_obs, final_obs), memory)
        envs = self._shape[1]
        return values[:envs], values[envs:]
