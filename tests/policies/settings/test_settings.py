"""Algorithms are found by the names of their files, and told of without MindSpore."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from fakes import tiny_config

import minding.policies
from minding import training
from minding.configs import compile_run
from minding.configs.checks import largest_sizes
from minding.engine import Config, Task
from minding.engine.config.compiler import RUN_SCHEMA, schema_defaults, setting_paths
from minding.engine.config.options import Option, setting_at
from minding.engine.config.space import check_space
from minding.engine.data import batch
from minding.engine.errors import ConfigError, SpaceError, notes_of
from minding.envs import config_schema
from minding.policies import ALGORITHMS, get_algorithm, get_policy_class
from minding.policies.settings import ANY_ACTIONS, SEARCHED
from minding.training.assembly import sizes_named

ROOT = Path(minding.policies.__file__).parent


def test_the_table_is_that_of_the_files():
    variants = {name for name, algorithm in ALGORITHMS.items() if algorithm.variant_of}
    assert variants == {"ippo", "airl", "gail", "trex", "sqil", "discrete_sqil", "matd3"}
    assert {*ALGORITHMS} - variants == {path.stem for path in ROOT.glob("[a-z]*.py")}
    assert list(ALGORITHMS) == sorted(ALGORITHMS)
    for name, algorithm in ALGORITHMS.items():
        assert algorithm is get_algorithm(name)
        assert algorithm.name == name
        assert {"model", "learn", "collect", "eval", "other"} == set(schema_defaults(algorithm.config_schema()))


def test_each_class_is_in_the_file_of_its_name():
    for name, algorithm in ALGORITHMS.items():
        file = algorithm.variant_of or name
        made = getattr(importlib.import_module(f"minding.policies.{file}"), algorithm.class_name)
        assert made.name == file
        assert get_policy_class(name) is made


@pytest.mark.parametrize("kind", ANY_ACTIONS)
def test_a_wrong_action_space_names_algorithms_that_fit(kind):
    for entry in ALGORITHMS.values():
        if kind not in entry.actions:
            with pytest.raises(SpaceError, match=f"a {kind} space: choose another algorithm, such as") as error:
                entry.check_actions({"kind": kind})
            for name in str(error.value).rpartition("such as ")[2].split(", "):
                assert kind in ALGORITHMS[name].actions


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_is_searched_over_valid_values(name):
    schema = {**RUN_SCHEMA, "env": config_schema(), "policy": ALGORITHMS[name].config_schema()}
    space = ALGORITHMS[name].search_space()
    assert check_space(space, schema, name) == space
    assert {"policy.learn.learning_rate", "policy.model.hidden"} <= set(space)


def test_every_searched_setting_belongs_to_an_algorithm():
    spaces = {name: algorithm.search_space() for name, algorithm in ALGORITHMS.items()}
    assert {f"policy.{path}" for path in SEARCHED} == {path for space in spaces.values() for path in space}
    for name, algorithm in ALGORITHMS.items():
        assert {f"policy.{path}" for path in algorithm.searched} <= set(spaces[name])


WITHOUT_MEMORY = {
    *("seed", "pool.freq", "pool.last", "pool.every", "env.max_episode_steps"),
    *(f"run.{name}" for name in ("max_env_step", "max_train_iter", "max_train_epoch", "max_step", "schedule_begin")),
    *(
        "run.metrics_freq",
        "run.ckpt_freq",
        "policy.eval.freq",
        "policy.eval.max_episode_steps",
        "policy.eval.fqe_steps",
    ),
    *("policy.collect.random_steps", "policy.collect.sample_plies", "policy.eval.opening_plies"),
    *("policy.learn.anneal_steps", "policy.learn.policy_delay", "policy.learn.target.freq", "policy.learn.warmup"),
    "policy.learn.renorm_after",
    *("policy.other.eps.decay", "policy.other.priority.beta_steps"),
    *("policy.other.table.limiter_rows", "policy.other.table.max_times_sampled"),
}
"""Integers that only count steps or files, however large they are."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_integer_on_which_memory_depends_has_an_upper_bound(name):
    schema = {**RUN_SCHEMA, "env": config_schema(), "policy": ALGORITHMS[name].config_schema()}
    for path in setting_paths(schema):
        option = setting_at(schema, path)
        if (
            isinstance(option, Option)
            and int in (option.kind, option.element)
            and not isinstance(option.allowed, tuple)
        ):
            bounded = option.allowed is not None and option.allowed.high < float("inf")
            assert bounded != (path in WITHOUT_MEMORY), path


@pytest.mark.parametrize(
    "layer", ["[32, 8]", "[0, 3, 1]", "[100000000, 3, 1]", "[8, -3, 1]", "[8, 3, 0]", "a", "[8.5, 3, 1]"]
)
def test_a_convolution_has_channels_kernel_and_stride(layer):
    user = Config(policy={"type": "ppo"}, env={"env_id": "minding/PixelCatch-v0"})
    with pytest.raises(ConfigError, match=r"^policy\.model\.cnn\[1\]=.*: expected \[channels, kernel, stride\]"):
        compile_run(user, [f"policy.model.cnn=[[8, 3, 1], {layer}]"])
    compile_run(user, ["policy.model.cnn=[[8, 3, 1]]"])


def test_sizes_that_fill_memory_are_told_from_the_largest_on():
    user = Config(policy={"type": "dqn"}, env={"env_id": "CartPole-v1"})
    few = ["run.max_env_step=100000000", "policy.model.hidden=[64, 1024]", "policy.learn.batch_size=100"]
    assert largest_sizes(compile_run(user, [])) == ""
    told = "policy.other.buffer_size=1000000000 (default 50000), policy.model.hidden=[64, 1024] (default [128, 128])"
    cfg = compile_run(user, [*few, "policy.other.buffer_size=1000000000"])
    assert largest_sizes(cfg) == told
    with pytest.raises(MemoryError, match="Unable to allocate") as found, sizes_named(cfg):
        np.empty(1 << 50)
    said = f"lower policy.other.buffer_size=1000000000, or lower what is above its default: {told}"
    assert notes_of(found.value) == [said]


def test_recorded_data_that_fill_memory_can_stay_in_their_file():
    cfg = tiny_config("iql", chain="offline")
    with pytest.raises(MemoryError) as found, sizes_named(cfg):
        raise MemoryError
    assert notes_of(found.value)[0].startswith("set policy.other.data_memory=mapped")


@pytest.mark.parametrize(
    ("algorithm", "setting", "rows"),
    [
        ("dqn", "other.buffer_size", 50_000_000),
        ("qmix", "other.buffer_size", 50_000_000),
        ("maddpg", "other.buffer_size", 50_000_000),
        ("ppo", "collect.n_sample", 51_200_000),
        ("mappo", "collect.n_sample", 51_200_000),
        ("coma", "collect.n_sample", 51_200_000),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_a_run(algorithm, setting, rows, monkeypatch):
    env = "agent_worlds:Parts" if ALGORITHMS[algorithm].agents == "several" else "CartPole-v1"
    cfg = compile_run(
        Config(policy={"type": algorithm}, env={"env_id": env}),
        [f"policy.{setting}={rows}", f"run.max_env_step={rows}", "env.collector_env_num=8", "env.max_episode_steps=9"],
    )
    monkeypatch.setattr(batch, "free_memory", lambda: float(1 << 30))
    message = r"^([\d,]+) rows of ([\d,]+) bytes take .* GiB, and 1.0 GiB are free: at most ([\d,]+) rows fit"
    with pytest.raises(MemoryError, match=message) as found, sizes_named(cfg), Task().start() as task:
        training.build(task, cfg)
    numbers = re.match(message, str(found.value)).groups()
    count, size, fitting = (int(number.replace(",", "")) for number in numbers)
    agents = cfg.env.spec.num_agents if algorithm == "mappo" else 1
    assert count == rows * agents
    assert fitting == pytest.approx((1 << 30) / size, rel=0.1)
    assert f"policy.{setting}={rows}" in notes_of(found.value)[0]


def test_a_gigabyte_of_rows_is_told(caplog):
    layout = batch.RowLayout({"number": batch.Field((1 << 18,))})
    assert batch.free_memory() > 0
    with caplog.at_level("INFO", "minding"):
        layout.check_memory(1023)
        assert not caplog.messages
        layout.check_memory(1024)
    assert caplog.messages == ["1,024 rows of 1,048,576 bytes take 1.0 GiB of memory"]
