"""Names of DI-engine answer with ours."""

import importlib
import re
import subprocess
import sys

import pytest
from test_docs import DOCS, table

import minding
from minding.di_engine import MODULES, NAMES

PACKAGES = [
    "minding", "minding.engine", "minding.engine.buffers", "minding.envs", "minding.middleware", "minding.policies",
    "minding.policies.rewards",
]  # fmt: skip
"""Those that answer for DI-engine's names."""
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
"""
"""What scripts for DI-engine begin with, in its packages and, by a guess, in ours."""


@pytest.mark.parametrize("line", SCRIPT.strip().splitlines())
def test_an_import_of_di_engine_says_what_is_here(line):
    with pytest.raises(ImportError, match=r"DI-engine\. In minding: .*docs/from_di_engine.md"):
        exec(line.replace("ding", "minding", 1), {})  # noqa: S102


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


def test_every_middleware_of_di_engine_on_the_page_is_here_or_answered():
    theirs = {row[0].strip("`") for row in table(DOCS / "from_di_engine.md", "DI-engine")}
    theirs = {name for name in theirs if name.isidentifier()}
    assert len(theirs) > 20
    assert sorted(theirs - set(dir(minding.middleware)) - set(NAMES)) == []


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
