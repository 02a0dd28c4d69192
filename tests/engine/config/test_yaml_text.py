"""Configurations that anybody may have written: a clear error, in bounded time and memory."""

import time

import pytest

from minding.engine.config.compiler import config_text, fill_schema, load_config, opt
from minding.engine.config.yaml_text import one_line, parse_yaml
from minding.engine.errors import ConfigError

BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))])
LONG = f"a: &a {'x' * 9_990}\nb: [{', '.join(['*a'] * 40_000)}]\n"
LONG_KEYS = f"a: &a {{{'x' * 500}: 1}}\nb: [{', '.join(['*a'] * 40_000)}]\n"
MERGES = "\n".join(["a0: &a0 {k: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 50,000 values"),
        (MERGES, "more than 50,000 values"),
        ("a: &a [*a]", "refers to nothing or to itself"),
        ("a: " + "[" * 100_000, "are nested more than 32 levels deep"),
        ("a: " + "{b: " * 60_000, "are nested more than 32 levels deep"),
        ("a: " + "9" * 9_000, "digits"),
        ("a: " + "9" * 90_000, "at most 10,000"),
        *((f"seed: {many}", "an integer of .* bits") for many in ("0x" + "f" * 4000, "0b" + "1" * 9000)),
        ("a: 2001-99-99", "month must be in"),
        ("a: !!python/object/apply:os.system [touch ran]", "could not determine a constructor"),
        ("a: !!binary x", "binary|base64|Incorrect padding|bytes cannot stand"),
        ("env: {a: 1}\nenv: {b: 2}", r"the key 'env' is given twice in one section \(line 2\)"),
        ("a: [{b: 1, b: 1}]", r"the key 'b' is given twice in one section \(line 1\)"),
        ("? [a]\n: 1", r"a list or section is a key \(line 1\): keys are strings"),
        ("on: {a: 1}", r"the key 'on' is not a string but a boolean \(line 1\): put it in quotes"),
        ("a: 1\n1: {a: 1}", r"the key '1' is not a string but a number \(line 2\)"),
        ("1e3: {a: 1}", "the key '1e3' is not a string but a number"),
        ("null: 1", "the key 'null' is not a string but a null"),
        ("? \n: 1", "the key '' is not a string but a null"),
        ("2001-01-01: 1", "the key '2001-01-01' is not a string but a date"),
        ("env: {env_kwargs: [{a: {off: 1}}]}", "the key 'off' is not a string but a boolean"),
        ("a: &a {on: 1}\nb: {<<: *a}", "the key 'on' is not a string"),
        ("? &k on\n: 1\n", "the key 'on' is not a string"),
        ("a: &k on\n*k : 1\n", "the key 'on' is not a string"),
        ("? !!binary aGk=\n: 1", "the key 'aGk=' is not a string but a binary"),
        (LONG, "more than 262,144 characters, with aliases expanded"),
        (LONG_KEYS, "more than 262,144 characters, with aliases expanded"),
        ("a\0b: 1", "special characters|unacceptable|control characters"),
        ("items: {update: 1}", "the key 'items' cannot be used"),
        ("env: {env_kwargs: {__class__: 1}}", "the key '__class__' cannot be used"),
        ("x" * 300_000, "at most 262,144 are read"),
    ],
)
def test_hostile_settings_are_one_clear_error_within_a_second(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    start = time.perf_counter()
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert time.perf_counter() - start < 1.0
    assert len(str(caught.value)) < 1000
    assert str(path) in str(caught.value)


def test_usual_aliases_are_settings_and_messages_are_short(tmp_path):
    (tmp_path / "c.yaml").write_text("a: &a {b: 1e-3}\nc: *a\nd: &d {<<: *a, e: 2}\nf: {<<: *d, e: 3}\n")
    own = {"b": 0.001}
    assert load_config(tmp_path / "c.yaml") == {"a": own, "c": own, "d": {**own, "e": 2}, "f": {**own, "e": 3}}
    with pytest.raises(ConfigError) as caught:
        fill_schema({"env": {"a": opt(1)}}, {"env": ["x" * 5_000] * 100})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text", ["a", "1e3", "null", "\U00020bb7\u00e9", "\U0001f600 '\"\\ud842\\", "\x7f\x85\u2028\t\n", "l\udce9\udcff"]
)
def test_a_text_on_one_line_is_read_back_as_it_was(text):
    assert "\n" not in one_line(text)
    assert parse_yaml(one_line(text)) == text
    assert parse_yaml(config_text({text: text})) == {text: text}
