"""The length of a run, by what its clock counts."""

import pytest

from minding.engine.config.config import run_length, set_length


def limits(**given):
    return {"max_env_step": None, "max_train_iter": None, "max_train_epoch": None, **given}


@pytest.mark.parametrize(
    ("unit", "given", "length"),
    [
        ("env_step", {}, ("env_step", 100_000)),
        ("env_step", {"max_env_step": 5, "max_train_iter": 9}, ("env_step", 5)),
        ("train_iter", {}, ("train_iter", 10_000)),
        ("train_iter", {"max_train_iter": 9, "max_train_epoch": 2}, ("train_iter", 9)),
    ],
)
def test_a_run_ends_by_its_own_clock_and_has_a_default(unit, given, length):
    run = limits(**given)
    set_length(run, unit, "ppo")
    assert run_length({"run": run}) == length
