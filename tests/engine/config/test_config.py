"""`Config`: a dict read by attribute, and the settings that its sections declare."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
from fakes import refuses

from minding.engine import Config
from minding.engine.config.config import PolicySection, Section
from minding.engine.config.options import Option, opt, setting
from minding.engine.errors import ConfigError
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
    assert not hasattr(cfg.policy.learn, "eps")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cfg: pickle.loads(pickle.dumps(cfg))])  # noqa: S301
def test_copies_and_pickles_are_the_same_kind_with_parts_of_their_own(cfg, copied):
    other = copied(cfg)
    assert other == cfg
    assert type(other) is Config
    other.policy.learn.gamma = 0.1
    assert cfg.policy.learn.gamma == 0.5


def test_a_missing_key_names_the_nearest(cfg):
    refuses(
        AttributeError,
        ("did you mean 'gamma'", lambda: cfg.policy.learn.gama),
        ("it has gamma, steps", lambda: cfg.policy.learn.x),
        ("no key 'x'", lambda: delattr(cfg, "x")),
    )


def test_read_gives_a_value_of_the_asked_type(cfg):
    assert cfg.policy.read("learn.steps", int) == 3
    assert cfg.read("policy.learn", Section) is cfg.policy.learn
    assert cfg.policy.learn.read("batch", int, 7) == 7
    cfg.flag = True
    refuses(
        ConfigError,
        ("did you mean 'steps'", lambda: cfg.policy.read("learn.stepps", int)),
        ("expected int", lambda: cfg.policy.read("learn.gamma", int)),
        ("expected int", lambda: cfg.read("flag", int, 0)),
    )


# Declared settings


def options_of(schema, prefix=""):
    for key, node in schema.items():
        if isinstance(node, Option):
            yield prefix + key, node
        else:
            yield from options_of(node, f"{prefix}{key}.")


def test_a_section_gives_its_settings_as_a_schema():
    class Sizes(Section):
        rate: float | None = setting(None, "(0, 1]", "a rate")
        kinds: list[str] = setting(["a"], ("a", "b"), "kinds")
        spec: object

    assert Sizes.options() == {
        "rate": opt(None, "(0, 1]", "a rate", type=float),
        "kinds": opt(["a"], ("a", "b"), "kinds"),
    }
    assert Sizes.options(rate=0.5) == {"rate": dataclasses.replace(Sizes.options()["rate"], default=0.5)}
    assert not hasattr(Sizes, "rate")
    refuses(
        ConfigError,
        ("kinds=['c']", lambda: Sizes.options(kinds=["c"])),
        ("Sizes declares no speed", lambda: Sizes.options("speed")),
    )


def test_every_setting_that_several_algorithms_share_is_declared_with_its_type():
    declared = dict(options_of(PolicySection.options(), "policy."))
    options = {}
    for algorithm in ALGORITHMS.values():
        for path, option in options_of(algorithm.config_schema(), "policy."):
            options.setdefault(path, []).append(option)
    assert declared.keys() <= options.keys(), "no algorithm has these"
    kind = {path: (option.kind, option.nullable) for path, option in declared.items()}
    assert [path for path in declared for each in options[path] if (each.kind, each.nullable) != kind[path]] == []
    shared = {path for path, found in options.items() if len(found) > 2}
    assert shared <= declared.keys(), "several algorithms have these: declare them in engine/config/config.py"
