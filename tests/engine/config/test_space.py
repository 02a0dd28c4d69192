"""Search spaces: what a file may say, and what is refused."""

from minding.engine.config.compiler import opt
from minding.engine.config.space import Choice, Range, check_space, load_space

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
