"""What data say of their environment is refused where it cannot be said of one."""

import copy

import pytest

from minding.engine.data.description import check_description

BOX = {"kind": "box", "shape": [2], "dtype": "float32", "low": [-1.0, float("-inf")], "high": 1.0}
GOOD = {
    "env_id": "Toy-v0",
    "wrappers": ["flatten"],
    "env_kwargs": {},
    "max_episode_steps": 200,
    "observation": {
        "kind": "dict",
        "spaces": {
            "box": BOX,
            "pair": {
                "kind": "tuple",
                "spaces": [{"kind": "discrete", "n": 4, "start": 0}, {"kind": "multi_binary", "shape": [3]}],
            },
            "action_mask": {"kind": "action_mask", "counts": [2, 3]},
        },
    },
    "env_action": {"kind": "multi_discrete", "shape": [1, 2], "dtype": "int64", "nvec": [[2, 3]], "start": [[0, 1]]},
}
IN_BOX = ("observation", "spaces", "box")
BROKEN = {
    "a number as a name": (("env_id",), 7, "env_id is '7', expected a name"),
    "no wrappers": (("wrappers",), None, "wrappers is 'None', expected a list"),
    "arguments in a list": (("env_kwargs",), [], "env_kwargs is"),
    "a limit in words": (("max_episode_steps",), "many", "max_episode_steps is 'many', expected an integer"),
    "no steps": (("max_episode_steps",), 0, "max_episode_steps is '0'"),
    "no observation": (("observation",), None, "observation is 'None', expected a space"),
    "no parts": (("observation", "spaces"), {}, "observation.spaces is"),
    "another kind": ((*IN_BOX, "kind"), "blob", "observation.box is .*expected a space, box or"),
    "another type": ((*IN_BOX, "dtype"), "object", "observation.box.dtype is 'object'"),
    "more than memory": ((*IN_BOX, "shape"), [10**12], "observation.box.shape is"),
    "a negative size": ((*IN_BOX, "shape"), [-3], "observation.box.shape is"),
    "limits of another shape": ((*IN_BOX, "low"), [1.0, 1.0, 1.0], "observation.box.low is .*numbers of shape"),
    "a limit that is a text": ((*IN_BOX, "low"), "x", "observation.box.low is 'x'"),
    "a limit too large": ((*IN_BOX, "high"), 10**400, "observation.box.high is"),
    "limits that are swapped": ((*IN_BOX, "high"), -2.0, "observation.box.low is .*at most observation.box.high"),
    "a limit that is not a number": ((*IN_BOX, "high"), float("nan"), "observation.box.low is"),
    "no values": (("observation", "spaces", "pair", "spaces", 0, "n"), 0, "observation.pair.0.n is '0'"),
    "a mask of nothing": (("observation", "spaces", "action_mask", "counts"), [], "observation.action_mask.counts is"),
    "counts that are none": (("env_action", "nvec"), [[2, "3"]], "env_action.nvec is"),
    "starts of other counts": (("env_action", "start"), [0, 1], "env_action.start is .*an integer for each count"),
    "actions of no size": (("env_action", "shape"), None, "env_action.shape is 'None', expected a list of sizes"),
    "actions of no type": (("env_action", "dtype"), 7, "env_action.dtype is '7', expected a type of numbers"),
    "a tree of actions": (("env_action", "kind"), "dict", "env_action is .*box or discrete or multi_discrete"),
}


def test_a_description_of_every_kind_of_space_is_accepted():
    check_description(GOOD)
    check_description({**GOOD, "max_episode_steps": None, "env_action": {**BOX, "rescaled": False}})


@pytest.mark.parametrize("name", BROKEN)
def test_what_describes_no_environment_is_refused_by_name(name):
    path, value, message = BROKEN[name]
    broken = copy.deepcopy(GOOD)
    node = broken
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(ValueError, match=message) as error:
        check_description(broken)
    assert len(str(error.value)) < 300
