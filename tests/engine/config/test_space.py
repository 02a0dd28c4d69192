"""Search spaces: what a file may say, and what is refused."""

from fakes import refuses

from minding.engine.config import space
from minding.engine.config.compiler import opt
from minding.engine.config.space import Choice, Range, check_space, load_space
from minding.engine.errors import ConfigError

SCHEMA = {
    "seed": opt(0, "[0, inf)", ""),
    "env": {"env_id": opt("", None, ""), "size": opt(3, "[1, 9]", "")},
    "policy": {
        "learn": {"rate": opt(0.1, "(0, 1]", ""), "double": opt(True, None, "")},
        "model": {"hidden": opt([4], "[1, inf)", "")},
    },
}


def read(tmp_path, text):
    (tmp_path / "space.yaml").write_text(text)
    return check_space(load_space(tmp_path / "space.yaml"), SCHEMA, "space")


def test_ranges_and_lists_take_the_types_of_their_settings(tmp_path):
    text = (
        "policy.learn.rate: {low: 1e-5, high: 1, log: true}\n"
        "env.size: {low: 2, high: 8.0}\n"
        "policy.model.hidden: [[8], [16, 16]]\n"
        "policy.learn.double: [true, false]\n"
    )
    found = read(tmp_path, text)
    assert found == {
        "policy.learn.rate": Range(1e-5, 1.0, log=True),
        "env.size": Range(2, 8),
        "policy.model.hidden": Choice(("[8]", "[16, 16]")),
        "policy.learn.double": Choice(("true", "false")),
    }
    assert (found["env.size"].whole, found["policy.learn.rate"].whole) == (True, False)
    assert ([16, 16] in found["policy.model.hidden"], [4] in found["policy.model.hidden"]) == (True, False)
    assert (5 in found["env.size"], 9 in found["env.size"], True in found["env.size"]) == (True, False, False)
    assert {path: values.plain for path, values in found.items()}["env.size"] == {"low": 2, "high": 8, "log": False}


WRONG = {
    "policy.learn.rat: [0.1]": "'policy.learn.rat'",
    "policy.learn: [0.1]": "policy.learn=0.1",
    "policy.learn.rate: [0.1, 2]": "policy.learn.rate=2",
    "policy.learn.rate: []": "expected values as",
    "policy.learn.rate: {low: 0.1}": "expected values as",
    "policy.learn.rate: {low: 0.1, high: 0.1}": "low below high",
    "policy.learn.rate: {low: 0, high: 0.1, log: true}": "above 0 with log",
    "policy.learn.rate: {low: a, high: b}": "expected values as",
    "policy.learn.rate: {low: 0.1, high: .nan}": "expected values as",
    "env.size: {low: 1.5, high: 3}": "env.size=1.5",
    "policy.learn.double: {low: 0, high: 1}": "policy.learn.double=0",
    "env.env_id: [a, b]": "env.env_id cannot be searched",
    "seed: [0, 1]": "seed cannot be searched",
    "{}": "names no setting",
    "": "is empty: expected settings, such as policy.learn.gamma: [0.9, 0.99]",
}


def test_an_invalid_space_is_refused_with_the_place(tmp_path, monkeypatch):
    refuses(ConfigError, *((word, lambda text=text: read(tmp_path, text)) for text, word in WRONG.items()))
    monkeypatch.setattr(space, "CODE_KEYS", {"policy.model.encoder": None})
    schema = {"policy": {"model": {"encoder": opt("", None, "")}}}
    named = {"policy.model.encoder": Choice.of("os:system")}
    refuses(ConfigError, ("policy.model.encoder names code", lambda: check_space(named, schema, "space")))
