"""Which settings changed, and which make another run."""

import pytest
from easydict import EasyDict

from minding.engine.errors import CheckpointError
from minding.engine.identity import changes, check_identity, describe_changes

SAVED = {"seed": 0, "run": {"out_dir": "a", "max_env_step": 10}, "policy": {"type": "ppo", "model": {"hidden": [8]}}}


def test_differences_are_found_by_path_but_not_those_of_places():
    now = EasyDict(seed=1, run=dict(out_dir="b", max_env_step=20, new=3), policy=dict(type="ppo"))
    found = changes(SAVED, now)
    assert describe_changes(found) == (
        "seed 0 -> 1, run.max_env_step 10 -> 20, run.new None -> 3, policy.model {'hidden': [8]} -> None"
    )


def test_tuples_and_lists_are_the_same():
    assert changes({"a": [1, 2]}, {"a": (1, 2)}) == []


def test_what_makes_another_run_is_refused_and_the_rest_is_not():
    check_identity(changes(SAVED, {**SAVED, "seed": 5}), "checkpoint x")
    with pytest.raises(CheckpointError, match=r"checkpoint x is of another run: policy\.model\.hidden is \[8\] there"):
        check_identity(changes(SAVED, {**SAVED, "policy": {"type": "ppo", "model": {"hidden": [9]}}}), "checkpoint x")
