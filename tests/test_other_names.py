"""Names of other libraries answer with ours."""

import importlib
import re
import subprocess
import sys

import pytest
from pages import ROOT, table

import minding
from minding.configs import compile_run, load_named
from minding.engine.config.compiler import setting_paths
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.errors import ConfigError
from minding.other_algorithms import ANSWERS, LIBRARIES, OTHER_SPELLINGS, counterpart
from minding.other_names import ARGUMENTS, MODULES, NAMES, SETTINGS, relative
from minding.policies import ALGORITHMS

PACKAGES = [
    "minding", "minding.engine", "minding.engine.buffers", "minding.envs", "minding.middleware", "minding.policies",
    "minding.policies.rewards",
]  # fmt: skip
"""Those that answer for names of other libraries."""
SCRIPT = """
from ding.bonus import PPOF
from ding.config import compile_config
from ding.data import DequeBuffer
from ding.envs import BaseEnvManagerV2, DingEnvWrapper, SubprocessEnvManagerV2
from ding.framework import ding_init, task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import CkptSaver, ContextExchanger, OffPolicyLearner, StepCollector
from ding.middleware import HERLearner, wandb_online_logger
from ding.model import DQN, VAC
from ding.policy import DQNPolicy
from ding.policies import PPOPolicy
from ding.reward_model import RndRewardModel
from ding.utils import set_pkg_seed
from ding.policies import BCQ
from mindspore_rl.algorithm.ppo.ppo_session import PPOSession
from mindspore_rl.core import Session
from mindspore_rl.environment import GymEnvironment
from mindspore_rl.network import FullyConnectedNet
from mindspore_rl.policies import EpsilonGreedyPolicy
from mindspore_rl.policy import policy
from mindspore_rl.utils import CheckpointCallback
"""
"""What scripts for DI-engine and MindSpore RL begin with, in their packages and, by a guess, in ours."""


@pytest.mark.parametrize("line", SCRIPT.strip().splitlines())
def test_an_import_of_another_library_says_what_is_here(line):
    with pytest.raises(ImportError, match=r"\. In minding: .*docs/from_\*.md"):
        exec(re.sub("ding|mindspore_rl", "minding", line, count=1), {})  # noqa: S102


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_answered_wherever_it_is_asked_for(name):
    for package in PACKAGES:
        with pytest.raises(ImportError, match=re.escape(NAMES[name])):
            getattr(importlib.import_module(package), name)


def test_what_answers_name_is_there():
    for text in [*NAMES.values(), *MODULES.values()]:
        for module in re.findall(r"minding(?:\.[a-z_]+)+", text):
            importlib.import_module(module) if not module.endswith(".train") else None
        for name, module in re.findall(r"(\w+)(?:\([^()]*\))? of (minding\.[a-z_.]*[a-z])", text):
            if name not in ("buffers", "models"):
                assert hasattr(importlib.import_module(module), name), text


def test_every_middleware_of_di_engine_is_here_or_answered():
    theirs = {row[0].strip("`") for row in table(ROOT / "docs" / "from_di_engine.md", "DI-engine")}
    theirs = {name for name in theirs if name.isidentifier()}
    assert len(theirs) > 20
    assert sorted(theirs - set(dir(minding.middleware)) - set(NAMES)) == []


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
        ("ars", [], "random search without gradients is missing"),
    ],
)
def test_settings_and_algorithms_of_other_libraries_name_ours(algorithm, settings, hint):
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


def test_answers_for_other_names_point_to_ours():
    known = {path for each in ALGORITHMS.values() for path in setting_paths(each.config_schema(), "policy.")}
    known |= set(setting_paths(Config.options()))
    answers = {answer.partition(": ")[0] for each in SETTINGS.values() for answer in each}
    assert answers <= known
    assert relative("BCQ") == relative("bcq").replace("bcq", "BCQ") != ""
    assert not OTHER_SPELLINGS.keys() & ALGORITHMS.keys()


def test_the_page_on_stable_baselines3_has_the_same_answers():
    sections = (ROOT / "docs" / "from_stable_baselines3.md").read_text().split("\n## ")
    (settings,) = [text for text in sections if "n_epochs" in text]
    rows = [line.split(" | ") for line in settings.splitlines() if line.startswith("| `")]
    answered = [(name, here) for theirs, here in rows for name in re.findall(r"`(\w+)`", theirs) if name in SETTINGS]
    assert len(answered) > 10
    for name, here in answered:
        assert any(answer.partition(": ")[0] in here for answer in SETTINGS[name]), name


def test_arguments_of_other_libraries_models_name_ours():
    agent = minding.Agent("ppo", "CartPole-v1")
    for method in (agent.learn, agent.evaluate, lambda **more: agent.predict([0.0] * 4, **more)):
        for name, answer in ARGUMENTS.items():
            with pytest.raises(ConfigError, match=re.escape(f"({name}=...): {answer}")):
                method(**{name: 1})
    with pytest.raises(ConfigError, match=r"learn\(nothing=...\): there is no such argument"):
        agent.learn(nothing=1)


@pytest.mark.parametrize("package", PACKAGES)
def test_other_names_are_plain_errors(package):
    module = importlib.import_module(package)
    assert not hasattr(module, "nothing")
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_other_modules_are_plain_errors():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'minding.nothing'"):
        importlib.import_module("minding.nothing")


def test_importing_minding_stays_light():
    code = "import sys, minding; print([name for name in ('numpy', 'mindspore', 'gymnasium') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_counterparts_of_other_libraries_algorithms_exist():
    named = {name for names in LIBRARIES.values() for name in names.split()}
    assert named <= ANSWERS.keys()
    for name, answer in ANSWERS.items():
        assert answer.ours in ALGORITHMS or (answer.ours == "" and answer.remark), name
        assert answer.same or answer.remark, f"{name} says what is missing"
        for setting in re.findall(r"policy\.([\w.]+)", answer.remark):
            # A remark without an algorithm is about those for recorded data.
            schema = ALGORITHMS[answer.ours or "iql"].config_schema()
            assert setting_at(schema, setting) is not None, f"{name}: policy.{setting}"
    assert set(OTHER_SPELLINGS.values()) <= ANSWERS.keys()


@pytest.mark.parametrize("spelling", ["BCQ", "bcq", "TD3+BC", "td3_bc", "Discrete-CQL", "QR-DQN", "DDQN"])
def test_a_counterpart_is_found_whatever_the_spelling(spelling):
    assert counterpart(spelling).ours in ALGORITHMS
    assert counterpart("no such algorithm") is None


def test_a_module_of_an_algorithm_is_imported_from_its_package():
    """In a fresh interpreter: the name of an algorithm is also one that the answers to other names would know."""
    code = "from minding.policies import sac, dqn; print(sac.__name__, dqn.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    # MindSpore may print its settings, too.
    assert "minding.policies.sac minding.policies.dqn" in done.stdout, done.stderr
