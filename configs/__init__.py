"""Presets, one per file: a module named ``<environment>_<algorithm>`` that contains a `main_config`.

A preset contains the settings that differ from the defaults of its algorithm and environment; its `exp_name` is its
own name. Its docstring describes the task; it is expected to reach `run.target` within its length. A preset without a
target says after "Expected:" what else is. `make proofs` trains it with 5 seeds until `run.max_env_step`; a module
changes that by a dict `proof` with other `seeds`, `target` or `env_step`, and is left out with ``proof = None``.
"""

import importlib
import os
import runpy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from minding.configs.chains import check_known
from minding.configs.checks import check_settings
from minding.configs.datasets import OTHERWISE, describe_data, env_of_data, limits_of_data
from minding.configs.names import (
    PRESETS,
    check_one_algorithm,
    is_algorithm,
    is_name,
    names_env,
    refuse_without_env,
    unknown_name,
)
from minding.engine.checkpoint.store import MISFITS, first_line
from minding.engine.config.compiler import Overrides, compile_config
from minding.engine.config.config import Config, EnvSection
from minding.engine.config.identity import check_complete
from minding.engine.config.options import plain, setting_at, short
from minding.engine.config.trust import read_foreign
from minding.engine.data.agent_axis import with_identity
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, MindingError, nearest
from minding.engine.paths import expanded
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import plays_all_sides


def load_preset(name: str) -> Config:
    """A fresh copy of a preset's `main_config`, with the preset's name as `exp_name`.

    Raises:
      ConfigError: if there is no such preset; the message names the nearest one.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{nearest(name, PRESETS) or '.'} `minding list presets` lists all")
    return Config(plain(importlib.import_module(f"minding.configs.{name}").main_config), exp_name=name)


def load_named(name: str, overrides: Iterable[str] | Overrides = ()) -> Config:
    """The settings of a name: the settings of a preset, or an algorithm with its defaults.

    Raises:
      ConfigError: if there is neither a preset nor an algorithm of this name; the message names the nearest one. Also
        if `overrides` name another algorithm.
    """
    check_one_algorithm(name, Overrides(overrides))
    if is_algorithm(name):
        return Config(policy=dict(type=name))
    if name in PRESETS:
        return load_preset(name)
    raise ConfigError(f"unknown configuration {name!r}: {unknown_name(name)}")


def load_user_config(source: str | os.PathLike[str], *, trust: bool = False, own: tuple[str, ...] = ()) -> Config:
    """The settings that the command line names.

    Args:
      source: the name of a preset or of an algorithm, a ``.yaml`` file, a run folder, or a ``.py`` file that defines
        `main_config`. A name means the preset or the algorithm, even if there is a folder of that name; write
        ``./name`` for the folder.
      trust: whether a run folder or a ``.yaml`` file may set anything; see `engine.config.trust`.
      own: settings that will be replaced, and which a run folder or a ``.yaml`` file may therefore set to anything.
    Raises:
      ConfigError: if there is no such preset or file, or it contains no settings.
      TrustError: a run folder or a ``.yaml`` file names code or reaches out of its run, and is not the user's own.
    """
    # An empty text is no path to the current folder.
    if isinstance(source, str) and (is_name(source) or not source.strip()):
        return load_named(source)
    path = expanded(source)
    if path.is_dir():
        return RunDir.open(path, trust=trust, own=own).load_config(learns=True)
    if path.suffix in (".yaml", ".yml"):
        return read_foreign(path, trust=trust, own=own)
    if path.suffix == ".py":
        return _run_config_file(path)
    if path.is_file():
        raise ConfigError(f"{str(path)!r}: expected a .yaml file with settings, or a .py file that defines main_config")
    return load_named(str(source))


def _run_config_file(path: Path) -> Config:
    if not path.is_file():
        raise ConfigError(f"cannot read the configuration {str(path)!r}: no such file")
    try:
        settings = runpy.run_path(str(path)).get("main_config", ...)
    except (Exception, SystemExit) as error:  # The file is the user's program: what it raises is a mistake in it.
        raise ConfigError(f"{str(path)!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(settings, dict):
        found = "defines no main_config" if settings is ... else f"defines main_config = {short(settings)}"
        raise ConfigError(f"{str(path)!r} {found}; expected main_config = dict(...)")
    try:
        return Config(plain(settings))
    except TypeError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from None


def compile_run(
    user: str | Mapping[str, object],
    overrides: Iterable[str] | Overrides = (),
    *,
    env_fn: Callable[..., Any] | None = None,
    described: bool = False,
) -> Config:
    """Compiles settings with the algorithm that they name and the environment's description.

    Args:
      user: the name of a preset or of an algorithm, or settings as in a preset's `main_config`.
      overrides: ``'key=value'`` strings as on the command line.
      env_fn: a class or function that creates an environment, in place of ``env.env_id``; takes ``env.env_kwargs``.
      described: whether to take the environment's description from the settings, without creating the environment.
    Raises:
      ConfigError: as in `compile_config`, and for an unknown algorithm or settings that contradict each other.
      SpaceError: if the algorithm cannot act in the environment's action space.
      EnvError: if the environment cannot be created.
    """
    from minding.envs import config_schema, describe_env
    from minding.envs.single import env_objects
    from minding.policies import get_algorithm

    if not isinstance(user, str | Mapping):
        raise ConfigError(
            f"compile_run({user!r}): expected the name of a preset or of an algorithm, or a mapping of settings; "
            "load_user_config reads files"
        )
    said = Overrides(overrides)
    given: Mapping[str, Any] = load_named(user, said) if isinstance(user, str) else user
    named_env = given.get("env") or {}
    if env_fn is not None:
        if not callable(env_fn):
            raise ConfigError(f"env_fn={env_fn!r}: expected a class or function that makes one environment")
        given = Config({**given, "env": {**given.get("env", {}), "env_id": env_objects.id_of(env_fn)}})
    algorithm = get_algorithm(_algorithm_name(given, said))
    data = said.value("policy.other.data") or setting_at(given, "policy.other.data")
    recorded = not names_env(given, said.onto({}))
    if recorded:
        if data is None:
            refuse_without_env(algorithm)
        given = {**given, "env": {**named_env, **env_of_data(str(data))}}

    def describe(env: EnvSection) -> Mapping[str, Any]:
        if described:
            return cast("Mapping[str, Any]", setting_at(given, "env.spec", {}))
        if env.env_id != RECORDED:
            try:
                spec: dict[str, Any] = describe_env(env)
            except MindingError as error:
                if not recorded:
                    raise
                raise ConfigError(f"{data!r} was recorded in {env.env_id!r}: {error}{OTHERWISE}") from error
            if "agents" in spec and env.agent_ids and not algorithm.own_networks:
                spec["observation"] = with_identity(spec["observation"], spec["num_agents"])
            return spec
        bare = compile_config(given, algorithm, None, config_schema(), said)
        return describe_data(bare, bare.env.spec if "spec" in bare.env else None)

    try:
        cfg = compile_config(given, algorithm, describe, config_schema(), said)
    except ConfigError as error:
        own = plain(given.get("policy") or {}).get("type")
        if own in (None, algorithm.name) or not str(error).startswith("unknown key"):
            raise
        raise ConfigError(
            f"policy.type={algorithm.name!r}: the other settings are those of {own!r} ({error}); start from a preset "
            f"of {algorithm.name!r}: `minding list presets` lists all"
        ) from None
    if plays_all_sides(cfg):
        cfg.env.evaluator_kwargs.setdefault("opponent", "random")
    if said.value("run.target") is None and not same_task(named_env, cfg.env):
        cfg.run.target = None
    limits = {"limits": limits_of_data(cfg)} if cfg.env.env_id == RECORDED else {}
    algorithm.check_actions(cfg.env.spec.action, f"env.env_id={cfg.env.env_id!r}", **limits)
    algorithm.check_agents(cfg.env.spec, f"env.env_id={cfg.env.env_id!r}")
    algorithm.check_learners(cfg.lanes.learners)
    check_known(cfg.chain)
    check_settings(cfg)
    return cfg


def compile_saved(run: RunDir) -> Config:
    """The compiled configuration of a run, to act. If the caller has his own environment for it (`RunDir.own`), that of
    the run is not created, and may not exist.

    Raises:
      ConfigError: the configuration is damaged.
      TrustError: see `engine.config.trust.read_foreign`.
    """
    saved = run.load_config()
    check_complete(run.checkpoints, saved, run.own, run.config)
    if "env.env_id" not in run.own:
        return compile_run(saved)
    try:
        return compile_run(saved, described=True)
    except MISFITS as error:
        raise ConfigError(f"{str(run.config)!r}: env.spec describes no environment ({first_line(error)})") from error


def same_task(named: Mapping[str, Any], env: Mapping[str, Any]) -> bool:
    """Whether two sections `env` have the same environment, so that a `run.target` of the first holds for the second; a
    first one without an environment fits any."""
    first, second = ((each.get("env_id"), plain(each.get("env_kwargs") or {})) for each in (named, env))
    return first[0] is None or bool(first == second)


def _algorithm_name(user: Mapping[str, object], said: Overrides) -> str:
    from minding.policies import ALGORITHMS

    given = said.value("policy.type")
    if given is not None:
        return str(given)
    section = user.get("policy")
    if not isinstance(section, dict) or "type" not in section:
        odd = [key for key in section or () if nearest(key, ["type"])] if isinstance(section, dict) else []
        hint = f"; did you mean 'type' by {odd[0]!r}?" if odd else "."
        raise ConfigError(f"policy.type is not given{hint} Expected an algorithm: {', '.join(ALGORITHMS)}")
    return str(section["type"])
