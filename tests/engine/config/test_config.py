"""`Config`: a dict read by attribute, and the settings that its sections declare."""

import dataclasses

import pytest

from minding.engine import Config, ConfigError
from minding.engine.config.options import Option, opt, setting
from minding.engine.config.section import Section, section
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


# Declared settings


class Rates(Section):
    rate: float | None = setting(None, "(0, 1]", "a rate")
    steps: int = 1


class Sizes(Rates):
    kinds: list[str] = setting(["a"], ("a", "b"), "kinds")
    count: int = setting(3, "[1, 9]", "a count")
    inner: Rates = section(rate=0.25)


class Slow(Sizes):
    rate = 0.5
    kinds: list[str] = setting(doc="letters")
    count: int = setting(4, "[2, 8]")
    inner = section(rate=0.125)

    def check(self, cfg):
        if self.count > cfg["most"]:
            raise ConfigError(f"count={self.count}")


def test_a_subclass_changes_some_settings_of_a_section():
    rate = opt(None, "(0, 1]", "a rate", type=float)
    own = {"rate": rate, "kinds": opt(["a"], ("a", "b"), "kinds"), "count": opt(3, "[1, 9]", "a count")}
    assert Sizes.options() == {**own, "inner": {"rate": dataclasses.replace(rate, default=0.25)}}
    changed = {
        "rate": dataclasses.replace(rate, default=0.5),
        "kinds": dataclasses.replace(own["kinds"], doc="letters"),
        "count": opt(4, "[2, 8]", "a count"),
    }
    assert Slow.options() == {**changed, "inner": {"rate": dataclasses.replace(rate, default=0.125)}}
    assert not hasattr(Sizes, "rate")
    # A setting that an algorithm lacks has a value for those who read it of any algorithm.
    assert "steps" not in Rates.options()
    assert Rates().steps == 1
    assert Rates(steps=2).steps == 2


def declared(section):
    """Each setting of a class, and of the sections in it, with the annotations of its name."""
    for key, field in section._fields.items():
        if isinstance(field, Option):
            bases = [vars(base).get("__annotations__", {}) for base in section.__mro__]
            yield f"{section.__name__}.{key}", field, {each[key] for each in bases if key in each}
        else:
            yield from declared(field)


def test_every_setting_has_a_meaning_and_its_annotated_type():
    for kind in (Config, *(algorithm.settings for algorithm in ALGORITHMS.values())):
        for path, option, texts in declared(kind):
            assert option.doc, path
            for text in texts - {"OpenSection"}:
                assert text.partition("[")[0].removesuffix(" | None") == option.kind.__name__, path
                assert option.nullable or "None" not in text, path
