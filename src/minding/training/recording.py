"""Records the steps of a run's policy in evaluation environments."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.configs import compile_saved
from minding.engine.config.config import Config
from minding.engine.config.identity import identity
from minding.engine.data import obs_trees
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.dataset import Dataset, joined, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.description import describe
from minding.engine.data.episode import Episode
from minding.engine.data.references import References, carrying
from minding.engine.errors import DataError
from minding.engine.run.run_dir import RunDir
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, CollectMode, EnvManager, EnvStep, Obs, Policy, TakesReward
from minding.envs import make_evaluator_env
from minding.envs.config import check_playable
from minding.envs.random_play import RandomPlay
from minding.middleware.eps_greedy import eps_at
from minding.training.assembly import make_policy
from minding.training.loading import load_policy

Act = Callable[[Obs], Array]
"""Function from observations ``(N, ...)`` to actions in the environment's units."""


def _ignored(reward: Array) -> None:
    """Rewards do not matter to most policies."""


def record_data(
    run: RunDir | str | Path,
    steps: int,
    out: str | Path | None = None,
    *,
    ckpt: str | Path | None = None,
    explore: bool = False,
    seed: int | None = None,
    references: References | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Dataset:
    """Records environment steps of a run's policy, and saves them.

    Args:
      run: the run folder.
      steps: number of environment steps to record; up to one more may be recorded for each environment.
      out: the folder of the data; ``<run>/data`` by default.
      ckpt: the checkpoint folder of the policy; the newest by default.
      explore: whether to act with exploration, as during collection.
      seed: seed of the environments; the run's own by default.
      references: reference returns to store with the data.
      report: function that is called with the number of steps recorded so far.

    Returns:
      The data, read back from the folder.

    Raises:
      CheckpointError: if there is no undamaged checkpoint, or it belongs to another network.
      DataError: if several agents act in the run's environment, or the folder exists or cannot be written.
      TrustError: if the run folder names code that is not the user's own.
    """
    run = run if isinstance(run, RunDir) else RunDir.open(run)
    folder = run.products / "data" if out is None else out
    check_recordable(compile_saved(run))
    cfg, policy, found = load_policy(run, ckpt)
    act: Act
    mode: Any = policy.eval_mode
    act, mode = _exploring(cfg, policy) if explore else (mode.forward, mode)
    seed = cfg.seed if seed is None else seed
    made_by = {"policy": {"identity": identity(cfg), "checkpoint": found.name, "explore": explore}}
    env = make_evaluator_env(Config({**cfg, "seed": seed}), "env.record")
    about = carrying({**made_by, "seed": seed}, references)
    take_reward = mode.take_reward if isinstance(mode, TakesReward) else _ignored
    return _record(cfg, env, act, mode.reset, steps, folder, about, report, take_reward)


def record_random(
    cfg: Config,
    steps: int,
    out: str | Path,
    *,
    seed: int | None = None,
    references: References | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Dataset:
    """Records random actions, and saves them, in the environment of a compiled configuration; the other arguments are
    as in `record_data`."""
    check_recordable(cfg)
    seed = cfg.seed if seed is None else seed
    env = make_evaluator_env(Config({**cfg, "seed": seed}), "env.record")
    play = RandomPlay(env, cfg.env.spec, SeedStreams(seed).integers("record.random", 1)[0])
    adapter, about = ActionAdapter(cfg.env.spec.env_action), {"player": "random actions", "seed": seed}
    act: Act = lambda obs: adapter(play.action())  # noqa: E731
    return _record(cfg, env, act, lambda *ids: None, steps, out, carrying(about, references), report)


def _record(
    cfg: Config,
    env: EnvManager,
    act: Act,
    reset: Callable[..., None],
    steps: int,
    out: str | Path,
    about: Mapping[str, Any],
    report: Callable[[int], None],
    take_reward: Callable[[Array], None] = _ignored,
) -> Dataset:
    """Plays in `env`, closes it, saves the steps and reads them back."""
    try:
        kwargs = {**cfg.env.env_kwargs, **cfg.env.evaluator_kwargs}
        described = describe({**cfg.env, "env_kwargs": kwargs})
        data = play_recorded(act, reset, env, steps, {"env": described, **about}, report, take_reward)
    finally:
        env.close()
    save_dataset(out, data)
    return load_dataset(out)


def check_recordable(cfg: Config) -> None:
    """Refuses a run whose steps cannot be recorded, without an environment or with several agents in it, before
    anything is loaded or played."""
    check_playable(cfg.env)
    spec = cfg.env.spec
    if "agents" in spec:
        raise DataError(
            f"{cfg.env.env_id} has {len(spec.agents.names)} agents, but recorded data hold the steps of one agent, "
            "and no algorithm learns from recorded data of several; give the run of an environment with one agent"
        )


def _exploring(cfg: Config, trained: Policy) -> tuple[Act, CollectMode]:
    """A function that acts as in collection, and its mode, with the share of random actions at the end of training."""
    policy = make_policy(cfg, modes=("collect",))
    policy.load_state_dict(trained.state_dict())
    mode, adapter = policy.collect_mode, ActionAdapter(cfg.env.spec.env_action)
    kwargs = {"eps": eps_at(cfg.policy.other.eps, math.inf)} if "eps" in cfg.policy.other else {}
    return lambda obs: adapter(mode.forward(obs, **kwargs)["action"]), mode


def play_recorded(
    act: Act,
    reset: Callable[..., None],
    env: EnvManager,
    steps: int,
    about: Mapping[str, Any],
    report: Callable[[int], None] = lambda done: None,
    take_reward: Callable[[Array], None] = _ignored,
) -> Dataset:
    """Plays and records the same number of steps in each environment. The running episode of each environment is cut at
    the end: keeping only complete episodes would favor short ones."""
    obs = env.reset()
    reset()
    lanes = [_Lane() for _ in range(env.num_envs)]
    recorded = 0
    while recorded < steps:
        action = act(obs)
        step = env.play(action)
        for n, lane in enumerate(lanes):
            if step.valid is None or step.valid[n]:
                lane.add(n, obs, action, step)
                recorded += 1
        take_reward(step.team_reward)
        begun = step.begun()
        if begun is not None:
            reset(begun)
        obs = step.obs
        report(recorded)
    for n, lane in enumerate(lanes):
        lane.end(_row(obs, n))
    return joined([episode for lane in lanes for episode in lane.episodes], about)


class _Lane:
    """The episodes recorded in one environment."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self._steps: list[tuple[dict[str, Array], Array, np.float32]] = []

    def add(self, n: int, obs: Obs, action: Array, step: EnvStep) -> None:
        """Adds row `n` of a step of all environments."""
        self._steps.append((_row(obs, n), np.array(action[n]), np.float32(step.reward[n])))
        terminated, truncated = bool(step.terminated[n]), bool(step.truncated[n])
        if terminated or truncated:
            self.end(_row(step.next_obs, n), terminated, truncated)

    def end(self, final_obs: dict[str, Array], terminated: bool = False, truncated: bool = False) -> None:
        """Ends the running episode, if it has a step, before `final_obs`."""
        if self._steps:
            rows, actions, rewards = zip(*self._steps, strict=True)
            obs = {path: np.stack([row[path] for row in rows]) for path in final_obs}
            self.episodes.append(Episode(obs, final_obs, np.stack(actions), np.array(rewards), terminated, truncated))
            self._steps = []


def _row(obs: Obs, n: int) -> dict[str, Array]:
    return {path: np.array(leaf[n]) for path, leaf in obs_trees.leaves(obs)}
