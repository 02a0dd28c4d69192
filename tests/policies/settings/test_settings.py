"""Algorithms are found by the names of their files, and told of without MindSpore."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import minding.policies
from minding.engine.config.compiler import RUN_SCHEMA, schema_defaults
from minding.engine.config.space import check_space
from minding.envs import config_schema
from minding.policies import ALGORITHMS, get_algorithm, get_policy_class
from minding.policies.settings import SEARCHED

ROOT = Path(minding.policies.__file__).parent


def test_the_table_is_that_of_the_files():
    variants = {name for name, algorithm in ALGORITHMS.items() if algorithm.variant_of}
    assert variants == {"ippo", "gail", "sqil", "discrete_sqil"}
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


def test_the_settings_do_not_load_mindspore():
    code = "import sys, minding.policies as p; [a.config_schema() for a in p.ALGORITHMS.values()]; "
    code += "print('mindspore' in sys.modules, *p.ALGORITHMS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", *ALGORITHMS]


def test_an_algorithm_without_settings_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text("")
    monkeypatch.setattr(minding.policies, "__path__", [*minding.policies.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match=r"minding\.policies\.settings\.odd"):
        minding.policies.find_algorithms()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_is_searched_over_values_that_its_settings_can_have(name):
    schema = {**RUN_SCHEMA, "env": config_schema(), "policy": ALGORITHMS[name].config_schema()}
    space = ALGORITHMS[name].search_space()
    assert check_space(space, schema, name) == space
    assert {"policy.learn.learning_rate", "policy.model.hidden"} <= set(space)


def test_every_searched_setting_belongs_to_an_algorithm():
    spaces = {name: algorithm.search_space() for name, algorithm in ALGORITHMS.items()}
    assert {f"policy.{path}" for path in SEARCHED} == {path for space in spaces.values() for path in space}
    for name, algorithm in ALGORITHMS.items():
        assert {f"policy.{path}" for path in algorithm.searched} <= set(spaces[name])
