"""What data say of their environment is refused where it cannot be said of one."""

import copy

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


def test_a_description_of_every_kind_of_space_is_accepted():
    check_description(GOOD)
    check_description({**GOOD, "max_episode_steps": None, "env_action": {**BOX, "rescaled": False}})


def broken(value, *path):
    """Checks the description with this value at a path."""
    changed = copy.deepcopy(GOOD)
    node = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    check_description(changed)
