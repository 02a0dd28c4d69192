"""Every algorithm at its defaults: one of each chain learns, and all read every key of the configuration."""

import dataclasses
import functools

import pytest
from fakes import IMAGE, VECTOR, dict_of
from of_algorithms import constant, environment, has, is_offline, length, recorded
from test_contract import batches_of, random_batch

from minding import training
from minding.cli.summary import print_summary
from minding.configs import compile_run
from minding.configs.chains import get_chain
from minding.engine import Config, Role, RunDir, Task
from minding.engine.chain.pipeline import all_leaves, chain_nodes
from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.config.options import Option
from minding.engine.config.section import Section
from minding.engine.lanes.options import default_staleness
from minding.engine.run.pool import ModelPool
from minding.envs import config_schema
from minding.policies import ALGORITHMS, get_policy_class


class Recording(Config):
    """A configuration that notes the paths of keys that are read one by one; copying it as a whole does not count."""

    def __init__(self, values, read, path=""):
        dict.__setattr__(self, "_note", lambda key: read.add(path + key))
        for key, value in values.items():
            if isinstance(value, dict):
                # Of the same class: it has values for absent settings.
                kind = type("Recording", (Recording, type(value)), {}) if type(value) is not Section else Recording
                value = kind(value, read, f"{path}{key}.")
            dict.__setattr__(self, key, value)
            dict.__setitem__(self, key, value)

    def __getattribute__(self, name):
        get = dict.__getattribute__
        if dict.__contains__(self, name):
            get(self, "_note")(name)
        return get(self, name)

    def __getitem__(self, key):
        self._note(key)
        return dict.__getitem__(self, key)

    def get(self, key, default=None):
        if key in self:
            self._note(key)
        return dict.get(self, key, default)


def leaves(schema, prefix=""):
    for key, node in schema.items():
        if isinstance(node, Option):
            yield f"{prefix}{key}"
        else:
            yield from leaves(node, f"{prefix}{key}.")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(algorithm) -> what came of a run of it at its defaults, and the keys that were read; each is made once."""

    @functools.cache
    def make(algorithm):
        read = set()
        return train(algorithm, read, tmp_path_factory.mktemp(algorithm)), read

    return make


def steps_of(algorithm):
    """Of a run; from recorded data each is a gradient step of full size."""
    return 8 if is_offline(algorithm) else 1024


def configure(algorithm, read, *overrides):
    user = Config(env={"env_id": environment(algorithm)}, policy={"type": algorithm})
    return Recording(
        compile_run(user, [*length(algorithm, steps_of(algorithm)), "run.final_episodes=1", *overrides]), read
    )


def train(algorithm, read, folder, *overrides):
    cfg = configure(algorithm, read, f"run.out_dir={folder}", *overrides)
    return training.train(cfg, RunDir.create(cfg), progress=True)


def build(algorithm, read, folder, *overrides):
    """Builds policy and chain as a run does, and what an update is given; compiles nothing."""
    cfg, task = configure(algorithm, read, f"run.out_dir={folder}", *overrides), Task()
    with task.start(ctx=get_chain(cfg.chain).context()):
        policy = training.build(task, cfg)
        task.run(max_step=0)
        learners = [leaf.middleware for leaf in all_leaves(chain_nodes(task.members)) if leaf.role is Role.LEARN]
        stated = get_chain(cfg.chain).learner
        assert stated is None or default_staleness([stated]) == default_staleness(learners)
    batch = random_batch(batches_of(policy))
    if has(algorithm, "learn.horizon") and batch.index.ndim == 2:
        # Sequences of one transition.
        batch = dataclasses.replace(batch, index=batch.index[:, None])
    elif has(algorithm, "learn.train_ratio"):
        # Sequences of full length: a model is unrolled for a part of them.
        batch = dataclasses.replace(batch, index=batch.index.repeat(8, axis=1)[:, : policy.cfg.learn.length])
    policy.inputs(batch, 0.0)


ONE_OF_EACH = {each.chain: name for name, each in reversed(ALGORITHMS.items())}
"""An algorithm of each chain; `contract/test_resume.py` runs them in other kinds of environments."""


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("algorithm", ONE_OF_EACH.values())
def test_an_algorithm_learns_given_only_an_environment(algorithm, run):
    summary, _ = run(algorithm)
    assert max(summary.env_step, summary.train_iter) >= steps_of(algorithm)
    assert summary.train_iter > 0


@pytest.fixture(scope="module")
def late(run, tmp_path_factory):
    """The keys that middleware reads when it runs, such as those of schedules; policies read theirs when built."""
    keys = set()
    for name in ONE_OF_EACH.values():
        built = set()
        build(name, built, tmp_path_factory.mktemp(name))
        keys |= run(name)[1] - built
    return keys


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_key_of_an_algorithm_is_read_by_it(algorithm, late, tiny_config, tmp_path):
    read = set(late)
    build(algorithm, read, tmp_path)
    if alternatives := constant(algorithm, "ALTERNATIVES", ()):
        (train if has(algorithm, "learn.kl_aim") else build)(algorithm, read, tmp_path, *alternatives)
    if has(algorithm, "other.rnd"):
        build(algorithm, read, tmp_path, "policy.other.rnd.weight=0.5", "policy.other.icm.weight=0.5")
    if has(algorithm, "eval.target_return"):
        # It depends on the data, which the first update has.
        train(algorithm, read, tmp_path)
    if has(algorithm, "model.memory"):
        build(algorithm, read, tmp_path, "policy.model.memory=gtrxl")
    if has(algorithm, "eval.fqe"):
        build(algorithm, read, tmp_path, "policy.eval.fqe=true")
    if has(algorithm, "other.table"):
        table = {"sampler": "prioritized", "limiter": "ratio", "limiter_rows": 1000, "limiter_error": 100_000}
        changes = [f"policy.other.table.{key}={value}" for key, value in table.items()]
        build(algorithm, read, tmp_path, "policy.other.replay=table", *changes)
    if has(algorithm, "other.hindsight"):
        goals = "BitFlip" if "discrete" in ALGORITHMS[algorithm].actions else "PointReach"
        build(algorithm, read, tmp_path, "chain=hindsight", f"env.env_id=minding/{goals}-v0", "policy.learn.nstep=1")
    if has(algorithm, "other.data_share"):
        data = recorded(environment(algorithm))
        extra = ["chain=prior_data", f"policy.other.data={data}", "policy.learn.nstep=1"]
        extra += ["policy.other.replay=uniform"] if has(algorithm, "other.replay") else []
        build(
            algorithm, read, tmp_path, *(each for each in extra if "nstep" not in each or has(algorithm, "learn.nstep"))
        )
    if has(algorithm, "collect.search"):
        # Films and exported policies play in the environment, evaluations do not.
        read.add("policy.eval.max_episode_steps")
    images = dict_of(image=IMAGE, speed=VECTOR)
    get_policy_class(algorithm)(Recording(tiny_config(algorithm, images), read))
    keys = leaves(ALGORITHMS[algorithm].config_schema(), "policy.")
    assert [key for key in keys if key not in read] == []


@pytest.mark.slow
def test_every_key_of_runs_and_environments_is_read(run, tmp_path):
    read = set().union(*(run(name)[1] for name in ONE_OF_EACH.values()))
    # What `minding train` prints and draws of a run that has ended.
    ended, _ = run("ppo")
    print_summary(configure("ppo", read), RunDir.open(ended.run_dir), ended, draw=True)
    league = ("league.opponents=[red_0,red_1,red_2]", "pool.freq=1")
    duel = ("env.env_id=minding/Duel-v0", "env.info_keys=[score]", "policy.collect.n_sample=160")
    build("ppo", read, tmp_path, "chain=league", *league, *duel)
    # Only of runs that have one.
    ModelPool.of(configure("ppo", read))
    # The section `lanes` is taken as a whole.
    read.update(leaves(RUN_SCHEMA["lanes"], "lanes."))
    keys = [*leaves(RUN_SCHEMA), *leaves(config_schema(), "env.")]
    assert [key for key in keys if key not in read] == []
