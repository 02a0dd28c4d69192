"""Makes environments from their settings and chooses the backend that steps them.

`make_env_manager` makes N environments; the environments of a run have a function for each kind, with its own seed
stream.
"""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from minding.engine.config.config import Config
from minding.engine.config.named import check_named, is_named, load_code
from minding.engine.config.options import setting_at, short
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.error_origin import building
from minding.engine.errors import ConfigError, MindingError
from minding.engine.paths import anchored
from minding.engine.search.rules import check_rules
from minding.engine.seeding import SeedStreams
from minding.engine.types import BoardGame, LaneContext
from minding.envs.backends.native import atari_options, native_env, native_objection
from minding.envs.backends.source import Source
from minding.envs.config import env_settings
from minding.envs.manager import BatchedEnvManager, VectorEnvManager, action_adapter
from minding.envs.normalize import REWARD
from minding.envs.random_play import replay_difference
from minding.envs.single.env_objects import AnyVectorEnv, GivenVector
from minding.envs.single.factory import EnvFactory, env_factory
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.info import agents_space
from minding.envs.spaces.layout import ObsLayout
from minding.envs.spec import describe_spaces, undeclared_mask

_log = logging.getLogger("minding.envs")

# One vector step of CartPole takes about as long as five single steps; for fewer environments the loop is faster.
_NATIVE_FROM = 6


def make_env_manager(
    env_cfg: Mapping[str, Any],
    num_envs: int,
    seed: int,
    *,
    training: bool = True,
    env_fn: Callable[..., AnyEnv] | None = None,
    watch: Collection[str] = (),
) -> BatchedEnvManager:
    """Makes `num_envs` environments that step together.

    Backends (``env_cfg.backend``):

    - ``native``: the environment's own vector version, all environments in one NumPy step. They
      share one random generator, seeded from `seed`.
    - ``sync``: single environments in a loop in this process. Every episode has its own seed, so that an
      environment's episodes do not depend on the length of other environments' episodes.
    - ``subprocess``: the same in worker processes. Messages take about 50 us per step, which pays off for
      environments slower than that, never for classic control.
    - ``envpool``: the C++ environments of the `envpool` extra.
    - ``module:Name``: the user's own function of these settings, the number of environments and the seed, which returns
      a Gymnasium vector environment. ``env_cfg.env_id`` still names the single environment, which describes the spaces.
    - ``auto``: native for many environments that have a vector version, otherwise sync.

    Args:
      env_cfg: the `env` section of a configuration; missing keys take their defaults.
      num_envs: number of environments, N.
      seed: seed from which the seeds of all episodes follow.
      training: False for evaluation: rewards are then neither normalized nor clipped, episodes are whole games, and
        ``evaluator_kwargs`` count.
      env_fn: function that makes one environment, in place of ``env_cfg.env_id``; it gets ``env_kwargs``.
      watch: what to warn about once: 'reward' and 'observation', if their numbers are large in the first steps, and
        'action_mask', if single environments give legal actions that ``info_keys`` does not declare.
    Raises:
      ConfigError: if the section or the environment is wrong; names the key.
      SpaceError: for spaces that do not have an array form.
      MissingExtraError: if a package that the environment needs is not installed.
    """
    if num_envs < 1 or seed < 0:
        raise ConfigError(f"make_env_manager(num_envs={num_envs}, seed={seed}): expected num_envs >= 1 and seed >= 0")
    settings = env_settings(env_cfg)
    if not training:
        settings["env_kwargs"] = {**settings["env_kwargs"], **settings["evaluator_kwargs"]}
    _check_single(settings, num_envs)
    factory = None if settings["backend"] == "envpool" else env_factory(settings, env_fn, training=training)
    return ManagerFactory(settings, factory, num_envs, seed, training, watch=frozenset(watch)).make(seed)


@dataclasses.dataclass(frozen=True)
class ManagerFactory:
    """Everything that is needed to make a manager; it can be sent to other processes."""

    settings: Mapping[str, Any]
    factory: EnvFactory | None
    num_envs: int
    seed: int
    training: bool
    warned: bool = False
    watch: frozenset[str] = frozenset()

    def __call__(self, lane: LaneContext) -> BatchedEnvManager:
        """Makes a worker's manager, with its shard of the environments; workers other than 0 get their own seeds."""
        envs = lane.share(self.num_envs)
        first = lane.index % lane.shards * envs
        if not lane.index:
            return self.make(self.seed, envs, first)
        seed = SeedStreams(self.seed).integers(f"worker.{lane.index}", 1)[0]
        return dataclasses.replace(self, watch=frozenset()).make(seed, envs, first)

    @anchored()
    def make(self, seed: int, envs: int | None = None, first: int = 0) -> BatchedEnvManager:
        """Makes a manager of `envs` of the environments, from number `first` on, with the backend that all of them
        together would have."""
        envs = self.num_envs if envs is None else envs
        if self.training and self.factory is not None and isinstance(self.factory.source, GivenVector):
            # No other process can have this object.
            given = self._given(self.factory.source)
            manager: BatchedEnvManager = VectorEnvManager(given, self.settings, seed, self.training, self.warned)
        else:
            manager = self._make(seed, envs, first)
            manager.origin = dataclasses.replace(self, warned=True)
        if self.watch:
            manager.watch(self.watch)
        return manager

    def _look_for_mask(self, env: AnyEnv) -> None:
        assert self.factory is not None
        key = undeclared_mask(self.factory, env)
        if key is not None:
            also = "" if key == ACTION_MASK else f" return it as info[{ACTION_MASK!r}], and"
            _log.warning(
                "%s: info has %r, which is ignored:%s set env.info_keys=[%s], unless illegal actions may be tried",
                self.factory.name,
                key,
                also,
                ACTION_MASK,
            )

    def _given(self, given: GivenVector) -> AnyVectorEnv:
        for key in ("backend", "wrappers", "env_kwargs", "max_episode_steps", "episodic_life"):
            default = "auto" if key == "backend" else None
            if self.settings[key] and self.settings[key] != default:
                raise ConfigError(
                    f"env.{key}={short(self.settings[key])} has no effect on a vector environment, which is stepped as "
                    "it was given: pass an id or a function that makes one environment, or leave the setting out"
                )
        return given.lend(self.num_envs)

    def _make(self, seed: int, envs: int, first: int) -> BatchedEnvManager:
        settings, factory = self.settings, self.factory
        if is_named(settings["backend"]):
            own = _own_vector(settings, envs, seed)
            return VectorEnvManager(own, settings, seed, self.training, self.warned, first)
        if factory is None:
            from minding.envs.envpool import envpool_vector_env

            vector_env = envpool_vector_env(settings, envs, seed)
            return VectorEnvManager(vector_env, settings, seed, self.training, self.warned, first)
        # The number of all environments decides, so that every shard has the same backend.
        backend = _choose_backend(settings["backend"], factory, self.num_envs)
        if backend == "native":
            return VectorEnvManager(native_env(factory, envs), settings, seed, self.training, self.warned, first)
        looks = ACTION_MASK in self.watch and not self.warned and not factory.single_instance
        factory = dataclasses.replace(factory, first=first)
        factory, observation_space, action_space = factory.probed(self._look_for_mask if looks else None)
        layout = ObsLayout(observation_space, action_space)
        agents, warn = agents_space(observation_space), self.training and not self.warned
        if agents is None:
            adapter = action_adapter(action_space, settings, factory.name, warn=warn)
        else:
            adapter = action_adapter(agents.one_action, settings, factory.name, len(agents.names), warn=warn)

        def source(num_envs: int, restart: bool) -> Source:
            if backend == "sync":
                from minding.envs.backends.source import LocalSource

                return LocalSource(factory, layout, adapter, num_envs, seed, restart)
            from minding.envs.backends.processes import ProcessSource, WorkerOptions

            options = WorkerOptions(settings["workers"], settings["step_timeout"], restart)
            return ProcessSource(factory, layout, adapter, num_envs, seed, options)

        @functools.cache
        def repeats() -> bool:
            if any("episodic_life" in entry for entry in factory.wrappers):
                # An episode continues the game of the last one, which no seed leads to.
                return False
            try:
                description = describe_spaces(observation_space, action_space, rescale=settings["rescale_action"])
                trial = BatchedEnvManager(source(1, restart=False), adapter, settings, training=False)
                with contextlib.closing(trial):
                    return not replay_difference(trial, description)
            except MindingError:
                # A fault is reported where it happens in the environments of the run.
                return True

        manager = BatchedEnvManager(source(envs, settings["on_error"] == "restart"), adapter, settings, self.training)
        manager.repeats = repeats
        return manager


def _own_vector(settings: Mapping[str, Any], envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
    """The vector environment of the user's own backend."""
    where = f"env.backend={settings['backend']!r}"
    make = load_code(settings["backend"], "env.backend")
    with building(f"{where}: making {envs} environments"):
        made = make(settings, envs, seed)
    if not isinstance(made, VectorEnv) or made.num_envs != envs:
        raise ConfigError(f"{where}: expected a gymnasium.vector.VectorEnv of {envs} environments, got {made!r}")
    return made


def _check_single(settings: Mapping[str, Any], num_envs: int) -> None:
    """Refuses several environments, and worker processes, if only one instance can exist."""
    if not settings["single_instance"]:
        return
    if num_envs > 1:
        raise ConfigError(
            f"env.single_instance=true: expected one environment at a time, got {num_envs}: set "
            "env.collector_env_num=1 and env.evaluator_env_num=1"
        )
    if settings["backend"] not in ("auto", "sync"):
        raise ConfigError(
            "env.single_instance=true needs env.backend=sync (or auto), which steps everything in one process; got "
            f"{settings['backend']!r}"
        )


def check_backend(env_cfg: Mapping[str, Any]) -> None:
    """Refuses an ``env.backend`` that cannot step the environment here."""
    settings = env_settings(env_cfg)
    if settings["backend"] == "envpool":
        from minding.envs.envpool import check_envpool

        check_envpool(settings)
    elif is_named(settings["backend"]):
        check_named(settings["backend"], "env.backend")
    else:
        _choose_backend(settings["backend"], env_factory(settings), 1)


def _choose_backend(backend: str, factory: EnvFactory, num_envs: int) -> str:
    if backend == "native" and atari_options(factory) is not None:
        return backend
    native = factory.native is not None
    if backend == "native" and not native:
        raise ConfigError(
            f"env.backend='native': {factory.name} has no vector version, or wrappers are "
            "configured; use 'sync' or 'auto'"
        )
    if backend not in ("native", "auto") or not native or (backend == "auto" and num_envs < _NATIVE_FROM):
        return "sync" if backend == "auto" else backend
    objection = native_objection(factory)
    if objection and backend == "native":
        raise ConfigError(f"env.backend='native': {factory.name}: {objection}; use 'sync' or 'auto'")
    if objection:
        _log.warning("%s: %s; env.backend=auto steps single environments", factory.name, objection)
    return "sync" if objection else "native"


_OTHER_REWARDS = ("recorded_reward", "sqil")
"""Chains whose policies learn from rewards that are not the environment's."""
_RULES = ("actions", "longest", "initial", "legal", "play", "planes", "symmetries")


def make_collector_env(cfg: Config, env_fn: Callable[..., AnyEnv] | None = None) -> BatchedEnvManager:
    """Environments that experience is collected from.

    Args:
      cfg: compiled configuration of the run.
      env_fn: function that makes one environment, in place of ``env.env_id``; it gets ``env.env_kwargs``. It can be
        left out if `compile_run` was given it.
    Raises:
      ConfigError, SpaceError, MissingExtraError: as for `make_env_manager`.
    """
    seed = _seed(cfg, "env.collect")
    return make_env_manager(cfg.env, cfg.env.collector_env_num, seed, env_fn=env_fn, watch=_watched(cfg))


def _watched(cfg: Config) -> tuple[str, ...]:
    """What to warn about: a mask that is not declared, and scales that matter to the policy, which may normalize them
    itself, or learn from other rewards."""
    policy = setting_at(cfg, "policy", {})
    model, learn, other = (policy.get(section) or {} for section in ("model", "learn", "other"))
    if "bin_limit" in model:  # symlog
        return (ACTION_MASK,)
    own = cfg.get("chain") not in _OTHER_REWARDS and other.get("reward") in (None, "none")
    rewards = own and not learn.get("value_norm")
    return (ACTION_MASK, *([REWARD] if rewards else []), *([] if model.get("normalize_obs") else [OBSERVATION]))


def make_evaluator_env(
    cfg: Config, stream: str = "env.evaluate", env_fn: Callable[..., AnyEnv] | None = None
) -> BatchedEnvManager:
    """Environments for evaluation, with unmodified rewards.

    Args:
      cfg: compiled configuration of the run.
      stream: name of the seed stream; another name gives episodes that no other evaluation of the run has had.
      env_fn: as in `make_collector_env`.
    Raises:
      ConfigError, SpaceError, MissingExtraError: as for `make_env_manager`.
    """
    return make_env_manager(cfg.env, cfg.env.evaluator_env_num, _seed(cfg, stream), training=False, env_fn=env_fn)


def make_goal_rules(cfg: Config) -> Any:
    """An environment that is never stepped, for its rules for goals, `compute_reward` and `compute_terminated`."""
    return env_factory(env_settings(cfg.env))().unwrapped


def make_board_game(cfg: Config) -> BoardGame:
    """The rules of a board game, ``env.unwrapped.game`` of the configured environment, which is never stepped.

    Raises:
      ConfigError: the environment does not have such rules.
      GameError: the rules contradict themselves, see `check_rules`.
      MissingExtraError: as for `make_env_manager`.
    """
    factory = env_factory(env_settings(cfg.env))
    env = factory()
    game: Any = getattr(env.unwrapped, "game", None)
    factory.close(env)
    missing = [name for name in _RULES if not hasattr(game, name)]
    if missing:
        what = "it has no attribute `game`" if game is None else f"its `game` has no {missing[0]!r}"
        raise ConfigError(
            f"env.env_id={cfg.env.env_id!r} has no rules of a board game to play against oneself: {what}; "
            "expected env.unwrapped.game to be an engine.types.BoardGame, as in minding/TicTacToe-v0"
        )
    rules: BoardGame = game
    check_rules(rules)
    return rules


def _seed(cfg: Config, stream: str) -> int:
    return SeedStreams(cfg.seed).integers(stream, 1)[0]
