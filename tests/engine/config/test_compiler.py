"""Configuration: defaults, types, ranges, overrides, saved files."""

import copy
import math

import numpy as np
import pytest
from fresh import run_fresh
from hypothesis import given
from hypothesis import strategies as st

from minding.engine import Config, ConfigError
from minding.engine.config.compiler import compile_config, load_config, opt, save_config

ENV_SCHEMA = {
    "env_id": opt("", None, "id"),
    "env_kwargs": opt({}, "open"),
    "collector_env_num": opt(8, "[1, inf)"),
    "backend": opt("auto", ("auto", "sync")),
}


class Ppo:
    name = "ppo"

    @staticmethod
    def config_schema():
        return {
            "model": {"hidden": opt([64, 64], "[1, inf)"), "activation": opt("tanh", ("tanh", "relu"))},
            "learn": {
                "learning_rate": opt(1e-3, "(0, inf)"),
                "batch_size": opt(64, "[1, inf)"),
                "gamma": opt(0.99, "[0, 1]"),
                "grad_norm": opt(0.5, "(0, inf) or None"),
                "target_kl": opt(None, "(0, inf)", type=float),
                "anneal_lr": opt(True),
            },
        }

    @staticmethod
    def setting_hint(name, known):
        return f"; in minding it is {known[0]!r}" if name == "theirs" else ""


def describe(env):
    assert env.env_id == "CartPole-v1"
    return {"observation": {"kind": "box", "shape": (4,), "high": [math.inf]}, "max_episode_steps": 500}


def build(user=None, *overrides):
    return compile_config(user or {"env": {"env_id": "CartPole-v1"}}, Ppo, describe, ENV_SCHEMA, overrides)


def test_what_an_algorithm_needs_of_the_environment_is_turned_on():
    class Team(Ppo):
        needs = ("team_reward",)

    def compile_team(**env):
        settings = {"env": {"env_id": "any", **env}, "policy": {"learn": {"batch_size": 64}}}
        return compile_config(settings, Team, dict, {**ENV_SCHEMA, "team_reward": opt(False)})

    for env in ({}, {"team_reward": True}):
        cfg = compile_team(**env)
        assert cfg.env.team_reward is cfg.env.spec.team_reward is True
    with pytest.raises(ConfigError, match=r"env\.team_reward=False: policy\.type='ppo' needs it"):
        compile_team(team_reward=False)


def learn(**settings):
    return {"env": {"env_id": "CartPole-v1"}, "policy": {"learn": settings}}


def test_overrides_win_over_the_defaults_of_all_parts():
    cfg = build()
    assert cfg.policy.learn.learning_rate == 1e-3
    assert cfg.policy.model.hidden == [64, 64]
    assert cfg.env.collector_env_num == 8
    assert (cfg.seed, cfg.device, cfg.run.out_dir) == (0, "auto", "runs")
    assert (cfg.policy.type, cfg.exp_name) == ("ppo", "CartPole-v1_ppo")
    # What the environment says of itself, in plain types.
    observation = {"kind": "box", "shape": [4], "high": [math.inf]}
    assert cfg.env.spec == {"observation": observation, "max_episode_steps": 500}
    cfg = build(learn(gamma=0.9, batch_size=32), "policy.learn.batch_size=128", "seed=7")
    assert (cfg.policy.learn.gamma, cfg.policy.learn.batch_size, cfg.seed) == (0.9, 128, 7)


def test_overrides_are_yaml_and_take_the_type_of_their_setting():
    cfg = build(
        None,
        "policy.learn.learning_rate=1e-4",
        "policy.learn.batch_size=1e3",
        "policy.model.hidden=[128, 128]",
        "policy.learn.anneal_lr=false",
        "policy.learn.grad_norm=null",
        "run.stop_value=None",
        "env.env_kwargs.gravity=9.8",
        "exp_name=2024",
        "run.out_dir= a: [b #2",
    )
    assert cfg.policy.learn.learning_rate == 1e-4
    assert cfg.policy.learn.batch_size == 1000
    assert cfg.policy.model.hidden == [128, 128]
    assert cfg.policy.learn.anneal_lr is False
    assert cfg.policy.learn.grad_norm is None
    assert cfg.run.stop_value is None
    assert cfg.env.env_kwargs == {"gravity": 9.8}
    assert cfg.exp_name == "2024"
    assert cfg.run.out_dir == "a: [b #2"
    assert build(None, 'run.out_dir="a\\nb "', "exp_name=null").run.out_dir == "a\nb "
    cfg = build(learn(gamma=1, batch_size=np.int64(16), learning_rate=np.float32(0.5)))
    settings = cfg.policy.learn
    assert [type(settings[key]) for key in ("gamma", "batch_size", "learning_rate")] == [float, int, float]
    assert (settings.gamma, settings.batch_size, settings.learning_rate) == (1.0, 16, 0.5)


def test_compiled_configs_share_nothing():
    user = Config(env={"env_id": "CartPole-v1", "env_kwargs": {"size": [1, 2]}})
    before = copy.deepcopy(user)
    first, second = build(user, "seed=3"), build(user)
    first.policy.model.hidden.append(1)
    first.env.env_kwargs.size.append(3)
    first.env.spec.observation.shape.append(5)
    assert user == before
    assert second.policy.model.hidden == [64, 64]
    assert second.env.env_kwargs.size == [1, 2]
    assert second.env.spec.observation.shape == [4]
    assert (first.seed, second.seed) == (3, 0)


def test_a_saved_config_compiles_to_itself(tmp_path):
    cfg = build(learn(learning_rate=1e-5))
    save_config(cfg, tmp_path / "config.yaml")
    assert build(load_config(tmp_path / "config.yaml")) == cfg
    # Without a description the saved spec is kept.
    assert compile_config(build(), Ppo, None, ENV_SCHEMA).env.spec.max_episode_steps == 500


@given(st.integers(-3, 3), st.integers(0, 3), st.booleans(), st.booleans(), st.integers(-8, 8))
def test_intervals_agree_with_comparisons(low, width, low_open, high_open, value):
    high = low + width + 1
    text = f"{'(' if low_open else '['}{low}, {high}{')' if high_open else ']'}"
    option = opt(None, text, type=int)
    allowed = (low < value if low_open else low <= value) and (value < high if high_open else value <= high)
    if allowed:
        assert option.check(value, "x") == value
    else:
        with pytest.raises(ConfigError):
            option.check(value, "x")


def test_compiling_imports_neither_mindspore_nor_gymnasium():
    code = "import sys, minding.engine.config.compiler; print({'mindspore', 'gymnasium'} & set(sys.modules))"
    assert run_fresh(code) == ["set()"]
