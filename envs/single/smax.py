"""SMAX (extra `smax`): battles in the manner of StarCraft's, without the game, in JAX on the CPU.

Rutherford et al., 2024, https://arxiv.org/abs/2311.10090. The enemy is JaxMARL's heuristic, which attacks the nearest
unit.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.errors import ConfigError, MissingExtraError, nearest
from minding.engine.process.packages import import_extra
from minding.engine.process.runtime import silent
from minding.engine.types import Array, State
from minding.envs.games.game_vector import AgentsGame, AgentsVector
from minding.envs.single.smac import SHARED_INFO, agent_names
from minding.envs.spaces.info import AgentsSpace, Team

MAPS = (
    *("3m", "2s3z", "25m", "3s5z", "8m", "5m_vs_6m", "10m_vs_11m", "27m_vs_30m", "3s5z_vs_3s6z", "3s_vs_5z"),
    *("6h_vs_8z", "smacv2_5_units", "smacv2_10_units", "smacv2_20_units"),
)
"""The maps of JaxMARL 0.2, for a message where it is not installed."""


class View(NamedTuple):
    """The view of N worlds.

    Attributes:
      observation: float32 ``(N, M, D)``, of the units of the team.
      mask: bool ``(N, M, A)``, their legal actions.
      allies: bool ``(N, M)``, those that are alive.
      enemies: bool ``(N, E)``, those that are alive.
      state: float32 ``(N, S)``.
      late: bool ``(N,)``, whether the limit of steps is reached.
    """

    observation: Array
    mask: Array
    allies: Array
    enemies: Array
    state: Array
    late: Array


class JaxWorlds:
    """The worlds of a map; each call is one compiled computation for N of them."""

    def __init__(self, scenario: Any, limit: int | None, options: Mapping[str, Any]) -> None:
        import jax
        from jaxmarl.environments.smax import HeuristicEnemySMAX

        env = HeuristicEnemySMAX(scenario=scenario, **{**({} if limit is None else {"max_steps": limit}), **options})
        self.allies, self.enemies, self.limit = env.num_allies, env.num_enemies, int(env.max_steps)
        self.sight, self.actions, self.state_size = env.obs_size, env.num_ally_actions, env.state_size
        self._cpu = functools.partial(jax.default_device, jax.devices("cpu")[0])
        structure = jax.tree.structure(jax.eval_shape(env.reset, jax.random.PRNGKey(0))[1])
        self.parts = structure.num_leaves

        def view(obs: Any, world: Any) -> View:
            legal, alive = env.get_avail_actions(world), world.state.unit_alive
            seen, mask = (jax.numpy.stack([each[name] for name in env.agents]) for each in (obs, legal))
            late = world.state.step >= env.max_steps
            return View(seen, mask > 0, alive[: self.allies], alive[self.allies :], obs["world_state"], late)

        def reset(key: Any) -> Any:
            obs, world = env.reset(key)
            return tuple(jax.tree.leaves(world)), view(obs, world)

        def step(key: Any, parts: State, actions: Any) -> Any:
            world = jax.tree.unflatten(structure, parts)
            obs, world, reward, _, _ = env.step_env(key, world, dict(zip(env.agents, actions)))
            return tuple(jax.tree.leaves(world)), view(obs, world), reward[env.agents[0]]

        def keys(seed: Any, count: int) -> Any:
            return jax.random.split(jax.random.PRNGKey(seed), count)

        self._begin = jax.jit(lambda seed, count: jax.vmap(reset)(keys(seed, count)), static_argnums=1)
        self._step = jax.jit(lambda seed, parts, actions: jax.vmap(step)(keys(seed, len(actions)), parts, actions))

    def begin(self, seed: int, count: int) -> tuple[State, View]:
        """New worlds: their parts, arrays ``(N, ...)``, and what they show."""
        with self._cpu():
            parts, view = self._begin(np.uint32(seed), count)
        return tuple(map(np.asarray, parts)), View(*map(np.asarray, view))

    def step(self, seed: int, parts: State, actions: Array) -> tuple[State, View, Array]:
        """The worlds after the actions ``(N, M)``, and the team's rewards ``(N,)``."""
        with self._cpu():
            parts, view, reward = self._step(np.uint32(seed), parts, actions.astype(np.int32))
        return tuple(map(np.asarray, parts)), View(*map(np.asarray, view)), np.asarray(reward)


class SmaxVector(AgentsVector):
    """N battles; the units of the team are the agents, and leave when they die.

    The team has one reward: the damage that it does, all of it worth 1, and 1 for the victory.
    """

    def __init__(self, num_envs: int, worlds: Any, *, global_state: bool = False) -> None:
        self._worlds, self._with_state = worlds, global_state
        self.native_state = tuple(f"part_{k}" for k in range(worlds.parts))
        seen = spaces.Box(-np.inf, np.inf, (worlds.sight,), np.float32)
        unit = spaces.Dict({OBSERVATION: seen, ACTION_MASK: spaces.MultiBinary(worlds.actions)})
        names, action = agent_names(worlds.allies), spaces.Discrete(worlds.actions)
        team = Team(names, (unit,) * len(names), (action,) * len(names), True, SHARED_INFO)
        state = spaces.Box(-np.inf, np.inf, (worlds.state_size,), np.float32) if global_state else None
        super().__init__(num_envs, AgentsSpace(team, unit, action, state))

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        parts, view, reward = self._worlds.step(self._seed(), self._parts(), np.asarray(actions))
        self._put(parts, slice(None))
        allies, enemies = view.allies.any(axis=1), view.enemies.any(axis=1)
        over = ~(allies & enemies)
        self._seen = self._shown(view, view.allies & ~over[:, None])
        info = {
            "battle_won": allies & ~enemies,
            "dead_allies": (~view.allies).sum(axis=1),
            "dead_enemies": (~view.enemies).sum(axis=1),
        }
        return self._seen, reward.astype(np.float64), over, view.late, info

    def _begin(self, rows: Array) -> dict[str, Array]:
        parts, view = self._worlds.begin(self._seed(), self.num_envs)
        self._put(parts, rows)
        new = self._shown(view, view.allies)
        if len(rows) == self.num_envs:
            self._seen = new
        else:
            # Copies, because arrays that were returned must not change.
            self._seen = {key: array.copy() for key, array in self._seen.items()}
            for key, array in self._seen.items():
                array[rows] = new[key][rows]
        return self._seen

    def _seed(self) -> int:
        return int(self.np_random.integers(2**32))

    def _parts(self) -> State:
        return tuple(getattr(self, name) for name in self.native_state)

    def _put(self, parts: State, rows: Any) -> None:
        for name, part in zip(self.native_state, parts):
            whole = np.array(getattr(self, name, part))
            whole[rows] = part[rows]
            setattr(self, name, whole)

    def _shown(self, view: View, there: Array) -> dict[str, Array]:
        mask = view.mask | ~there[..., None]
        shown = {OBSERVATION: view.observation, ACTION_MASK: mask.astype(np.int8), ALIVE: there}
        return {**shown, STATE: view.state} if self._with_state else shown


def battle_of(worlds: Any) -> AgentsGame:
    """One battle with PettingZoo's parallel interface."""
    return AgentsGame(SmaxVector(1, worlds, global_state=True), "smax", worlds.limit)


@functools.cache
def _jax_worlds(map_name: str, limit: int | None, options: tuple[tuple[str, Any], ...]) -> JaxWorlds:
    """The worlds of a map; they are compiled once per process."""
    return JaxWorlds(_scenarios(map_name)[map_name], limit, dict(options))


def _scenarios(map_name: str) -> Mapping[str, Any]:
    # JaxMARL prints that it looks for more packages, and one of its modules replaces `sys.stdout`.
    with silent(1):
        import_extra("jaxmarl", "smax", f"env.env_id='smax/{map_name}'")
    from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

    return MAP_NAME_TO_SCENARIO  # type: ignore[no-any-return]


def smax_map(map_name: str) -> Callable[..., AgentsGame]:
    """The function that makes a battle on a map, with its vector version as the attribute `vector_env`."""
    known: Collection[str] = MAPS
    with contextlib.suppress(MissingExtraError) if map_name not in MAPS else contextlib.nullcontext():
        known = _scenarios(map_name)
    if map_name not in known:
        raise ConfigError(
            f"env.env_id='smax/{map_name}': SMAX has no such map{nearest(map_name, known)}; it has {', '.join(known)}"
        )

    def make(**options: Any) -> AgentsGame:
        return battle_of(_jax_worlds(map_name, None, tuple(options.items())))

    def vector_env(
        num_envs: int,
        max_episode_steps: int | None = None,
        global_state: bool = False,
        team_reward: bool = False,
        **options: Any,
    ) -> SmaxVector:
        worlds = _jax_worlds(map_name, max_episode_steps, tuple(options.items()))
        return SmaxVector(num_envs, worlds, global_state=global_state)

    make.vector_env = vector_env  # type: ignore[attr-defined]
    return make
