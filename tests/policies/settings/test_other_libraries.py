"""Names of other libraries' settings and algorithms answer with ours."""

import re

import pytest
from pages import ROOT

import minding
from minding.configs import compile_run, load_named
from minding.engine.config.compiler import setting_paths
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.errors import ConfigError
from minding.policies import ALGORITHMS
from minding.policies.settings.other_libraries import _NEAREST, _SAME, SETTINGS, relative


@pytest.mark.parametrize(
    ("algorithm", "settings", "hint"),
    [
        ("ppo", ["policy.learn.ent_coef=0.1"], "in minding it is 'policy.learn.entropy_weight'"),
        ("sac", ["ent_coef=0.1"], "in minding it is 'policy.learn.alpha' (policy.learn.auto_alpha tunes it)"),
        ("ppo", ["policy.learn.n_steps=8"], "'policy.collect.n_sample' (over all environments, n_steps times env.coll"),
        ("ppo", ["policy.learn.batch_size=8"], "'policy.learn.n_minibatch' (a rollout's steps divided by the batch"),
        ("dqn", ["batch_size=8"], "did you mean 'policy.learn.batch_size'?"),
        ("dqn", ["policy.model.net_arch=[8]"], "in minding it is 'policy.model.hidden'"),
        ("dqn", ["total_timesteps=8"], "in minding it is 'run.max_env_step'"),
        ("ppo", ["policy.learn.clip_range=0.1"], "in minding it is 'policy.learn.clip_ratio'"),
        ("dqn", ["lr=0.1"], "in minding it is 'policy.learn.learning_rate'"),
        ("dqn", ["callback=x"], "in minding it is 'use' (your own middleware)"),
        ("bcq", [], "the nearest relative of bcq is 'td3_bc'"),
        ("td3bc", [], "did you mean 'td3_bc'?"),
        ("ddqn", [], "here it is 'dqn' (policy.learn.double=true, the default)"),
        ("ars", [], "ars is missing: see docs/algorithms/coverage.md"),
    ],
)
def test_settings_and_algorithms_of_others_name_ours(algorithm, settings, hint):
    with pytest.raises(ConfigError) as error:
        compile_run({"env": {"env_id": "Pendulum-v1"}, "policy": {"type": algorithm}}, settings)
    assert hint in str(error.value)
    if not settings:
        with pytest.raises(ConfigError, match=r"relative|here it is|is missing|did you mean"):
            load_named(algorithm)


@pytest.mark.parametrize(
    ("algorithm", "key", "hint"),
    [
        ("ppo", "n_steps", "'policy.collect.n_sample'"),
        ("ppo", "policy_kwargs", "'policy.model.hidden'"),
        ("dqn", "buffer_size", "it is policy.other.buffer_size: use settings=[...]"),
        ("dqn", "exploration_fraction", "'policy.other.eps.decay' (environment steps)"),
    ],
)
def test_keywords_of_other_libraries_name_ours(algorithm, key, hint):
    with pytest.raises(ConfigError, match=re.escape(hint)):
        minding.Agent(algorithm, "CartPole-v1", **{key: 1})
    with pytest.raises(ConfigError, match="the observation decides the network: give an algorithm, such as 'ppo'"):
        minding.Agent("MlpPolicy", "CartPole-v1")


def test_answers_are_ours_and_what_they_answer_for_is_not():
    known = {path for each in ALGORITHMS.values() for path in setting_paths(each.config_schema(), "policy.")}
    known |= set(setting_paths(Config.options()))
    assert {answer.partition(": ")[0] for each in SETTINGS.values() for answer in each} <= known
    assert {ours for ours, _ in _SAME.values()} | _NEAREST.keys() <= {*ALGORITHMS, ""}
    theirs = [*_SAME, *" ".join(_NEAREST.values()).split()]
    assert len({*theirs}) == len(theirs)
    assert not {*theirs} & {name.replace("_", "") for name in ALGORITHMS}
    for name, (ours, remark) in _SAME.items():
        for setting in re.findall(r"policy\.([\w.]+)", remark):
            # A remark without an algorithm is about those for recorded data.
            assert setting_at(ALGORITHMS[ours or "iql"].config_schema(), setting) is not None, name


@pytest.mark.parametrize("spelling", ["BCQ", "bcq", "TD3+BC", "td3_bc", "Discrete-CQL", "QR-DQN", "DDQN"])
def test_a_counterpart_is_found_whatever_the_spelling(spelling):
    assert any(f"{name!r}" in relative(spelling, ALGORITHMS) for name in ALGORITHMS)
    assert relative("no such algorithm", ALGORITHMS) == ""


def test_the_page_on_stable_baselines3_has_the_same_answers():
    sections = (ROOT / "docs" / "from_stable_baselines3.md").read_text().split("\n## ")
    (settings,) = [text for text in sections if "n_epochs" in text]
    rows = [line.split(" | ") for line in settings.splitlines() if line.startswith("| `")]
    answered = [(name, here) for theirs, here in rows for name in re.findall(r"`(\w+)`", theirs) if name in SETTINGS]
    assert len(answered) > 10
    for name, here in answered:
        assert any(answer.partition(": ")[0] in here for answer in SETTINGS[name]), name
