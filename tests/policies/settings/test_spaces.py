"""The spaces of the algorithms."""

import pytest

from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.config.space import check_space
from minding.envs import config_schema
from minding.policies import ALGORITHMS
from minding.policies.settings.spaces import OF, SHARED, space_of


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_is_searched_over_values_that_its_settings_can_have(name):
    own = ALGORITHMS[name].config_schema()
    space = space_of(name, own)
    assert check_space(space, {**RUN_SCHEMA, "env": config_schema(), "policy": own}, name) == space
    assert {"policy.learn.learning_rate", "policy.model.hidden"} <= set(space)


def test_nothing_is_declared_that_no_algorithm_has():
    searched = {path for name, entry in ALGORITHMS.items() for path in space_of(name, entry.config_schema())}
    assert {f"policy.{key}" for key in SHARED} == searched
    assert set(OF) <= set(ALGORITHMS)
    for name, own in OF.items():
        kept = {f"policy.{key}" for key, values in own.items() if values is not None}
        assert kept <= set(space_of(name, ALGORITHMS[name].config_schema()))
