"""`Config`: a dict read by attribute, whose declared types are those of the schemas."""

from __future__ import annotations

import copy
import pickle
import types
import typing

import pytest

from minding.engine import Config
from minding.engine.config import config as declared
from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.config.config import OpenSection, Section
from minding.engine.config.options import Option
from minding.engine.errors import ConfigError
from minding.envs import config_schema
from minding.policies import ALGORITHMS


@pytest.fixture
def cfg():
    return Config(seed=1, policy=dict(type="mine", learn=dict(gamma=0.5, steps=3), use=[{"call": "a:b"}]))


def test_keys_are_attributes_on_every_level_and_in_lists(cfg):
    assert cfg.policy.learn.gamma == cfg["policy"]["learn"]["gamma"] == 0.5
    assert cfg.policy.use[0].call == "a:b"
    assert cfg == {"seed": 1, "policy": {"type": "mine", "learn": {"gamma": 0.5, "steps": 3}, "use": [{"call": "a:b"}]}}
    assert "gamma" in dir(cfg.policy.learn)


@pytest.mark.parametrize(
    "write",
    [
        lambda section: setattr(section, "eps", {"end": 1}),
        lambda section: section.update(eps={"end": 1}),
        lambda section: section.update({"eps": {"end": 1}}),
        lambda section: section.__setitem__("eps", {"end": 1}),
        lambda section: section.setdefault("eps", {"end": 1}),
    ],
)
def test_what_is_written_in_any_way_is_read_in_any_way(cfg, write):
    write(cfg.policy.learn)
    assert cfg.policy.learn.eps.end == cfg["policy"]["learn"]["eps"]["end"] == 1
    del cfg.policy.learn.eps
    assert "eps" not in cfg.policy.learn
    with pytest.raises(AttributeError):
        cfg.policy.learn.eps  # noqa: B018


def test_what_a_section_is_made_of_does_not_change_with_it():
    user = {"env": {"env_kwargs": {"size": 1}}}
    cfg = Config(user)
    cfg.env.env_kwargs.size = 2
    assert user == {"env": {"env_kwargs": {"size": 1}}}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cfg: pickle.loads(pickle.dumps(cfg))])  # noqa: S301
def test_copies_and_pickles_are_the_same_kind_with_parts_of_their_own(cfg, copied):
    other = copied(cfg)
    assert other == cfg
    assert type(other) is Config
    other.policy.learn.gamma = 0.1
    assert cfg.policy.learn.gamma == 0.5


def test_a_missing_key_names_the_nearest(cfg):
    with pytest.raises(AttributeError, match="the settings have no key 'gama' here; did you mean 'gamma'"):
        cfg.policy.learn.gama  # noqa: B018
    with pytest.raises(AttributeError, match="no key 'x' here; it has gamma, steps"):
        cfg.policy.learn.x  # noqa: B018
    with pytest.raises(AttributeError, match="no key 'x'"):
        del cfg.x


def test_read_gives_a_value_of_the_asked_type(cfg):
    assert cfg.policy.read("learn.steps", int) == 3
    assert cfg.read("policy.learn", Section) is cfg.policy.learn
    assert cfg.policy.learn.read("batch", int, 7) == 7
    with pytest.raises(ConfigError, match=r"read\('learn.stepps'\): there is no key 'stepps'; did you mean 'steps'"):
        cfg.policy.read("learn.stepps", int)
    with pytest.raises(ConfigError, match=r"read\('learn.gamma'\): expected int, but the settings hold 0.5"):
        cfg.policy.read("learn.gamma", int)
    cfg.flag = True
    with pytest.raises(ConfigError, match="expected int, but the settings hold True"):
        cfg.read("flag", int, 0)


# Declared types


def _declared(section, prefix=""):
    """Dotted path -> (type without None, whether None is a value), of all keys that a section declares."""
    found = {}
    for key, kind in typing.get_type_hints(section, vars(declared)).items():
        alternatives = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
        main = next(each for each in alternatives if each is not type(None))
        found[prefix + key] = (typing.get_origin(main) or main, len(alternatives) > 1)
        if isinstance(main, type) and issubclass(main, Section):
            found.update(_declared(main, f"{prefix}{key}."))
    return found


def _options(schema, prefix=""):
    for key, node in schema.items():
        if isinstance(node, Option):
            yield prefix + key, node
        else:
            yield from _options(node, f"{prefix}{key}.")


def _agrees(option, kind):
    expected = OpenSection if option.kind is dict else option.kind
    return kind[0] is expected and kind[1] == option.nullable


# Filled in by the compiler, where the user gives none.
FILLED = ("exp_name", "chain", "policy.other.data")


@pytest.mark.parametrize(("prefix", "schema"), [("", RUN_SCHEMA), ("env.", config_schema())])
def test_every_key_of_run_and_environment_is_declared_with_its_type(prefix, schema):
    known = _declared(Config)
    wrong = [
        path
        for path, option in _options(schema, prefix)
        if path not in known or not (_agrees(option, known[path]) or path in FILLED)
    ]
    assert wrong == [], "declare them in engine/config/config.py as the schema says"


def test_what_is_declared_of_policies_is_what_their_schemas_say():
    known = {path: kind for path, kind in _declared(Config).items() if path.startswith("policy.")}
    options = {}
    for algorithm in ALGORITHMS.values():
        for path, option in _options(algorithm.config_schema(), "policy."):
            options.setdefault(path, []).append(option)
    leaves = {path for path, kind in known.items() if not issubclass(kind[0], Section)} - {"policy.type"}
    assert leaves <= options.keys(), "no algorithm has these"
    wrong = [p for p in leaves if p not in FILLED and not all(_agrees(option, known[p]) for option in options[p])]
    assert wrong == []
    shared = {path for path, found in options.items() if len(found) > 2}
    assert shared <= known.keys(), "several algorithms have these: declare them in engine/config/config.py"
