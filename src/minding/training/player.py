"""A policy that acts outside of a chain, on single observations or batches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from minding.engine.config.config import Config
from minding.engine.data.action_trees import ActionTree
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.agent_axis import num_agents
from minding.engine.data.episode import RECORDED
from minding.engine.data.observation import ACTION_MASK, OBSERVATION, with_mask
from minding.engine.errors import MindingError, NonFiniteError, ShapeError
from minding.engine.types import Array
from minding.envs.config import env_settings
from minding.envs.guards.values import ValueCheck
from minding.envs.recorded_spec import action_space, observation_space
from minding.envs.single.factory import env_factory
from minding.envs.spaces.info import JoinInfo, WithInfo
from minding.envs.spaces.layout import ObsLayout

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


class Player:
    """Acts as in evaluation, with its own memory if the policy has one.

    It always uses the policy's current weights. With a network that computes in NumPy it works in any thread, one at a
    time, and a pickled copy keeps the weights that it was pickled with. A player that acts through a compiled graph
    works only in the thread that made it.
    """

    def __init__(self, policy: BasePolicy, cfg: Config) -> None:
        if cfg.env.env_id == RECORDED:
            spec = cfg.env.spec
            self._layout = ObsLayout(observation_space(spec.observation), action_space(spec.env_action))
            self._mask_comes_with_info, self._unmasked = False, self._layout
        else:
            self._ask_environment(cfg)
        self._values = ValueCheck(self._layout)
        adapter = ActionAdapter(cfg.env.spec.env_action, num_agents(cfg.env.spec))
        # The actions for an empty batch.
        self._none = np.zeros((0, *adapter.row_shape), adapter.dtype)
        # Turns rows into the trees that a Tuple or Dict has.
        self._codec = ActionTree(cfg.env.spec.env_action) if "tree" in cfg.env.spec.env_action else None
        self._eps = cfg.policy.other.eps.end if "eps" in cfg.policy.other else None
        self._actor = policy.acting.own_actor()
        self._thread = None if policy.acting.in_numpy else threading.get_ident()
        self._name = cfg.policy.type

    def _ask_environment(self, cfg: Config) -> None:
        """Finds the form of the environment's observations."""
        factory = env_factory(env_settings(cfg.env))
        env = factory()
        space, joins = env.observation_space, isinstance(env, JoinInfo)
        # The policy does not see the other declared keys of info.
        self._layout = ObsLayout(space[OBSERVATION] if isinstance(space, WithInfo) else space, env.action_space)
        self._mask_comes_with_info = joins and env.form.masked
        self._unmasked = ObsLayout(env.env.observation_space) if self._mask_comes_with_info else self._layout
        factory.close(env)

    def __call__(self, obs: object, action_mask: npt.ArrayLike | None = None, *, explore: bool = False) -> Array:
        """The action for one observation, or the actions for a batch of them.

        Args:
          action_mask: the legal actions, bool ``(A,)`` or ``(N, A)``, if the environment reports them in info.

        Returns:
          An action for the environment's `step`, ``(N, ...)`` for a batch, which may be empty; a single discrete action
          is a NumPy integer. In a Tuple or Dict space it is a tuple or dict of such arrays, also for a batch, which the
          annotation leaves out.
        """
        if self._thread not in (None, threading.get_ident()):
            raise MindingError(
                f"{self._name} acts through a compiled graph, which works only in the thread that made it: act there, "
                "or train with policy.collect.backend=numpy, if the network has a NumPy form"
            )
        count = self._rows(obs)
        if count == 0:
            return self._as_taken(self._none.copy())
        batch, mask = obs, None
        if self._mask_comes_with_info:
            batch = self._joined(obs, action_mask)
        elif action_mask is not None:
            mask = np.asarray(action_mask) if count is not None else np.asarray(action_mask)[None]
        leaves = [leaf.coerce(batch, () if count is None else (count,)) for leaf in self._layout.leaves]
        if count is None:
            leaves = [leaf[None] for leaf in leaves]
        arrays = [leaf.astype(each.dtype) for leaf, each in zip(leaves, self._layout.leaves)]
        self._check_finite(arrays)
        for row, what in (*self._values.outside(arrays), *self._values.stuck(arrays)):
            raise ShapeError(what if count is None else f"row {row}: {what}")
        converted = self._layout.unflatten(arrays)
        if explore:
            more = {} if self._eps is None else {"eps": self._eps}
            actions = self._actor.explore_as(converted, **more)
        else:
            actions = self._actor.act(converted, mask)
        return self._as_taken(actions[0] if count is None else actions)

    def take_reward(self, reward: npt.ArrayLike) -> None:
        """Takes note of the reward of the last action, or of the rewards ``(N,)`` of a batch; only policies that act by
        earlier rewards, such as a Decision Transformer, need it."""
        try:
            with np.errstate(over="ignore"):
                rewards = np.atleast_1d(np.asarray(reward, np.float32))
            finite = bool(np.isfinite(rewards).all())
        except (TypeError, ValueError):
            finite = False
        if not finite:
            raise NonFiniteError(f"take_reward: expected the rewards of the last actions, finite, got {reward!r:.80}")
        self._actor.take_reward(rewards)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Clears the memory of these rows of the batch, or of all; call it when episodes start."""
        self._actor.reset(env_ids)

    def _as_taken(self, actions: Array) -> Array:
        taken: Array = actions if self._codec is None else self._codec.split(actions)
        return taken

    def _rows(self, obs: Any) -> int | None:
        """The size N of a batch, or None for a single observation; ShapeError if `obs` is neither."""
        leaf = self._unmasked.leaves[0]
        shape = np.shape(leaf.pick(obs))
        expected = leaf.shape if leaf.source_shape is None else leaf.source_shape
        if shape == expected:
            return None
        if shape == (0,):
            return 0
        if shape[1:] == expected and len(shape) == len(expected) + 1:
            return int(shape[0])
        sizes = "".join(f", {size}" for size in expected) or ","
        raise ShapeError(f"{leaf.label}: expected {expected}, or a batch (N{sizes}), got {shape}")

    def _joined(self, obs: Any, mask: Any) -> Any:
        if mask is None:
            raise ShapeError(
                f"{self._name} was trained with action masks from info: give the mask, as in predict(obs, "
                f"action_mask=info[{ACTION_MASK!r}])"
            )
        return with_mask(obs, np.asarray(mask))

    def _check_finite(self, arrays: Sequence[Array]) -> None:
        for leaf, array in zip(self._layout.leaves, arrays):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
                raise NonFiniteError(f"{leaf.label}: row {row} holds NaN or infinity")
