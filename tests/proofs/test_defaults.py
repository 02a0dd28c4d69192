"""The defaults of every algorithm that learns online have learned the small task of its kind, within a minute or so."""

import json

import pytest

from proofs.defaults import NAME, online, small_task, steps_of
from proofs.runs import ROOT

FOUND = json.loads((ROOT / "docs" / "results" / f"{NAME}.json").read_text(encoding="utf-8"))


def test_every_algorithm_that_learns_online_is_measured():
    assert sorted(FOUND) == sorted(online())


@pytest.mark.parametrize("algorithm", FOUND)
def test_its_defaults_learn_the_small_task_of_its_kind(algorithm):
    row, task = FOUND[algorithm], small_task(algorithm)
    assert (row["env_id"], row["env_step"], row["floor"]) == (task.env_id, steps_of(algorithm), task.floor)
    assert row["return"] >= task.floor
