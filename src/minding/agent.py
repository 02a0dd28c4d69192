"""`Agent`: a policy in one object that learns, acts, and is saved and loaded, in one line each."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from minding.configs import compile_run, load_named, same_task
from minding.configs.chains import get_chain
from minding.engine.chain.task import Task
from minding.engine.checkpoint import Checkpoint, read_manifest, resumable_checkpoints, use_checkpoint, use_newest
from minding.engine.config.compiler import RUN_SCHEMA, Overrides, load_config, setting_paths
from minding.engine.config.config import Config, run_length
from minding.engine.config.identity import POLICY, check_checkpoint, check_complete
from minding.engine.config.named import name_of_code
from minding.engine.config.options import MOST_COUNT, Option, plain, setting_at
from minding.engine.config.trust import read_foreign
from minding.engine.console import console_logger
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, add_note, nearest
from minding.engine.paths import absolute, check_readable, folder_of
from minding.engine.process import compiled
from minding.engine.run import zoo
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array
from minding.envs.config import config_schema, env_settings
from minding.envs.single import env_objects
from minding.envs.single.factory import env_factory
from minding.envs.single.wrappers import AnyEnv
from minding.middleware.eps_greedy import eps_at
from minding.middleware.learning import last_rate
from minding.policies import get_algorithm
from minding.policies.settings.other_libraries import setting_hint
from minding.training.assembly import Given, build, check_runnable, given_middleware, make_policy
from minding.training.evaluation import Evaluation, final_evaluation
from minding.training.loading import check_begin, load_weights
from minding.training.player import Player
from minding.training.saved_agent import CONFIG, check_saved, is_saved, save_policy, trained_steps, warm_start
from minding.training.session import Session, Summary, only_if_begun, raise_signal

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


@dataclasses.dataclass(frozen=True)
class _Origin:
    """What an agent begins with."""

    length: int
    learn: Mapping[str, Any]
    share: float = 1.0
    check_reach: Callable[[], object] | None = None
    saved: Path | None = None
    clock: int | None = 0
    eps: float | None = None


@dataclasses.dataclass
class _Run:
    """The run of an agent: not begun, a session in progress, or the checkpoint from which the next one continues."""

    folder: RunDir | None = None
    saved: int | None = None
    resume: str | Path = "latest"
    asked: int = 0
    session: Session | None = None
    end_session: weakref.finalize[Any, Any] | None = None

    @property
    def clock(self) -> int:
        return self.session.clock if self.session is not None else self.saved or 0


_open_agents: weakref.WeakSet[Agent] = weakref.WeakSet()


@functools.cache
def _close_at_end() -> None:
    compiled.before_end(_close_all)


def _close_all() -> None:
    for agent in [*_open_agents]:
        agent.close()


class Agent:
    """A policy with the run that trains it.

    ::

        agent = minding.Agent("ppo", "CartPole-v1", seed=0, learning_rate=1e-3)
        agent.learn(100_000)
        print(agent.evaluate(100))
        action = agent.predict(obs)
        agent.save("pole")

    The first `learn` makes a run folder, as `minding train` does: `minding eval`, `plot` and `resume` work on it. The
    environments stay open until `close`, or until the program drops the agent; ``with minding.Agent(...) as agent``
    closes them at the end of the block.

    Args:
      what: the name of an algorithm or of a preset, or settings as in a preset's `main_config`.
      env: the environment, which replaces the preset's: an id, ``module:Class``, a class or function that makes one; an
        environment made by `gymnasium.make`, of which new copies are made; or a vector environment made by
        `gymnasium.make_vec`, which is stepped directly, in this process, and stays open.
      seed: the seed of all random streams; by default the seed in the settings, or 0.
      dataset: folder of recorded data that the algorithm learns from, see docs/offline.md. Without `env` the run has no
        environment; with it the agent is evaluated there.
      settings: ``'key=value'`` strings as on the command line, such as ``env.backend=sync``.
      progress: whether `learn` shows a progress bar.
      **keys: settings directly in ``policy.model``, ``policy.learn`` or ``policy.collect``, such as ``gamma=0.9``.
    Raises:
      ConfigError: for an unknown algorithm, preset, key or setting, with the nearest known name; for an environment
        that cannot be copied; for settings that contradict each other.
      SpaceError: the algorithm cannot act in the environment's action space.
    """

    def __init__(
        self,
        what: str | Mapping[str, object],
        env: object = None,
        *,
        seed: int | None = None,
        dataset: str | Path | None = None,
        settings: Iterable[str] = (),
        progress: bool = True,
        **keys: object,
    ) -> None:
        said = Overrides(settings)
        user = load_named(what, said) if isinstance(what, str) else _settings_of(what)
        if env is not None:
            given = user.env if "env" in user else {}
            kept = {key: value for key, value in given.items() if key not in ("env_id", "env_kwargs")}
            user["env"] = {**kept, **env_objects.env_settings_of(env)}
            if "run" in user and not same_task(given, user.env):
                user.run.pop("target", None)
        if dataset is not None:
            _learn_from(user, dataset, env is None)
        if seed is not None:
            user.seed = seed
        _place_keys(user, keys)
        self._hold(compile_run(user, said), progress)

    def _hold(self, cfg: Config, progress: bool, **loaded: Any) -> None:
        self.cfg, self._progress = cfg, progress
        self._origin = _Origin(run_length(cfg).steps, dict(cfg.policy.learn), **loaded)
        self._run = _Run()
        self._use: tuple[Any, ...] = ()
        self._policy: BasePolicy | None = None
        self._player: Player | None = None

    @property
    def run_dir(self) -> Path | None:
        """The run folder; None before the first `learn`."""
        return None if self._run.folder is None else self._run.folder.path

    @property
    def policy(self) -> BasePolicy:
        """The policy, with its collect, learn and eval modes."""
        if self._policy is None:
            if self._origin.check_reach is None:
                # A trained policy can act even if it can no longer learn, as when its data are gone.
                check_runnable(self.cfg)
            self._policy = make_policy(self.cfg)
            if self._origin.saved is not None:
                warm_start(self._policy, self._origin.saved)
        return self._policy

    # Learning

    def learn(
        self,
        steps: int | None = None,
        *,
        total: int | None = None,
        anneal: bool | None = None,
        use: Given | None = None,
    ) -> Summary:
        """Learns, and evaluates the policy at the end; another call continues where the last one stopped.

        Schedules, such as the schedule of the learning rate, run over the steps of each call. With `total` they run
        over that many steps, which several calls share: ``learn(a, total=a + b)`` followed by ``learn(b, total=a + b)``
        gives the same weights, bit by bit, as one call with a + b steps. If no steps are left, the call prints a
        message and returns the figures.

        A loaded agent learns `steps` further steps with the learning rate at which its schedule ended: the full rate
        would damage a good policy. `anneal` and ``load(..., learning_rate=...)`` change that.

        Args:
          steps: environment steps of this call, or gradient steps when learning from recorded data; by default the
            steps that remain of the run's length in the settings.
          total: steps of all calls that share their schedules.
          anneal: True: a schedule from the full learning rate over the steps of this call; False: the full learning
            rate throughout; by default as the settings say, or in a loaded agent the rate at which its schedule ended.
          use: your own middleware (callback), a class or factory that makes one (see `training.assembly.add_given`), or
            several. They run after the chain's own, and stay for later calls unless a later call replaces them.
        Returns:
          The figures of the run so far.
        Raises:
          ConfigError: `steps` or `total` is not an integer of 1 or more, or `use` holds anything but middleware.
          KeyboardInterrupt, SystemExit: after SIGINT and SIGTERM, once the run is saved. The next call continues it.
        """
        for name, value in (("steps", steps), ("total", total)):
            if value is not None:
                _check_count(f"learn({name}", value, 1)
        if anneal is not None and not isinstance(anneal, bool):
            raise ConfigError(f"learn(anneal={anneal!r}): expected True, False or None")
        members = self._use if use is None else given_middleware(use)
        if members != self._use:
            # The chain is rebuilt, and all other state is restored.
            self._end_session()
            self._use = members
        clock, unit = self._run.clock, run_length(self.cfg).unit
        if anneal is not None or (total is None and (steps is not None or self._origin.saved is not None)):
            self._set_rates(anneal)
        if total is None:
            limit = self._origin.length if steps is None else clock + steps
        else:
            limit = total if steps is None else min(self._run.asked + steps, total)
        # A resumed run prints its own message if no steps are left.
        held = self._run.session is not None
        if limit > clock:
            self.cfg.run[f"max_{unit}"] = limit if total is None else total
            if total is None and steps is not None:
                self.cfg.run.schedule_begin = clock
                self._say_schedule(limit - clock)
        elif held:
            console_logger().info(
                "no steps left to learn: the run is at step %d, and this call ends at step %d", clock, limit
            )
        return self._learn_until(limit, run=limit > clock or not held)

    def _set_rates(self, anneal: bool | None) -> None:
        """Sets the learning rates of the next steps. If they change, the session ends and continues from its state."""
        learn = self.cfg.policy.learn
        if "anneal_lr" not in learn:
            return
        given, share = self._origin.learn, self._origin.share if anneal is None else 1.0
        wanted = {key: share * rate for key, rate in given.items() if key.endswith("learning_rate")}
        wanted["anneal_lr"] = bool(given["anneal_lr"] and share == 1.0) if anneal is None else anneal
        if all(learn[key] == value for key, value in wanted.items()):
            return
        if share != 1.0:
            console_logger().info(
                "the learning rate stays at %.3g, where its schedule ended; learn(..., anneal=True) begins a schedule "
                "at %g, and load(..., learning_rate=...) sets another rate",
                wanted["learning_rate"], given["learning_rate"],
            )  # fmt: skip
        self._end_session()
        learn.update(wanted)
        # Its optimizer has the earlier rates; its state comes from the checkpoint, or from the saved folder.
        self._policy = self._player = None

    def _learn_until(self, limit: int, *, run: bool) -> Summary:
        session = self._open()
        self._run.asked = max(self._run.asked, limit)
        try:
            if run:
                session.run(limit)
            summary = session.summarize()
        except BaseException as error:
            self._end_session()
            if self._use and self._run.saved is not None:
                add_note(
                    error,
                    "the run is kept: learn(..., use=[...]) continues it with other callbacks, use=[] without any",
                )
            raise
        session.run_dir.write_summary(vars(summary))
        if session.interrupted_by is not None:
            self._end_session()
            raise_signal(summary)
        return summary

    def _open(self) -> Session:
        """The session; a new one starts the run, or continues from its newest checkpoint."""
        run, origin = self._run, self._origin
        if run.session is not None:
            run.session.run_dir.update_config(self.cfg)
            return run.session
        if origin.check_reach is not None and run.end_session is None:
            origin.check_reach()
        check_runnable(self.cfg)
        if run.end_session is not None:
            # The policy is compiled for the buffers of the session that ended; the checkpoint holds its state.
            self._policy = self._player = None
        resume = None if run.saved is None else run.resume
        if resume is None:
            check_begin(self.cfg)
            self.cfg.run.schedule_begin = 0
            if origin.eps is not None:
                self.cfg.policy.other.eps.start = origin.eps
        run_dir = run.folder or RunDir.create(self.cfg)
        run_dir.check_writable()
        with contextlib.nullcontext() if resume else only_if_begun(run_dir):
            session = Session(
                self.cfg, run_dir, progress=self._progress, resume=resume, use=self._use, policy=self.policy
            )
            session.__enter__()
        run.folder, run.session, run.resume = run_dir, session, "latest"
        run.end_session = weakref.finalize(self, _close, session)
        _open_agents.add(self)
        _close_at_end()
        return session

    def _end_session(self) -> None:
        """Ends the session; the run continues from its newest checkpoint, if it has one."""
        session, self._run.session = self._run.session, None
        if session is None or self._run.end_session is None:
            return
        self._run.end_session()
        self._run.saved = _newest_clock(session.run_dir)
        if self._run.saved is None:
            # There is no checkpoint to continue from, so the next run also begins with fresh weights.
            self._run, self._policy, self._player = _Run(), None, None

    def _say_schedule(self, steps: int) -> None:
        """Prints how the learning rate changes in this call, if it changes differently than in a single call."""
        learn, rollout = self.cfg.policy.learn, self.cfg.policy.collect.n_sample
        if not learn.get("anneal_lr") or learn.get("anneal_steps") is not None:
            return
        shared = "total=... spreads one schedule over several calls of learn"
        if steps < rollout:
            console_logger().info(
                "%d steps are less than one rollout of %d: all updates of this call use the learning rate %g; %s",
                steps, rollout, learn.learning_rate, shared,
            )  # fmt: skip
        elif self._run.session is not None:
            console_logger().info(
                "the learning rate starts at %g again and is annealed over these %d steps; %s",
                learn.learning_rate, steps, shared,
            )  # fmt: skip

    # Acting

    def evaluate(self, episodes: int = 100, *, seed: int | None = None) -> Evaluation:
        """Plays complete episodes without exploration, in environments that training does not use.

        Args:
          episodes: the number of episodes.
          seed: the seed of the environments; by default the seed of the run.
        """
        _check_count("evaluate(episodes", episodes, 1)
        return Evaluation.of(final_evaluation(self.cfg, self.policy, episodes, seed), self.cfg)

    def predict(self, obs: object, action_mask: npt.ArrayLike | None = None, *, explore: bool = False) -> Array:
        """The action for an observation, or the actions for a batch, as in evaluation; see `Player`.

        Of a Tuple or Dict space it is a tuple or dict of arrays, which the annotation leaves out.

        A policy with memory remembers from call to call, until `reset`.
        """
        if self._player is None:
            self._player = self.player()
        return self._player(obs, action_mask, explore=explore)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Clears the memory of `predict`: for these rows of the batch, or for all."""
        if self._player is not None:
            self._player.reset(env_ids)

    def player(self) -> Player:
        """A callable that acts as `predict` does, with its own memory; see `Player`."""
        return Player(self.policy, self.cfg)

    def make_env(self, **env_kwargs: object) -> AnyEnv:
        """One environment as the agent sees it, with its wrappers, such as ``make_env(render_mode="human")``."""
        kwargs = {**self.cfg.env.env_kwargs, **env_kwargs}
        return env_factory(env_settings({**self.cfg.env, "env_kwargs": kwargs}))()

    # Saving

    def save(self, path: str | Path, *, learner: bool = True, evaluate: int | None = None) -> Path:
        """Writes a folder to share: weights, settings, a model card and a video; no code and no pickle.

        The folder appears when all of it is written. If the environment cannot be filmed, the video is left out.
        `minding.load` turns it into an agent that acts in the same way, and learns with the same critics, targets and
        moments of the optimizer. To continue training exactly, keep the run folder.

        Args:
          path: a folder that does not exist yet.
          learner: False leaves out what only learning needs, half of the folder or more; a loaded agent then learns
            with new critics and a new optimizer.
          evaluate: number of episodes for the return on the card; 0 leaves it out. By default 100, or 0 without an
            environment (``env.env_id=data``).
        """
        folder = absolute(folder_of(path, "save"))
        if evaluate is None:
            evaluate = 0 if self.cfg.env.env_id == RECORDED else 100
        _check_count("save(evaluate", evaluate, 0)
        clock = self._origin.clock if self._run.folder is None else self._run.clock
        figures = (lambda: self.evaluate(evaluate)) if evaluate else None
        save_policy(folder, self.cfg, self.policy, figures, clock if learner else None)
        return folder

    def close(self) -> None:
        """Closes the environments, and unlocks the run folder; `learn` opens both again.

        The agent can still act. Existing players keep their weights.
        """
        self._end_session()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent({self.cfg.policy.type!r}, {self.cfg.env.env_id!r}, seed={self.cfg.seed})"

    def __str__(self) -> str:
        """The chain: its middleware in the order in which they run."""
        if self._run.session is not None:
            return f"{self!r}\n{self._run.session.task!r}"
        task = Task()
        with task.start(ctx=get_chain(self.cfg.chain).context()):
            build(task, self.cfg, self.policy)
            return f"{self!r}\n{task!r}"


def load(
    path: str | Path,
    env: object = None,
    *,
    learning_rate: float | None = None,
    trust: bool = False,
    progress: bool = True,
) -> Agent:
    """Loads the agent from a folder that `Agent.save` wrote, from a run folder, or from a checkpoint in a run folder.

    From a run folder, ``learn()`` continues the run exactly, in that folder, as `minding resume` does. From a
    checkpoint it continues at that checkpoint, and later checkpoints are set aside. ``learn(steps)`` learns further
    steps; the learning rate then stays where its schedule ended.

    Args:
      path: the folder, or ``zoo/NAME``, an agent that comes with minding.
      env: the environment, if it was a class or function that cannot be imported by name.
      learning_rate: the learning rate with which it learns from now on, by the schedule of its settings.
      trust: whether to run the code that the settings name; see `engine.config.trust`. An environment that is given,
        and classes that this program has passed to an `Agent`, need no trust.
      progress: as in `Agent`.
    Raises:
      ConfigError: the path is not such a folder.
      CheckpointError: the folder is damaged, or belongs to another network.
      TrustError: the settings name other code, and `trust` is false.
    """
    path = zoo.located(folder_of(path, "load"))
    check_readable(path)
    rate = [] if learning_rate is None else [f"policy.learn.learning_rate={learning_rate}"]
    if is_saved(path):
        return _of_saved(path, env, rate, trust, progress)
    is_checkpoint = (path / "manifest.json").is_file() and path.parent.name == "ckpt"
    own = _replaced(env)
    run_dir = RunDir.open(path.parent.parent if is_checkpoint else path, trust=trust, own=own)
    saved = run_dir.load_config()
    check_complete(run_dir.checkpoints, saved, own, run_dir.config)
    cfg = compile_run(_adopted(saved, env), rate)
    agent = Agent.__new__(Agent)
    agent._hold(cfg, progress, check_reach=functools.partial(run_dir.load_config, learns=True))

    def use(found: Checkpoint) -> None:
        with found.reading():
            check_checkpoint(found, cfg, POLICY)
            clock = int(found.manifest[run_length(cfg).unit])
        load_weights(agent.policy, found)
        agent._run = _Run(run_dir, clock, path if is_checkpoint else "latest", clock)

    if is_checkpoint:
        use_checkpoint(path, use)
    else:
        use_newest(run_dir.checkpoints, use)
    if learning_rate is None:
        agent._origin = dataclasses.replace(agent._origin, share=last_rate(cfg, agent._run.clock))
    return agent


def _of_saved(path: Path, env: Any, rate: list[str], trust: bool, progress: bool) -> Agent:
    check_saved(path)
    read = functools.partial(read_foreign, path / CONFIG, trust=trust or zoo.is_agent(path), own=_replaced(env))
    cfg = read(learns=False)
    # The saved weights already include those of `run.begin_from`.
    cfg.run.begin_from = None
    cfg, saved = compile_run(_adopted(cfg, env), rate), trained_steps(path)
    # Agents of the zoo do not say it: they have learned to the end of their run.
    clock = run_length(cfg).steps if saved is None else saved
    share = 1.0 if rate else last_rate(cfg, clock)
    eps = eps_at(cfg.policy.other.eps, clock) if "eps" in cfg.policy.other else None
    agent = Agent.__new__(Agent)
    agent._hold(cfg, progress, share=share, check_reach=read, saved=path, clock=saved, eps=eps)
    agent.policy  # noqa: B018  # raises if the weights do not fit
    return agent


def _replaced(env: object) -> tuple[str, ...]:
    """The settings that loading replaces: a run continues in its folder, from its own checkpoint."""
    return ("run.out_dir", "run.begin_from", *(() if env is None else ("env.env_id",)))


def _adopted(cfg: Config, env: Any) -> Config:
    """The settings with an environment of this program in place of the saved one, if one is given."""
    if env is None:
        return cfg
    env_id = cfg.env.env_id
    if env_id.startswith(env_objects.PREFIX) and (isinstance(env, type) or callable(env)):
        env_objects.adopt(env_id, env)
        return cfg
    cfg.env.update(env_objects.env_settings_of(env))
    return cfg


def _newest_clock(run_dir: RunDir) -> int | None:
    """The clock of the newest checkpoint of a run; None without a checkpoint."""
    found = resumable_checkpoints(run_dir.checkpoints)
    return int(read_manifest(found[-1])[run_length(load_config(run_dir.config)).unit]) if found else None


def _close(session: Session) -> None:
    try:
        session.__exit__(None, None, None)
    finally:
        compiled.release()


def _learn_from(user: Config, dataset: str | Path, alone: bool) -> None:
    """Names the recorded data in the settings; with `alone` there is no environment, unless the settings have one."""
    if not isinstance(dataset, (str, Path)):
        raise ConfigError(
            f"dataset={type(dataset).__name__}: expected a folder of recorded data; save_dataset(path, data) of "
            "minding.engine.data.dataset_writer writes one"
        )
    policy = setting_at(user, "policy", {})
    user["policy"] = {**policy, "other": {**policy.get("other", {}), "data": str(dataset)}}
    env = setting_at(user, "env", {})
    if alone and not env.get("env_id"):
        user["env"] = {**env, "env_id": RECORDED}


_KEYWORDS = ("model", "learn", "collect")
"""Sections of `policy` whose keys are keywords of an agent."""


def _check_count(what: str, value: object, least: int) -> None:
    """Refuses a value that is not a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what}={value!r}): expected an integer of {least} or more (100_000, not 1e5)")
    if value > MOST_COUNT:
        raise ConfigError(f"{what}={value!r}): expected an integer of {MOST_COUNT:,} or less")


def _settings_of(what: object) -> Config:
    """The settings that an agent was given instead of a name."""
    if not isinstance(what, Mapping):
        raise ConfigError(
            f"Agent({what!r}): expected the name of an algorithm or preset, such as 'ppo', or a mapping of settings"
        )
    try:
        return Config(plain(dict(what)))
    except TypeError as error:
        raise ConfigError(f"Agent({{...}}): {error}") from None


def _place_keys(user: Config, keys: Mapping[str, Any]) -> None:
    """Puts keywords where their keys are in the section `policy`."""
    if not keys:
        return
    policy = user.get("policy")
    if not isinstance(policy, dict) or "type" not in policy:
        raise ConfigError(
            "policy.type is missing: Agent takes the name of an algorithm or preset, or settings with policy.type"
        )
    schema = get_algorithm(policy["type"]).config_schema()
    for key, given in keys.items():
        value = _setting(key, given)
        found = [section for section in _KEYWORDS if key in schema.get(section, {})]
        if len(found) != 1:
            schemas = {"": RUN_SCHEMA, "env.": config_schema(), "policy.": schema}
            paths = [path for prefix, each in schemas.items() for path in setting_paths(each, prefix)]
            places = [path for path in paths if path.rpartition(".")[2] == key]
            known = [name for section in _KEYWORDS for name in schema.get(section, {})]
            hint = f"; it is {' and '.join(places)}: use settings=[...]" if places else setting_hint(key, paths)
            raise ConfigError(
                f"{key}={value!r}: no key in policy.model, policy.learn or policy.collect of {policy['type']!r}"
                f"{hint or nearest(key, known) or '; use settings=[...] for other keys'}"
            )
        if found[0] not in user.policy:
            user.policy[found[0]] = {}
        section: Any = user.policy[found[0]]
        nested = not isinstance(schema[found[0]][key], Option) and isinstance(value, Mapping)
        section[key] = {**section.get(key, {}), **value} if nested else value


def _setting(key: str, given: object) -> Any:
    """A keyword's value for the configuration; the user's own code, such as an encoder, is given by its name."""
    code = type if key == "encoder" else (type, types.FunctionType)
    if isinstance(given, code) and given.__module__.partition(".")[0] != "mindspore":
        return name_of_code(given, key)
    if key == "encoder" and not isinstance(given, str | None):
        what = given.__qualname__ if isinstance(given, type) else f"a {type(given).__name__}"
        raise ConfigError(
            f"encoder={what}: expected your own class, as in encoder=MyEncoder, or its name 'module:MyEncoder'; every "
            "network creates its own encoder, MyEncoder(space, model, rng)"
        )
    try:
        return plain(given, key)
    except TypeError as error:
        raise ConfigError(str(error)) from None
