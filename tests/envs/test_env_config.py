"""The `env` section of a configuration."""

from minding.envs import config_schema, default_config


def test_defaults_are_fresh_plain_values_with_documentation():
    defaults = default_config()
    assert defaults["collector_env_num"] == 8
    defaults["env_kwargs"]["x"] = 1
    assert default_config()["env_kwargs"] == {}
    assert all(option.doc for option in config_schema().values())
