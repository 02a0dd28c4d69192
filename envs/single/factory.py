"""Makes single environments from settings: look-up of ids and import paths, keyword arguments, wrappers."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import TimeLimit

from minding.engine.config.named import OPENSPIEL, import_own
from minding.engine.config.options import short
from minding.engine.errors import ConfigError, EnvError, MindingError, MissingExtraError, nearest
from minding.engine.paths import anchored
from minding.engine.process.packages import import_installed
from minding.engine.process.runtime import silent
from minding.envs.config import check_playable
from minding.envs.envpool import SinglePool
from minding.envs.games.boards.histories import LONGEST
from minding.envs.guards import open_envs
from minding.envs.guards.faults import START_TIMEOUT, Hang, close_env, describe
from minding.envs.guards.watchdog import watched
from minding.envs.single import env_objects
from minding.envs.single.env_objects import newest, old_gym, unknown_id
from minding.envs.single.parallel import as_parallel, is_parallel_id, parallel_source
from minding.envs.single.parallel_envs import AgentOptions, AgentsEnv
from minding.envs.single.rendering import choose_renderer
from minding.envs.single.shared_instance import Turn
from minding.envs.single.wrappers import AnyEnv, join_actions, wrap
from minding.envs.spaces.info import InfoForm, JoinInfo, agents_space, probe

# Packages that register the ids with a prefix, as prefix -> (module, distribution, extra).
_PROVIDERS = {
    "ALE/": ("ale_py", "ale-py", "atari"),
    "BabyAI-": ("minigrid", "minigrid", "minigrid"),
    "Foraging-": ("lbforaging", "lbforaging", "lbf"),
    "MinAtar/": ("minding.envs.single.minatar", "minatar", "minatar"),
    "MiniGrid-": ("minigrid", "minigrid", "minigrid"),
    "dm_control/": ("minding.envs.single.dm_control", "dm-control", "dmc"),
    "rware-": ("rware", "rware", "rware"),
}
_EXTRA_OF_MODULE = {"box2d": "box2d", "mujoco": "mujoco", "ale_py": "atari", "dm_control": "dmc"}

_ONLY_ONE = (
    "if only one can exist at a time, set env.single_instance=true env.collector_env_num=1 env.evaluator_env_num=1"
)


@dataclasses.dataclass(frozen=True)
class EnvFactory:
    """Makes one environment per call.

    It holds the resolved source, so that a worker process needs no registration.

    Attributes:
      step_timeout: seconds that one call of the environment may take; the limit for making an environment is the higher
        of this and `START_TIMEOUT`.
    """

    name: str
    source: EnvSpec | Callable[..., AnyEnv]
    kwargs: Mapping[str, Any]
    wrappers: Sequence[str | Mapping[str, Any]]
    max_episode_steps: int | None
    step_timeout: float
    info_keys: tuple[str, ...] = ()
    of_evaluator: tuple[str, ...] = ()
    form: InfoForm | None = None
    action_space: spaces.Space[Any] | None = None
    global_state: bool = False
    team_reward: bool = False
    single_instance: bool = False
    first: int = 0

    @anchored()
    def __call__(self) -> AnyEnv:
        made: list[Any] = []
        try:
            with watched("__init__", self.name, max(self.step_timeout, START_TIMEOUT)):
                made.append(Turn(self.name, self.kwargs, self._new) if self.single_instance else self._unique())
                env = self._fitted(made[0])
        except (Exception, SystemExit, Hang) as error:
            for unfit in made:
                # If only one instance can exist, it would prevent the next.
                self.close(unfit)
            explained = self._explained(error)
            if explained is error:
                raise
            raise explained from error
        open_envs.add(env, self.name)
        return env

    def probed(
        self, look: Callable[[AnyEnv], object] | None = None
    ) -> tuple[EnvFactory, spaces.Space[Any], spaces.Space[Any]]:
        """This factory with `form` and `action_space`, and both spaces, from an environment that `look` may use before
        it is closed again."""
        env = self()
        try:
            if look is not None:
                look(env)
            form = env.form if isinstance(env, JoinInfo) else None
            alone = env.action_space if agents_space(env.observation_space) is None else None
            known = dataclasses.replace(self, form=form, action_space=alone)
            return known, env.observation_space, env.action_space
        finally:
            self.close(env)

    def _fitted(self, made: Any) -> AnyEnv:
        """The new environment with the agents axis or the wrappers, and with the declared info."""
        if self._has_agents(made):
            env: AnyEnv = self._with_agents_axis(made)
        else:
            env = join_actions(wrap(_with_spaces(made), self.wrappers))
        self._check_actions(env)
        keys = env.info_keys if isinstance(env, AgentsEnv) else self.info_keys
        return JoinInfo(env, self.form or probe(env, keys, self.name)) if keys else env

    def _has_agents(self, made: Any) -> bool:
        if hasattr(made, "possible_agents"):
            return True
        if self.global_state or self.team_reward:
            key = "global_state" if self.global_state else "team_reward"
            raise ConfigError(
                f"env.{key}=true, which algorithms for teams turn on, needs an environment with several agents, but "
                f"{self.name} has one: choose an algorithm for one agent, such as 'ppo', or leave out the key"
            )
        return False

    def _explained(self, error: BaseException) -> BaseException:
        """The error that says in terms of the settings why making failed; `error` itself if it already says so."""
        if isinstance(error, MindingError):
            return error
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            return self._missing(str(error))
        misfit = self._misfit(error)
        if misfit:
            return ConfigError(misfit)
        newer = newest(self.name) if isinstance(self.source, EnvSpec) else self.name
        if newer not in ("", self.name):
            return ConfigError(f"{self.name} cannot be made: {describe(error)}; did you mean {newer!r}?")
        others = open_envs.count(self.name)
        more = f"; {others} of it already exist{'s' * (others == 1)} in this process: {_ONLY_ONE}" if others else ""
        return EnvError(f"{self.name} cannot be made: {describe(error)}{more}")

    def _check_actions(self, env: AnyEnv) -> None:
        if self.action_space is not None and env.action_space != self.action_space:
            raise EnvError(
                f"{self.name}: all instances must have the same action space; the first has {self.action_space}, "
                f"another has {env.action_space}"
            )

    def check_lives(self, env: AnyEnv) -> None:
        """Resets an environment of this factory if one of its wrappers needs to know the lives, which may be
        missing."""
        if not any("episodic_life" in entry for entry in self.wrappers):
            return
        try:
            with watched("reset", self.name, self.step_timeout):
                env.reset(seed=0)
        except ConfigError:
            raise
        except (Exception, SystemExit, Hang) as error:
            raise EnvError(f"{self.name} failed in reset: {describe(error)}") from error

    def close(self, env: AnyEnv) -> BaseException | None:
        """Closes an environment of this factory within the time limit of a step; see `close_env`."""
        with watched("close", self.name, self.step_timeout):
            return close_env(env, self.name)

    @property
    def native(self) -> EnvSpec | Callable[..., Any] | None:
        """The factory of the vector version, if the environment has one and no wrappers forbid its use. It is a spec,
        or for an environment of several agents a function: the attribute `vector_env` of the source."""
        spec = self.source
        if not isinstance(spec, EnvSpec):
            return None if self.wrappers else getattr(spec, "vector_env", None)
        if spec.vector_entry_point is None:
            return None
        return None if self.wrappers or spec.additional_wrappers else spec

    @property
    def renders(self) -> bool:
        """Whether images can be asked for: `_maker` takes `render_mode` and, if it is a class, defines `render`."""
        try:
            inspect.signature(self._maker).bind_partial(render_mode="rgb_array")
        except ValueError:  # some compiled classes have no signature
            return True
        except TypeError:
            return False
        return getattr(self._maker, "render", None) is not gymnasium.Env.render

    @property
    def _maker(self) -> Callable[..., Any]:
        """The class or function that makes an environment."""
        if not isinstance(self.source, EnvSpec):
            return self.source
        entry = self.source.entry_point
        return load_env_creator(entry) if isinstance(entry, str) else entry or type(None)

    def _unique(self) -> Any:
        """A new environment from the source; ConfigError, without closing it, if the source returned it before."""
        env = self._new()
        if not getattr(self.source, "lends", False) and not open_envs.is_new(env):
            raise ConfigError(
                f"{self.name} returned the same environment as before: training makes several, each with an episode of "
                f"its own: make a new one in each call; {_ONLY_ONE}"
            )
        return env

    def _new(self) -> Any:
        """An environment from the source; environments of several agents get the parallel interface."""
        if isinstance(self.source, EnvSpec):
            # MuJoCo warns about the files of its own models, each time that it compiles one.
            quiet = silent(2) if "mujoco" in str(self.source.entry_point) else contextlib.nullcontext()
            with quiet:
                made = gymnasium.make(self.source, max_episode_steps=self.max_episode_steps, **self.kwargs)
            return as_parallel(made, self.name) or made
        env = self.source(**self.kwargs)
        parallel = as_parallel(env, self.name)
        if parallel is not None:
            return parallel
        if not any(hasattr(env, method) for method in ("reset", "step")):
            raise ConfigError(f"{self.name} returned {env!r}: expected an environment, with reset and step")
        return TimeLimit(env, self.max_episode_steps) if self.max_episode_steps else env

    def _with_agents_axis(self, env: Any) -> AgentsEnv:
        if self.wrappers:
            raise ConfigError(
                f"env.wrappers={list(self.wrappers)!r} need an environment with one agent, but {self.name} has "
                f"{len(env.possible_agents)} agents: wrap it in your own function and give its "
                "'module:function' as env.env_id"
            )
        options = AgentOptions(self.global_state, self.team_reward, self.info_keys, self.max_episode_steps)
        return AgentsEnv(env, self.name, options)

    def _misfit(self, error: BaseException) -> str:
        """The fault of `kwargs` if it caused `error` while the environment was made; else empty."""
        if not isinstance(error, TypeError):
            return ""
        given = {**(self.source.kwargs if isinstance(self.source, EnvSpec) else {}), **self.kwargs}
        try:
            signature = inspect.signature(self._maker)
            signature.bind(**given)
        except ValueError:  # some compiled classes have no signature
            return ""
        except TypeError as reason:
            unknown = [name for name in given if name not in signature.parameters]
            hint = nearest(unknown[0], signature.parameters) if unknown else ""
            key = "env.evaluator_kwargs" if {*unknown} & {*self.of_evaluator} else "env.env_kwargs"
            return (
                f"{key}={short(dict(self.kwargs))} does not fit {self.name}{signature}: {reason}{hint}; set "
                f"{key}.NAME=VALUE for what it takes"
            )
        # Of functions that pass their arguments on.
        refused = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if refused and refused[1] in self.kwargs:
            key = "env.evaluator_kwargs" if refused[1] in self.of_evaluator else "env.env_kwargs"
            return f"{key}.{refused[1]}: {self.name} takes no such argument: {error}"
        return ""

    def _missing(self, reason: str) -> Exception:
        where = f"{getattr(self.source, 'entry_point', '')} {reason}".lower()
        if "cv2" in where or "opencv" in where:
            return MissingExtraError("opencv-python-headless", "atari", f"image preprocessing of {self.name}")
        for word, extra in _EXTRA_OF_MODULE.items():
            if word in where:
                return MissingExtraError(word, extra, f"env.env_id={self.name!r}")
        return ConfigError(f"env.env_id={self.name!r}: {reason}")


def env_factory(
    settings: Mapping[str, Any], env_fn: Callable[..., AnyEnv] | None = None, *, training: bool = False
) -> EnvFactory:
    """Resolves checked settings (see `env_settings`) to a factory."""
    env_id = settings["env_id"]
    choose_renderer()
    if env_fn is None:
        check_playable(settings)
    if env_fn is None and not env_id:
        raise ConfigError("env.env_id='': expected a Gymnasium id or 'module:ClassOrFunction'")
    if env_fn is None and settings["backend"] == "envpool":
        source: EnvSpec | Callable[..., AnyEnv] = functools.partial(SinglePool, env_id)
    else:
        source = env_fn if env_fn is not None else _find_source(env_id)
    return EnvFactory(
        name=env_id or getattr(env_fn, "__name__", type(env_fn).__name__),
        source=source,
        kwargs=dict(settings["env_kwargs"]),
        wrappers=(*settings["wrappers"], *["episodic_life"] * (training and settings["episodic_life"])),
        max_episode_steps=settings["max_episode_steps"],
        step_timeout=settings["step_timeout"],
        info_keys=tuple(settings["info_keys"]),
        of_evaluator=() if training else tuple(settings.get("evaluator_kwargs") or ()),
        global_state=settings["global_state"],
        team_reward=settings["team_reward"],
        single_instance=settings["single_instance"],
    )


def register_env(env_id: str, entry_point: str | Callable[..., AnyEnv], **spec: Any) -> None:
    """Registers an environment under an id, as `gymnasium.register` does.

    Args:
      env_id: new id, such as ``'my/Maze-v0'``.
      entry_point: class or function, or its ``'module:name'``.
      **spec: further fields of the spec, such as ``max_episode_steps=200``.
    """
    gymnasium.register(env_id, entry_point, **spec)


def _with_spaces(env: Any) -> AnyEnv:
    """The environment; ConfigError if it lacks one of the two spaces."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise ConfigError(f"{type(env).__name__}.{name}: expected a gymnasium.Space, got {space!r}{old_gym(space)}")
    return env  # type: ignore[no-any-return]


def _find_source(env_id: str) -> EnvSpec | Callable[..., AnyEnv]:
    if env_id.startswith(env_objects.PREFIX):
        return env_objects.source_of(env_id)
    board = board_spec(env_id)
    if board is not None:
        return _fast_spec(board)
    if is_parallel_id(env_id):
        return parallel_source(env_id)
    if ":" in env_id:
        module_name, _, name = env_id.partition(":")
        provider = next((each for each in _PROVIDERS.values() if each[0] == module_name), None)
        where = f"env.env_id={env_id!r}"
        module = import_own(module_name, where) if provider is None else _import_provider(provider, where)
        attribute = getattr(module, name, None)
        if callable(attribute):
            return attribute
        # Gymnasium's own 'module:Id-v0': importing the module registers the id.
        if name not in gymnasium.registry:
            if name in vars(module):
                raise ConfigError(
                    f"{where}: {module_name}.{name} is {attribute!r}; expected a class, or a function "
                    "that returns an environment"
                )
            known = [*(name for name, value in vars(module).items() if callable(value)), *gymnasium.registry]
            raise ConfigError(f"{where}: {module_name} has no {name!r}{nearest(name, known)}")
        env_id = name
    return _fast_spec(_registered(env_id))


def _import_provider(provider: tuple[str, str, str], where: str) -> ModuleType:
    module, package, extra = provider
    try:
        return import_installed(module)
    except ImportError:
        raise MissingExtraError(package, extra, where) from None


def _registered(env_id: str) -> EnvSpec:
    providers = [provider for beginning, provider in _PROVIDERS.items() if env_id.startswith(beginning)]
    if providers and env_id not in gymnasium.registry:
        _import_provider(providers[0], f"env.env_id={env_id!r}")
    if env_id not in gymnasium.registry:
        raise ConfigError(f"env.env_id={env_id!r}: unknown environment{unknown_id(env_id)}")
    return gymnasium.spec(env_id)


def _fast_spec(spec: EnvSpec) -> EnvSpec:
    """The spec without Gymnasium's per-step checks: `minding check-env` and the managers make their own."""
    spec = copy.deepcopy(spec)
    spec.disable_env_checker = True
    spec.order_enforce = False
    return spec


_CLASSIC = "classic/"


def board_spec(env_id: str) -> EnvSpec | None:
    """The spec of a board game of another package; None for other ids."""
    classic = env_id.removeprefix("pettingzoo/")
    if env_id.startswith(OPENSPIEL):
        rules, name = "openspiel", env_id.removeprefix(OPENSPIEL)
    elif classic.startswith(_CLASSIC) and classic.removeprefix(_CLASSIC) in LONGEST:
        rules, name = "classic", classic.removeprefix(_CLASSIC)
    else:
        return None
    return EnvSpec(
        f"{rules}/{name}" if name.isidentifier() else rules,
        "minding.envs.games.board:RulesEnv",
        vector_entry_point="minding.envs.games.board:RulesVector",
        kwargs={"rules": rules, "name": name},
    )
