"""The manager: N environments whose steps have one form, `EnvStep`, whatever the backend."""

import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from minding.engine.data.actions import ActionAdapter
from minding.engine.errors import EnvError, NonFiniteError, ShapeError
from minding.engine.types import Array, EnvStep, EpisodeEnd, Factory, Obs, StateDict
from minding.envs.backends.native_vector import VectorSource
from minding.envs.backends.source import Source
from minding.envs.config import env_settings
from minding.envs.normalize import CLIP, RewardScaler, ScaleMeter
from minding.envs.single.wrappers import join_vector_actions
from minding.envs.spaces.actions import describe_actions
from minding.envs.spaces.info import agents_space, probe

_log = logging.getLogger("minding.envs")


class BatchedEnvManager:
    """An `EnvManager` over any source: maps actions, counts episodes, scales rewards.

    Rows that are not valid (see `EnvStep`) cut the trajectory of their environment: the next row of that
    environment belongs to a new episode.
    """

    def __init__(
        self, source: Source, adapter: ActionAdapter, settings: Mapping[str, Any], training: bool = True
    ) -> None:
        self.num_envs = source.num_envs
        self._source = source
        self._settings = settings
        self._adapter = adapter
        self._scaler = None
        layout = source.layout
        rewards = (self.num_envs, *layout.reward_shape)
        self._reward_clip = settings["reward_clip"] if training else None
        if training and settings["normalize_reward"]:
            self._scaler = RewardScaler(rewards, settings["reward_gamma"])
            self._reward_clip = self._reward_clip or CLIP
        self._obs: Obs | None = None
        self._agents = layout.agents if layout.reward_shape else None
        self._returns = np.zeros(rewards)
        self._lengths = source.lengths = np.zeros(self.num_envs, np.int64)
        # Adding an array takes half as long as adding a Python int.
        self._one_step = np.ones(self.num_envs, np.int64)
        self._closed = False
        self.origin: Factory | None = None
        self.repeats: Callable[[], bool] = lambda: True
        self.meter: ScaleMeter | None = None

    def factory(self) -> Factory:
        """The factory that rebuilds this manager in another process."""
        if self.origin is None:
            raise EnvError(
                f"the environments of {self._source.name} cannot be rebuilt in another process, because "
                "make_env_manager did not make them, or made them from a vector environment: pass an id or a function "
                "that makes one environment, or run without async_mode"
            )
        return self.origin

    def weights(self) -> dict[str, Array]:
        """An empty dict: environments do not depend on the policy's weights."""
        return {}

    def watch(self, what: Collection[str]) -> None:
        """Lets the first steps be measured, for a warning if rewards or observations are large; see `ScaleMeter`.
        Rewards that the settings normalize or clip are not measured."""
        self.meter = ScaleMeter(self._source.layout, self.num_envs, self._settings, what)

    @property
    def obs(self) -> Obs:
        """The observation to act on now, ``(N, ...)``; resets on first use."""
        return self.reset() if self._obs is None else self._obs

    @property
    def episode_steps(self) -> Array:
        """Steps of each running episode so far, int64 ``(N,)``; 0 where `obs` is the first observation."""
        return self._lengths.copy()

    @property
    def fault_count(self) -> int:
        """Number of faults so far that a restart survived."""
        return self._source.fault_count

    @property
    def resume_guarantee(self) -> str:
        """``'exact'`` or ``'episode-boundary'``: the guarantee of `load_state_dict`, or the result of its last call.
        The first call may make another environment, to see in half a second if it repeats an episode."""
        own = self._source.resume_guarantee
        return "episode-boundary" if own == "exact" and not self.repeats() else own

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers (subprocess backend only)."""
        return self._source.worker_pids

    def reset(self, seed: int | None = None) -> Obs:
        """Begins a new episode in every environment; with `seed`, from that seed's stream again."""
        self._check_open()
        self._obs = self._source.reset(seed)
        self._forget(slice(None))
        return self._obs

    def step(self, action: Array) -> EnvStep:
        """Steps every environment with the actions of the policy's collect mode.

        Args:
          action: actions in the policy's own units, ``(N, ...)``, with several agents ``(N, M, ...)``: integers that
            count from 0, or floats in [-1, 1] for a rescaled Box; for a Tuple or Dict rows, see
            `engine.data.action_trees`.
        """
        return self._step(self._adapter(action), action)

    def play(self, action: Array) -> EnvStep:
        """Steps every environment with the actions of the policy's eval mode; otherwise like `step`.

        Args:
          action: actions in the environment's units, ``(N, ...)``, as a single environment's own `step` takes them; for
            a Tuple or Dict their rows.
        """
        return self._step(self._adapter.adopt(action), action)

    def _step(self, env_action: Array, action: Array) -> EnvStep:
        if self._obs is None or self._closed:
            self._check_ready()
        if len(env_action) != self.num_envs:
            raise ShapeError(f"action: expected {self.num_envs} rows, one per environment, got {len(env_action)}")
        if self._adapter.continuous:
            self._check_finite(env_action, action)
        obs, next_obs, reward, terminated, truncated, valid, info = self._source.step(env_action)
        self._obs = obs
        self._returns += reward
        self._lengths += self._one_step
        if self.meter is not None and self.meter.add(next_obs, reward, terminated | truncated, valid):
            troubles, self.meter = self.meter.troubles(), None
            if troubles:
                remedies = "; ".join(f"{trouble}: {remedy}" for trouble, remedy in troubles.items())
                _log.warning("%s: %s", self._source.name, remedies)
        if self._scaler is not None:
            # This also begins a new return in rows that are not valid.
            reward = self._scaler(reward, valid)
        if self._reward_clip is not None:
            reward = reward.clip(-self._reward_clip, self._reward_clip)
        ended = (terminated | truncated).nonzero()[0]
        episodes = self._end_episodes(ended, info or {}) if len(ended) else []
        if valid is not None:
            self._returns[~valid] = 0.0
            self._lengths *= valid
        return EnvStep(obs, next_obs, reward, terminated, truncated, valid, episodes, info)

    def abandon(self) -> None:
        """Abandons the running episodes: they are not part of `state_dict`, and a reset must follow."""
        self._source.abandon()
        self._obs = None

    def close(self) -> None:
        """Closes environments and workers; a second call does nothing."""
        self._closed = True
        self._source.close()

    def state_dict(self) -> StateDict:
        """The state on which the next steps depend; see `resume_guarantee`."""
        state: StateDict = {
            "source": self._source.state_dict(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }
        if self._scaler is not None:
            state["reward_scaler"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the state. Environments that cannot be restored begin a new episode, see `resume_guarantee`."""
        self._check_open()
        # The warning was given before.
        self.meter = None
        self._obs, restarted = self._source.load_state_dict(state["source"])
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        if self._scaler is not None and "reward_scaler" in state:
            self._scaler.load_state_dict(state["reward_scaler"])
        self._forget(restarted)

    def _end_episodes(self, rows: Array, info: Mapping[str, Array]) -> list[EpisodeEnd]:
        returns, lengths = self._returns[rows], self._lengths[rows].tolist()
        numbers = {name: values for name, values in info.items() if values.ndim == 1}
        if self._agents is not None:
            numbers |= {f"return.{agent}": self._returns[:, m].copy() for m, agent in enumerate(self._agents)}
            returns = returns.sum(axis=1)
        self._forget(rows)
        return [
            EpisodeEnd(row, value, length, {name: float(values[row]) for name, values in numbers.items()})
            for row, value, length in zip(rows.tolist(), returns.tolist(), lengths)
        ]

    def _forget(self, rows: Any) -> None:
        """Resets returns and lengths in `rows`, where new episodes begin."""
        self._returns[rows] = 0.0
        self._lengths[rows] = 0
        if self._scaler is not None:
            self._scaler.forget(rows)

    def _check_finite(self, env_action: Array, action: Array) -> None:
        flat = env_action.ravel()
        # A sum of squares takes a third of the time of `isfinite`; clipping has hidden infinities, which is harmless.
        if math.isfinite(flat.dot(flat)):
            return
        finite = np.isfinite(action).reshape(self.num_envs, -1).all(1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise NonFiniteError(
                f"action for environment {self._source.first + row} ({self._source.name}), step "
                f"{self._lengths[row] + 1} of its episode, is {action[row]}; the policy's network or "
                "its input is not finite, or so large that a product overflows"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise EnvError(f"the environments of {self._source.name} are closed; make a new manager")

    def _check_ready(self) -> None:
        self._check_open()
        if self._obs is None:
            self.reset()


class VectorEnvManager(BatchedEnvManager):
    """A manager over your own Gymnasium vector environment, in any autoreset mode.

    Args:
      vector_env: the vector environment; its metadata must name the autoreset mode.
      env_cfg: the `env` section; only the keys for actions, info, rewards and faults are used.
      seed: seed of the first reset.
      training: whether to apply reward normalization and clipping if the settings ask for them.
      warned: whether the warning about actions that are not rescaled was already given.
      first: see `Source`.
    """

    def __init__(
        self,
        vector_env: VectorEnv[Any, Any, Any],
        env_cfg: Mapping[str, Any] | None = None,
        seed: int = 0,
        training: bool = True,
        warned: bool = False,
        first: int = 0,
    ) -> None:
        settings = env_settings(env_cfg or {})
        vector_env = join_vector_actions(vector_env)
        name = settings["env_id"] or type(vector_env.unwrapped).__name__
        agents, keys = agents_space(vector_env.single_observation_space), settings["info_keys"]
        if agents is not None:
            keys = agents.team.info_keys(keys)
        count = None if agents is None else len(agents.names)
        adapter = action_adapter(vector_env.single_action_space, settings, name, count, warn=training and not warned)
        restart, timeout = settings["on_error"] == "restart", settings["step_timeout"]
        form = probe(vector_env, keys, name) if keys else None
        source = VectorSource(vector_env, name, seed, restart=restart, step_timeout=timeout, form=form)
        source.first = first
        super().__init__(source, adapter, settings, training)


def action_adapter(
    space: spaces.Space[Any], settings: Mapping[str, Any], name: str, agents: int | None = None, *, warn: bool
) -> ActionAdapter:
    """The adapter that maps the policy's actions into `space`; with `warn`, warns if they cannot be rescaled."""
    adapter = ActionAdapter(describe_actions(space, rescale=settings["rescale_action"]), agents)
    if warn and settings["rescale_action"] and adapter.continuous and not adapter.rescaled:
        _log.warning("%s: actions are not rescaled, because the action space has infinite bounds: %s", name, space)
    return adapter
