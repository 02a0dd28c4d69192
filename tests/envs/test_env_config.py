"""The `env` section of a configuration."""

import sys

import pytest

from minding.engine.errors import ConfigError, MissingExtraError
from minding.envs import config_schema, default_config, make_env_manager
from minding.envs.config import env_settings


def test_defaults_are_fresh_plain_values_with_documentation():
    defaults = default_config()
    assert defaults["collector_env_num"] == 8
    defaults["env_kwargs"]["x"] = 1
    assert default_config()["env_kwargs"] == {}
    assert all(option.doc for option in config_schema().values())


def test_unknown_keys_wrong_types_and_ranges_name_the_key():
    for settings, words in (
        ({"backnd": "sync"}, r"env\.backnd: .*'backend'"),
        ({"collector_env_num": 0}, r"env\.collector_env_num=0"),
        ({"backend": "synk"}, r"env\.backend='synk'.*'sync'"),
    ):
        with pytest.raises(ConfigError, match=words):
            env_settings(settings)


def test_an_environment_of_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtraError, match=r"\.\[atari\]"):
        make_env_manager({"env_id": "ALE/Missing-v5"}, 1, 0)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingExtraError, match=r"\.\[box2d\]"):
        make_env_manager({"env_id": "LunarLander-v3"}, 1, 0)
