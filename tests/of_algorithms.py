"""What tests know of each algorithm: from its settings, and from constants of its test file.

``tests/policies/test_<name>.py`` holds

- ``CONTRACT``: cases of the contract table, by name: (observation, action, overrides);

and may hold

- ``LEARNS``: settings with which it learns the probe of ``test_learning.py``: one of those that share a chain and a
  target, whose formulas the file itself checks;
- ``RESUMES``: cases of ``contract/test_resume.py``, by name: (environment, overrides); its defaults if not given, none
  where the contract table (`test_a_policy_that_has_learned_continues_from_a_state`) has all that is its own in
  a chain that another algorithm resumes;
- ``MOVES``: settings with which every gradient step moves the network that acts, unless the defaults do;
- ``BOOTSTRAPS``: False for an algorithm that learns nothing from beyond a time limit;
- ``ALTERNATIVES``: settings of a further run, for keys that the defaults leave unread.
"""

import atexit
import functools
import importlib
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.config.options import setting_at
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.description import describe
from minding.envs import make_evaluator_env
from minding.policies import get_algorithm
from minding.training.recording import play_recorded

SMALL = (
    "run.final_episodes=2",
    "run.loggers=[]",
    "env.collector_env_num=4",
    "env.evaluator_env_num=2",
    "env.max_episode_steps=30",
    "policy.model.hidden=[16]",
    "policy.eval.n_episode=3",
)
"""Settings that make any run small."""


def constant(algorithm, name, *default):
    """A constant of the algorithm's test file; without a default it must be there."""
    return getattr(importlib.import_module(f"test_{algorithm}"), name, *default)


def environment(algorithm):
    """The id of a small environment that it can act in."""
    if get_algorithm(algorithm).agents == "several":
        return "agent_worlds:Parts"
    if plays_itself(algorithm):
        return "minding/TicTacToe-v0"
    if get_algorithm(algorithm).actions == ("composite",):
        return "minding/Aim-v0"
    return "CartPole-v1" if "discrete" in get_algorithm(algorithm).actions else "Pendulum-v1"


def has(algorithm, path):
    """Whether the algorithm has a key, such as ``learn.n_epoch``."""
    return setting_at(get_algorithm(algorithm).config_schema(), path) is not None


def is_offline(algorithm):
    """Whether it learns from recorded data."""
    return get_algorithm(algorithm).unit == "train_iter"


def plays_itself(algorithm):
    """Whether it learns board games by playing against itself."""
    return get_algorithm(algorithm).chain == "self_play"


def imitates(algorithm):
    """Whether it learns from recorded data what to do in an environment."""
    return get_algorithm(algorithm).chain in ("recorded_reward", "sqil")


@functools.cache
def recorded(env_id, steps=300):
    """The folder of random play in an environment."""
    cfg = compile_run(Config(env={"env_id": env_id, "evaluator_env_num": 2}, policy={"type": "ppo"}))
    env, rng = make_evaluator_env(cfg, "random"), np.random.default_rng(0)
    space = cfg.env.spec.env_action

    def act(obs):
        if space.kind == "box":
            return rng.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)
        if space.kind == "composite":
            joined = (rng.integers(0, space.nvec, (2, len(space.nvec))), rng.uniform(space.low, space.high, (2, 1)))
            return np.concatenate(joined, axis=1, dtype=np.float32)
        return rng.integers(0, space.n, 2)

    folder = Path(tempfile.mkdtemp(prefix="recorded-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    save_dataset(folder / "data", play_recorded(act, lambda *ids: None, env, steps, {"env": describe(cfg.env)}))
    env.close()
    return folder / "data"


def length(algorithm, steps, env_id=None):
    """Settings of a run of so many steps of its clock, with what it learns from."""
    if is_offline(algorithm):
        return f"run.max_train_iter={steps}", f"policy.other.data={recorded(env_id or environment(algorithm))}"
    return f"run.max_env_step={steps}", *imitated(algorithm, env_id)


def imitated(algorithm, env_id=None):
    """Settings of what it imitates, if it does."""
    if not imitates(algorithm):
        return ()
    models = [name for name in ("gail", "airl", "trex") if has(algorithm, f"other.{name}")]
    small = [f"policy.other.{name}.{key}" for name in models for key in ("batch_size=16", "n_update=2")]
    return (f"policy.other.data={recorded(env_id or environment(algorithm))}", *small)


def different(found, expected):
    """The names under which two outcomes of runs differ."""
    return sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))


def short_run(algorithm):
    """Settings of a run of some seconds with many checkpoints; a replay buffer wraps."""
    if is_offline(algorithm):
        return (
            *length(algorithm, 16),
            "run.ckpt_freq=2",
            "run.metrics_freq=5",
            "policy.learn.batch_size=32",
            "policy.learn.steps_per_call=2",
            "policy.eval.freq=8",
        )
    if has(algorithm, "other.buffer_size"):
        # Sequences that an episode fills; imagination, where there is any, does not go far.
        imagined = (
            "policy.learn.length=8",
            "policy.learn.train_ratio=8",
            "policy.learn.horizon=2",
            "policy.learn.starts=8",
        )
        return (
            *length(algorithm, 176),
            *(imagined if has(algorithm, "learn.horizon") else ()),
            "run.ckpt_freq=3",
            "run.metrics_freq=50",
            "policy.collect.n_sample=16",
            "policy.learn.batch_size=16",
            "policy.learn.update_per_collect=1",
            "policy.learn.warmup=48",
            "policy.eval.freq=80",
            "policy.other.buffer_size=100",
        )
    updates = {"n_epoch": 1, "n_minibatch": 2}
    updates = {key: count for key, count in updates.items() if has(algorithm, f"learn.{key}")}
    return (
        *length(algorithm, 384),
        "run.metrics_freq=100",
        # Every second iteration.
        f"run.ckpt_freq={2 * math.prod(updates.values())}",
        "policy.collect.n_sample=64",
        "policy.eval.freq=150",
        *(f"policy.learn.{key}={count}" for key, count in updates.items()),
    )
