"""DeepMind Control: every task of its suite under the id ``dm_control/DOMAIN-TASK-v0`` (extra `dmc`).

Tassa et al., 2018, https://arxiv.org/abs/1801.00690. Importing this module registers the ids,
which are those of Shimmy.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.process.packages import import_installed
from minding.engine.types import Array
from minding.envs.single.rendering import choose_renderer

# dm_control reads the choice when it is imported.
choose_renderer()
import_installed("dm_control")
from dm_control import suite  # noqa: E402


class DMControl(gymnasium.Env[dict[str, Array], Array]):  # type: ignore[misc]
    """A task of the suite.

    Observation: a Dict of the task's own entries, float64; the wrapper `flatten` makes one vector of them, `pixels`
    replaces them by an image. Action: a Box with the limits of the actuators. The time limit truncates an episode; in
    the few tasks that can fail, a failure (discount 0) terminates it. Episodes depend only on their seed and actions.

    Args:
      **task_kwargs: arguments of the task, such as ``time_limit`` in seconds.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(
        self,
        domain: str,
        task: str,
        render_mode: str | None = None,
        height: int = 84,
        width: int = 84,
        camera: int = 0,
        **task_kwargs: Any,
    ) -> None:
        self._env = suite.load(domain, task, task_kwargs)
        self.observation_space = spaces.Dict(
            {
                key: spaces.Box(-np.inf, np.inf, spec.shape, np.float64)
                for key, spec in self._env.observation_spec().items()
            }
        )
        action = self._env.action_spec()
        low, high = (np.broadcast_to(bound, action.shape) for bound in (action.minimum, action.maximum))
        self.action_space = spaces.Box(low, high, action.shape, np.float64)
        limit = self._env._step_limit
        self._max_episode_steps = None if math.isinf(limit) else math.ceil(limit - 1e-6)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self._env.control_timestep())}
        self._picture = {"height": height, "width": width, "camera_id": camera}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # The suite uses NumPy's older kind of generator.
            self._env.task._random = np.random.RandomState(seed)
        return self._observed(self._env.reset()), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        found = self._env.step(action)
        over = found.last()
        terminated = over and found.discount == 0.0
        return self._observed(found), float(found.reward), terminated, over and not terminated, {}

    def render(self) -> Array:
        """An image, uint8 ``(height, width, 3)``."""
        return np.array(self._env.physics.render(**self._picture))

    def close(self) -> None:
        self._env.physics.free()

    @staticmethod
    def _observed(found: Any) -> dict[str, Array]:
        return {key: np.array(value, np.float64) for key, value in found.observation.items()}


for _domain, _task in suite.ALL_TASKS:
    if f"dm_control/{_domain}-{_task}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"dm_control/{_domain}-{_task}-v0",
            "minding.envs.single.dm_control:DMControl",
            kwargs={"domain": _domain, "task": _task},
        )
