"""IPPO: PPO by its name for teams; what it computes is that of PPO, with an axis of agents."""

import numpy as np
import pytest
from fakes import Batches, dict_of, discrete, mask_of, rows_of, space_of

from minding.engine.errors import SpaceError
from minding.policies import get_policy_class
from minding.policies.ppo import PPO

SEEN = dict_of(action_mask=mask_of(3), observation=space_of(4))
CONTRACT = {"ippo": (SEEN, discrete(3), {})}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.01, "policy.learn.n_minibatch": 2}
RESUMES = {}
"""PPO's with agents who leave and MAPPO's have all that it keeps."""
ALTERNATIVES = ("policy.model.memory=gru",)


def test_it_is_ppo_under_its_own_name(tiny_config):
    made = get_policy_class("ippo")(tiny_config("ippo", SEEN, discrete(3)))
    assert type(made) is PPO
    assert made.name == made.actors["collect"].name == "ippo"
    assert "rnd" not in made.cfg.other


def test_it_learns_for_several_agents(tiny_config):
    cfg = tiny_config("ippo", SEEN, discrete(3))
    del cfg.env.spec["agents"]
    with pytest.raises(SpaceError, match=r"policy\.type='ippo' learns for several agents, but the environment has one"):
        PPO(cfg)


def test_an_update_is_that_of_ppo_on_the_same_rows(tiny_config):
    found = []
    for name in ("ippo", "ppo"):
        policy = PPO(tiny_config(name, SEEN, discrete(3)))
        batches = Batches(policy, 32)
        rows = rows_of(batches.layout, 32, np.random.default_rng(0), {"action": 3})
        policy.learn_mode.forward(batches(rows, np.arange(32).reshape(2, 16)))
        found.append(policy.state_dict()["params"])
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[1][name], values) for name, values in found[0].items())
