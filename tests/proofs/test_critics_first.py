"""The SAC of a study, whose critics step before the actor."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, space_of

from minding.engine.data.batch import RowLayout
from minding.policies import get_policy_class, sac
from proofs.critics_first import CriticsFirstCell

BATCH = 16


def stepped(policy, state, batch):
    """All parameters after one step from a state, by name."""
    policy.load_state_dict(copy.deepcopy(state))
    policy.learn_mode.forward(batch)
    return {name: value.copy() for name, value in policy.state_dict()["params"].items()}


def of(part, params):
    return {name: value for name, value in params.items() if name.startswith(f"{part}.")}


def test_the_actor_steps_as_in_sac_with_critics_that_have_stepped(tiny_config, monkeypatch):
    cfg = tiny_config("sac", VECTOR, space_of(2), **{"policy.learn.alpha": 0.2})
    policy = get_policy_class("sac")(cfg)
    monkeypatch.setattr(sac.SAC, "step_class", CriticsFirstCell)
    other = get_policy_class("sac")(cfg)
    rows = rows_of(RowLayout(policy.learn_mode.fields), BATCH, np.random.default_rng(0))
    batch, same = (Batches(x, BATCH)(rows, [range(BATCH)]) for x in (policy, other))
    state = policy.state_dict()
    at_once, critics_first = stepped(policy, state, batch), stepped(other, state, same)
    for part in ("critics", "targets"):
        assert of(part, at_once)
        for name, value in of(part, at_once).items():
            np.testing.assert_array_equal(critics_first[name], value, err_msg=name)
    assert any((critics_first[name] != value).any() for name, value in of("net", at_once).items())
    # Critics that are ahead already
    ahead = copy.deepcopy(state)
    ahead["params"].update(of("critics", at_once))
    for name, value in of("net", stepped(policy, ahead, batch)).items():
        np.testing.assert_allclose(critics_first[name], value, rtol=1e-6, atol=1e-8, err_msg=name)
    assert critics_first["log_alpha"] == pytest.approx(at_once["log_alpha"])
